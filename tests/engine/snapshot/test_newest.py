"""Following a table must come to the same as opening it again."""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from airflow_delta.engine import AddFile, DeltaTable, Snapshot
from airflow_delta.engine.commit.registry import CommitOwners
from airflow_delta.engine.errors import CorruptLogError, TableNotFoundError
from airflow_delta.engine.model.schema import LONG, StructField, StructType
from airflow_delta.engine.snapshot import newest as newest_module
from airflow_delta.engine.snapshot.newest import NewestSnapshot
from airflow_delta.engine.storage.base import Capabilities
from airflow_delta.engine.storage.local import LocalStorage
from airflow_delta.engine.storage.memory import MemoryStorage
from tests.log_builder import (
    PROTOCOL,
    add,
    commit_path,
    metadata,
    remove,
    write_commit,
    write_table,
)
from tests.table_builder import FAR_FUTURE_MS, commit_file, lines

VECTOR = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 4,
          "sizeInBytes": 40, "cardinality": 6}  # fmt: skip


class Counting(LocalStorage):
    """Counts the requests."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.calls: Counter[str] = Counter()

    def read(self, path: str, **options: Any) -> bytes:
        self.calls["read"] += 1
        return super().read(path, **options)

    def read_many(self, paths: Any) -> list[bytes | None]:
        self.calls["read"] += len(paths)
        return super().read_many(paths)

    def list(self, directory: str, **options: Any) -> Any:
        self.calls["list"] += 1
        return super().list(directory, **options)


def seen(snapshot: Snapshot) -> dict[str, Any]:
    """All properties of a snapshot."""
    adds = snapshot.files(columns=["path", "size", "deletionVector"]).to_pylist()
    removes = snapshot.tombstones(include_expired=True).select(["path"]).to_pylist()
    return {
        "version": snapshot.version,
        "protocol": snapshot.protocol,
        "metadata": snapshot.metadata,
        "transactions": dict(snapshot.transactions),
        "domains": dict(snapshot.domains),
        "files": sorted(adds, key=lambda each: each["path"]),
        "tombstones": sorted(each["path"] for each in removes),
        "statistics": sorted(
            str(s) for s in snapshot.files(columns=["stats"])["stats"].to_pylist()
        ),
    }


def removal(path: str, *, masked: bool) -> dict[str, Any]:
    vector = {"deletionVector": VECTOR} if masked else {}
    return remove(path, deletionTimestamp=FAR_FUTURE_MS, **vector)


def random_actions(chance: random.Random, live: dict[str, bool]) -> list[dict[str, Any]]:
    actions: list[dict[str, Any]] = []
    for _ in range(chance.randint(1, 4)):
        path = f"f{chance.randint(0, 8)}"
        if any(path in str(action) for action in actions):
            continue
        if path in live and chance.random() < 0.5:
            actions.append(removal(path, masked=live[path]))
            del live[path]
        else:
            masked = chance.random() < 0.3
            if path in live and live[path] != masked:
                actions.append(removal(path, masked=live[path]))
            vector = {"deletionVector": VECTOR} if masked else {}
            actions.append(
                add(path, size=chance.randint(1, 9), stats=f'{{"n":{path[1:]}}}', **vector)
            )
            live[path] = masked
    actions.append({"txn": {"appId": f"a{chance.randint(0, 2)}", "version": chance.randint(0, 9)}})
    if chance.random() < 0.2:
        actions.append(metadata(configuration={"k": str(chance.random())}))
    domain = {"domain": f"d{chance.randint(0, 1)}", "configuration": "{}"}
    actions.append({"domainMetadata": {**domain, "removed": chance.random() < 0.4}})
    return actions


@pytest.mark.parametrize("seed", range(8))
def test_following_comes_to_the_same_as_opening(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    write_table(tmp_path, [])
    table = DeltaTable(str(tmp_path))
    newest = NewestSnapshot(table.storage, CommitOwners())
    live: dict[str, bool] = {}
    version = 0
    for _ in range(12):
        for _ in range(chance.randint(0, 3)):
            version += 1
            write_commit(tmp_path, version, *random_actions(chance, live))
        if chance.random() < 0.2:
            table.checkpoint()
        followed = newest.get()
        if chance.random() < 0.5:  # Reading from a copy doesn't change the next one
            followed.files()
        assert seen(followed) == seen(DeltaTable(str(tmp_path)).snapshot())


def test_what_is_known_is_not_read_again(tmp_path: Path) -> None:
    write_table(tmp_path, *([add(f"f{n}")] for n in range(5)))
    storage = Counting(str(tmp_path))
    newest = NewestSnapshot(storage, CommitOwners())
    assert newest.get().num_files == 5
    storage.calls.clear()
    assert newest.get().num_files == 5
    assert not storage.calls
    write_commit(tmp_path, 5, add("f5"))
    assert newest.get().num_files == 6
    assert storage.calls == {"read": 1}


def test_the_time_of_a_version_that_was_followed_is_known(tmp_path: Path) -> None:
    schema = StructType((StructField("id", LONG),))
    on = {"delta.enableInCommitTimestamps": "true"}
    table = DeltaTable.create(str(tmp_path), schema, properties=on)
    storage = Counting(str(tmp_path))
    newest = NewestSnapshot(storage, CommitOwners())
    newest.get()
    txn = table.transaction("WRITE")
    txn.add_file(AddFile("f", {}, 1, 1, data_change=True))
    made = txn.commit()
    snapshot = newest.get()
    storage.calls.clear()
    assert snapshot.timestamp_ms == made.timestamp_ms
    assert newest.get().timestamp_ms == made.timestamp_ms
    assert not storage.calls


def test_each_caller_gets_a_snapshot_of_its_own(tmp_path: Path) -> None:
    write_table(tmp_path, [add("f")])
    newest = NewestSnapshot(LocalStorage(str(tmp_path)), CommitOwners())
    first, second = newest.get(), newest.get()
    assert first is not second
    assert first.state is not second.state


def test_a_table_in_the_place_of_another_is_seen(tmp_path: Path) -> None:
    root = tmp_path / "t"
    write_table(root, [add("old")], [add("more")])
    newest = NewestSnapshot(LocalStorage(str(root)), CommitOwners())
    assert newest.get().version == 1
    shutil.rmtree(root)
    with pytest.raises(TableNotFoundError):
        newest.get()
    # The same sizes as before, and further than the old one was.
    write_table(root, [add("new")], [add("mode")], [add("and")])
    os.utime(commit_path(root, 1), ns=(1, 1))
    assert set(newest.get().files(columns=["path"])["path"].to_pylist()) == {"new", "mode", "and"}


def test_a_log_that_was_cleaned_up_is_opened_again(tmp_path: Path) -> None:
    write_table(tmp_path, [add("f0")], [add("f1")])
    newest = NewestSnapshot(LocalStorage(str(tmp_path)), CommitOwners())
    assert newest.get().version == 1
    for version in range(2, 5):
        write_commit(tmp_path, version, add(f"f{version}"))
    DeltaTable(str(tmp_path)).checkpoint()
    for version in range(4):
        commit_path(tmp_path, version).unlink()
    snapshot = newest.get()
    assert (snapshot.version, snapshot.num_files) == (4, 5)
    assert snapshot.segment.checkpoint is not None


@pytest.mark.parametrize("content", [b"", b"{broken\n"])
def test_a_broken_commit_is_told_of(tmp_path: Path, content: bytes) -> None:
    write_table(tmp_path, [add("f0")])
    newest = NewestSnapshot(LocalStorage(str(tmp_path)), CommitOwners())
    newest.get()
    commit_path(tmp_path, 1).write_bytes(content)
    with pytest.raises(CorruptLogError, match=r"00000000000000000001\.json"):
        newest.get()


def test_a_gap_is_told_of(tmp_path: Path) -> None:
    """As by a fresh look at the log: the next commits are requested by name."""
    write_table(tmp_path, *([add(f"f{n}")] for n in range(40)))
    newest = NewestSnapshot(LocalStorage(str(tmp_path)), CommitOwners())
    newest.get()
    for version in range(40, 120):
        write_commit(tmp_path, version, add(f"f{version}"))
    commit_path(tmp_path, 100).unlink()
    with pytest.raises(CorruptLogError, match="100"):
        newest.get()


def test_a_newer_checkpoint_is_found_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(newest_module, "_SOME_COMMITS", 3)
    write_table(tmp_path, [])
    newest = NewestSnapshot(LocalStorage(str(tmp_path)), CommitOwners())
    checkpoints = []
    for version in range(1, 8):
        newest.get()
        write_commit(tmp_path, version, add(f"f{version}"))
        if version == 4:
            DeltaTable(str(tmp_path)).checkpoint()
        checkpoint = newest.get().segment.checkpoint
        checkpoints.append(checkpoint and checkpoint.version)
    # One commit at first, and more than two of it and three more with version 5.
    assert checkpoints == [None] * 4 + [4] * 3


def test_a_large_tail_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(newest_module, "_MOST_BYTES", 100)
    write_table(tmp_path, [add("f")])
    storage = Counting(str(tmp_path))
    newest = NewestSnapshot(storage, CommitOwners())
    for _ in range(2):
        storage.calls.clear()
        assert newest.get().num_files == 1
        assert storage.calls["list"]


def test_a_small_commit_makes_many_chunks_of_none(tmp_path: Path) -> None:
    table = DeltaTable(str(write_table(tmp_path, [])))
    for number in range(30):
        txn = table.transaction("WRITE")
        txn.add_file(AddFile(f"f{number}", {}, 1, 1, data_change=True))
        txn.commit()
    adds = table.transaction("WRITE").read_files(columns=["path"])
    assert adds["path"].num_chunks <= 10
    assert adds.num_rows == 30


# Stores that report times in whole seconds

NOW_MS = 2_000_000_000_000


class Seconds(MemoryStorage):
    """A remote store, all of whose files were made within one second."""

    capabilities: ClassVar[Capabilities] = replace(MemoryStorage.capabilities, remote=True)

    def __init__(self) -> None:
        super().__init__(f"memory://{random.random()}", clock=lambda: NOW_MS)
        self.read_paths: list[str] = []

    def commit(self, version: int, *actions: dict[str, Any], txn_id: str | None = None) -> None:
        info = {"commitInfo": {"timestamp": 1, **({"txnId": txn_id} if txn_id else {})}}
        self.replace(commit_file(version), lines([info, *actions]))

    def read(self, path: str, **options: Any) -> bytes:
        self.read_paths.append(path)
        return super().read(path, **options)


def files_of(snapshot: Snapshot) -> list[str]:
    return sorted(snapshot.files(columns=["path"])["path"].to_pylist())


@pytest.mark.parametrize("followed", [False, True])
@pytest.mark.parametrize("age_ms", [0, 1000, 4999])
def test_a_commit_that_replaces_another_within_a_second_is_seen(
    monkeypatch: pytest.MonkeyPatch, age_ms: int, followed: bool
) -> None:
    monkeypatch.setattr(newest_module, "now_ms", lambda: NOW_MS + age_ms)
    storage = Seconds()
    storage.commit(0, PROTOCOL, metadata(), txn_id="0")
    newest = NewestSnapshot(storage, CommitOwners())
    if followed:
        newest.get()
    storage.commit(1, add("a"), txn_id="a")
    assert files_of(newest.get()) == ["a"]
    storage.commit(1, add("b"), txn_id="b")
    # However long it takes until somebody asks again.
    monkeypatch.setattr(newest_module, "now_ms", lambda: NOW_MS + 10**6)
    assert files_of(newest.get()) == ["b"]


def test_of_a_commit_without_an_id_nobody_can_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(newest_module, "now_ms", lambda: NOW_MS)
    storage = Seconds()
    storage.commit(0, PROTOCOL, metadata(), add("a"))
    newest = NewestSnapshot(storage, CommitOwners())
    assert files_of(newest.get()) == ["a"]
    storage.commit(0, PROTOCOL, metadata(), add("b"))
    assert files_of(newest.get()) == ["b"]


def test_a_young_commit_is_read_once_more_and_a_settled_one_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(newest_module, "now_ms", lambda: NOW_MS)
    storage = Seconds()
    storage.commit(0, PROTOCOL, metadata(), txn_id="0")
    newest = NewestSnapshot(storage, CommitOwners())
    newest.get()
    for version in (1, 2, 3):
        storage.commit(version, add(f"f{version}"), txn_id=str(version))
        storage.read_paths.clear()
        assert newest.get().version == version
        assert storage.read_paths == [commit_file(version - 1)]
    monkeypatch.setattr(newest_module, "now_ms", lambda: NOW_MS + 5000)
    newest.get()
    storage.read_paths.clear()
    assert newest.get().version == 3
    assert not storage.read_paths
