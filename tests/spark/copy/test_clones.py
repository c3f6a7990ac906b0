"""Copies as Delta tables: clones, made anew and brought up to date, and what is left where one fails."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pytest
from deltalake import DeltaTable as Peer
from deltalake import write_deltalake

from airflow_delta.copies.deletion import delete_copy
from airflow_delta.copies.deletion_list import DeletionList, create_list
from airflow_delta.copies.lease import CopyBeingDeletedError
from airflow_delta.copies.marker import MARKER, read_marker
from airflow_delta.copies.request import CopyRequest
from airflow_delta.engine import DeltaTable
from airflow_delta.engine.clock import now_ms
from airflow_delta.engine.errors import (
    CommitConflictError,
    InvalidArgumentError,
    InvalidTableError,
    ObjectNotFoundError,
    StorageError,
    TableAlreadyExistsError,
    UnsupportedFeatureError,
)
from airflow_delta.engine.model.sizes import size_text
from airflow_delta.engine.snapshot.timestamps import utc_text
from airflow_delta.engine.storage.local import LocalStorage
from airflow_delta.engine.storage.location import open_storage
from airflow_delta.spark import write
from airflow_delta.spark.copy import clones
from airflow_delta.spark.copy.copies import copy_snapshot
from tests.object_stores import new_place
from tests.spark.conftest import INTERPRETED, SETTINGS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def source(tmp_path: Path) -> str:
    """A table of three versions with ids 0, then 0 to 1, then 0 to 2; partitioned by ``p``."""
    table = tmp_path / "source"
    for number in range(3):
        rows = pa.table({"id": pa.array([number], pa.int64()), "p": ["x y"]})
        write_deltalake(table, rows, mode="append", partition_by=["p"], name="sales")
    return str(table)


def request(source: str, version: int, target: Path, **more: Any) -> CopyRequest:
    return CopyRequest(source, version, str(target), "delta", **more)


def ids(target: Path) -> list[int]:
    return sorted(pa.table(Peer(target).to_pyarrow_table())["id"].to_pylist())


def actions(target: Path, version: int) -> list[dict[str, Any]]:
    text = (target / "_delta_log" / f"{version:020}.json").read_text()
    return [json.loads(line) for line in text.splitlines()]


def added(target: Path, version: int) -> list[str]:
    return [action["add"]["path"] for action in actions(target, version) if "add" in action]


def data_files(target: Path) -> set[Path]:
    return {file for file in target.rglob("*") if file.suffix in (".parquet", ".bin")}


def test_a_clone_is_a_table_of_its_own(spark: SparkSession, source: str, tmp_path: Path) -> None:
    target = tmp_path / "copy %"
    DeltaTable(source).alter.set_properties({"own.property": "kept", "delta.appendOnly": "true"})
    made = copy_snapshot(spark, request(source, 3, target, expire_after_ms=1000))
    assert (made.num_rows, made.num_files, made.committed_version) == (3, 3, 0)
    of_source, of_clone = DeltaTable(source).snapshot(), DeltaTable(str(target)).snapshot()
    assert of_clone.metadata.id != of_source.metadata.id
    for name in ("name", "schema_string", "partition_columns", "configuration", "format"):
        assert getattr(of_clone.metadata, name) == getattr(of_source.metadata, name)
    assert of_clone.protocol == of_source.protocol
    contents = sorted(file.read_bytes() for file in data_files(Path(source)))
    assert sorted(file.read_bytes() for file in data_files(target)) == contents
    columns = ["partitionValues", "size", "modificationTime", "stats"]
    then, now = (
        sorted(map(str, snapshot.files(columns=columns).to_pylist()))
        for snapshot in (of_source, of_clone)
    )
    assert now == then
    marker = json.loads((target / MARKER).read_text())
    assert (marker["table_uri"], marker["table_id"]) == (source, of_source.metadata.id)
    assert [marker[key] for key in ("version", "format", "num_rows", "committed_version")] == [
        *(3, "delta", 3, 0)
    ]
    assert marker["made_at"] < marker["expires_at"]
    shutil.rmtree(source)
    assert ids(target) == [0, 1, 2]
    write_deltalake(target, pa.table({"id": pa.array([7], pa.int64()), "p": ["z"]}), mode="append")
    assert ids(target) == [0, 1, 2, 7]


def test_a_repetition_copies_what_is_new(spark: SparkSession, source: str, tmp_path: Path) -> None:
    target = tmp_path / "copy"
    copy_snapshot(spark, request(source, 1, target))
    table_id = DeltaTable(str(target)).snapshot().metadata.id
    before = data_files(target)
    second = copy_snapshot(spark, request(source, 2, target))
    assert (second.num_rows, second.num_files, second.committed_version) == (3, 3, 1)
    assert len(data_files(target) - before) == len(added(target, 1)) == 1
    assert DeltaTable(str(target)).snapshot().metadata.id == table_id
    (info,) = (action["commitInfo"] for action in actions(target, 1) if "commitInfo" in action)
    assert info["operation"] == "CLONE"
    assert info["operationParameters"] == {
        "source": f"delta.`{source}`",
        "sourceVersion": "2",
        "isShallow": "false",
    }
    numbers = {name: int(number) for name, number in info["operationMetrics"].items()}
    assert (numbers["sourceNumOfFiles"], numbers["numCopiedFiles"]) == (3, 1)
    with pytest.raises(InvalidArgumentError, match="newer than version 0"):
        copy_snapshot(spark, request(source, 0, target))
    back = copy_snapshot(spark, request(source, 0, target, replace_newer=True))
    assert (back.committed_version, added(target, 2), ids(target)) == (2, [], [0])
    again = copy_snapshot(spark, request(source, 0, target))
    assert (again.committed_version, added(target, 3)) == (3, [])
    assert [sorted(action) for action in actions(target, 3)][-1] == ["txn"]


def test_a_clone_follows_schema_partitioning_and_properties(
    spark: SparkSession, source: str, tmp_path: Path
) -> None:
    target = tmp_path / "copy"
    copy_snapshot(spark, request(source, 0, target))
    row = pa.table({"id": [9], "p": ["z"], "q": ["new"]})
    write_deltalake(source, row, mode="append", schema_mode="merge")
    DeltaTable(source).alter.set_properties({"delta.enableChangeDataFeed": "true", "x.y": "z"})
    copy_snapshot(spark, request(source, 4, target))
    newest = DeltaTable(str(target)).snapshot()
    assert newest.schema == DeltaTable(source).snapshot().schema
    assert newest.metadata.configuration == {"delta.enableChangeDataFeed": "true", "x.y": "z"}
    assert ids(target) == [0, 1, 2, 9]
    rows = pa.table({"other": [1.5]})
    write_deltalake(source, rows, mode="overwrite", schema_mode="overwrite", partition_by=[])
    copy_snapshot(spark, request(source, 5, target))
    assert pa.table(Peer(target).to_pyarrow_table()).to_pydict() == {"other": [1.5]}
    assert DeltaTable(str(target)).snapshot().metadata.partition_columns == ()


def test_a_retry_finds_its_commit(spark: SparkSession, source: str, tmp_path: Path) -> None:
    target = tmp_path / "copy"
    first = copy_snapshot(spark, request(source, 1, target, txn=("dag.task", 5)))
    (target / MARKER).unlink()  # killed behind the commit
    assert copy_snapshot(spark, request(source, 1, target, txn=("dag.task", 5))) == first
    assert json.loads((target / MARKER).read_text())["committed_version"] == 0
    later = request(source, 2, target, txn=("dag.task", 6))
    assert copy_snapshot(spark, later).committed_version == 1
    # Though a later run has replaced it.
    assert copy_snapshot(spark, request(source, 1, target, txn=("dag.task", 5))) == first
    assert json.loads((target / MARKER).read_text())["committed_version"] == 1
    assert Peer(target).version() == 1


def test_a_cleared_task_that_copies_another_version_makes_its_copy(
    spark: SparkSession, source: str, tmp_path: Path
) -> None:
    target = tmp_path / "copy"
    copy_snapshot(spark, request(source, 1, target, txn=("dag.task", 5)))
    for committed in (1, 2):  # its own retry can't find it, and makes the same copy again
        result = copy_snapshot(spark, request(source, 2, target, txn=("dag.task", 5)))
        assert (result.num_rows, result.committed_version) == (3, committed)
        assert ids(target) == [0, 1, 2]


def meanwhile(monkeypatch: pytest.MonkeyPatch, step: str, work: Callable[[], object]) -> None:
    """Have something else happen, once, before a step of a clone."""
    original = getattr(clones, step)

    def slow(*arguments: Any, **named: Any) -> Any:
        monkeypatch.setattr(clones, step, original)
        work()
        return original(*arguments, **named)

    monkeypatch.setattr(clones, step, slow)


@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize(("version", "fails"), [(1, False), (2, True)])
def test_a_try_that_loses_looks_at_what_the_other_one_copied(
    spark: SparkSession,
    source: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    held: bool,
    version: int,
    fails: bool,
) -> None:
    target, results = tmp_path / "copy", []
    if held:
        copy_snapshot(spark, request(source, 0, target))

    def other() -> None:
        results.append(copy_snapshot(spark, request(source, 1, target, txn=("dag.task", 5))))

    meanwhile(monkeypatch, "copy_files", other)
    mine = request(source, version, target, txn=("dag.task", 5))
    if fails:
        with pytest.raises((CommitConflictError, TableAlreadyExistsError)):
            copy_snapshot(spark, mine)
    else:
        assert copy_snapshot(spark, mine) == results[0]
    assert ids(target) == [0, 1]
    live = {Path(uri) for uri in DeltaTable(str(target)).snapshot().file_uris()}
    assert data_files(target) == live, "what the loser has copied is deleted"


@pytest.mark.parametrize(
    ("step", "error", "message"),
    [
        # Before the transaction begins: it sees the newer copy.
        ("CopyWatch", InvalidArgumentError, "newer than version 1"),
        # While the files are copied: the commit finds it.
        ("copy_files", CommitConflictError, "."),
    ],
)
def test_a_newer_copy_that_comes_first_wins(
    spark: SparkSession,
    source: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    error: type[Exception],
    message: str,
) -> None:
    target = tmp_path / "copy"
    copy_snapshot(spark, request(source, 0, target))
    meanwhile(monkeypatch, step, lambda: copy_snapshot(spark, request(source, 2, target)))
    with pytest.raises(error, match=message):
        copy_snapshot(spark, request(source, 1, target))
    assert ids(target) == [0, 1, 2]


def test_what_others_have_written_stays(spark: SparkSession, source: str, tmp_path: Path) -> None:
    target = tmp_path / "theirs"
    write_deltalake(target, pa.table({"id": [5]}))
    with pytest.raises(InvalidArgumentError, match="it holds no copy of this table"):
        copy_snapshot(spark, request(source, 0, target))
    files = tmp_path / "files"
    spark.range(1).write.parquet(str(files))
    with pytest.raises(InvalidArgumentError, match="which no earlier copy has written"):
        copy_snapshot(spark, request(source, 0, files))
    copy = tmp_path / "copy"
    copy_snapshot(spark, request(source, 0, copy))
    write_deltalake(copy, pa.table({"id": pa.array([7], pa.int64()), "p": ["z"]}), mode="append")
    with pytest.raises(InvalidArgumentError, match=r"others have written to the copy: .*p=z/part"):
        copy_snapshot(spark, request(source, 1, copy, replace_newer=True))
    assert (ids(target), ids(copy)) == ([5], [0, 7])


def test_a_file_that_is_not_what_the_log_says_is_not_copied(
    spark: SparkSession, source: str, tmp_path: Path
) -> None:
    target = tmp_path / "copy"
    copy_snapshot(spark, request(source, 0, target))
    before = sorted(target.rglob("*"))
    (path,) = (Path(source) / unquote(path) for path in added(Path(source), 2))
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    with pytest.raises(
        InvalidTableError, match=re.escape(f"has {size_text(len(content) - 1)}, and the log")
    ):
        copy_snapshot(spark, request(source, 2, target))
    path.unlink()
    with pytest.raises(
        ObjectNotFoundError, match=f"{path.name}.*, which the version needs, is gone"
    ):
        copy_snapshot(spark, request(source, 2, target))
    left = [file for file in target.rglob("*") if file.is_file() and file not in before]
    assert left == []
    assert ids(target) == [0]


def test_a_file_of_the_same_name_and_another_content_is_another_file(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Writers that call their files by the partition and nothing else write them anew in place."""
    source, target = tmp_path / "source", tmp_path / "copy"
    write(spark.range(1).coalesce(1), str(source))
    copy_snapshot(spark, request(str(source), 0, target))
    (old,) = (action["add"] for action in actions(source, 0) if "add" in action)
    other = tmp_path / "other"
    write(spark.range(5, 9).coalesce(1), str(other))
    (new,) = (action["add"] for action in actions(other, 0) if "add" in action)
    shutil.copy(other / new["path"], source / old["path"])
    log = source / "_delta_log" / f"{1:020}.json"
    told = {**new, "path": old["path"]}
    log.write_text(
        "".join(json.dumps(action) + "\n" for action in [{"commitInfo": {}}, {"add": told}])
    )
    copy_snapshot(spark, request(str(source), 1, target))
    assert ids(target) == [5, 6, 7, 8]
    assert Peer(target, version=0).to_pyarrow_table().num_rows == 1


def test_what_the_engine_cannot_write_is_refused_before_files_are_copied(
    spark: SparkSession, source: str, tmp_path: Path
) -> None:
    log = Path(source) / "_delta_log" / f"{3:020}.json"
    protocol = {
        "minReaderVersion": 1,
        "minWriterVersion": 7,
        "writerFeatures": ["appendOnly", "invariants", "fromTheFuture"],
    }
    log.write_text(json.dumps({"protocol": protocol}) + "\n")
    with pytest.raises(UnsupportedFeatureError, match="fromTheFuture"):
        copy_snapshot(spark, request(source, 3, tmp_path / "copy"))
    assert not (tmp_path / "copy").exists()


MUTATIONS = ("create", "replace", "writer", "delete")


class Failing:
    """Lets the n-th change of any storage of this process fail, before it is made or after."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left, self.after = -1, False
        for name in MUTATIONS:
            monkeypatch.setattr(LocalStorage, name, self._wrapped(getattr(LocalStorage, name)))

    def _wrapped(self, original: Any) -> Any:
        def wrapped(storage: LocalStorage, *arguments: Any, **named: Any) -> Any:
            self.left -= 1
            fails = self.left == -1
            if fails and not self.after:
                raise StorageError("the store has failed")
            result = original(storage, *arguments, **named)
            if fails:
                raise StorageError("the store has failed afterwards")
            return result

        return wrapped


@pytest.mark.parametrize("after", [False, True])
def test_whichever_step_fails_the_target_is_what_it_was_or_the_copy(
    spark: SparkSession, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    store = Failing(monkeypatch)
    store.after = after
    mine = {"txn": ("dag.task", 5)}
    for step in range(20):
        target = tmp_path / f"copy{step}"
        copy_snapshot(spark, request(source, 0, target))
        store.left = step
        try:
            copy_snapshot(spark, request(source, 2, target, **mine))
        except Exception:
            failed = True
        else:
            failed = store.left < 0
        if not failed:
            break
        store.left = -1
        found = ids(target)
        assert found in ([0], [0, 1, 2])
        again = copy_snapshot(spark, request(source, 2, target, **mine))
        assert again.committed_version == 1, "never twice"
        assert ids(target) == [0, 1, 2]
        marker = json.loads((target / MARKER).read_text())
        assert (marker["version"], marker["committed_version"]) == (2, 1)
    assert step >= 2, "a commit and a marker at least"


KILLED = """
import os, signal, sys
from pyspark.sql import SparkSession
from airflow_delta.engine import OptimisticTransaction
from airflow_delta.spark.copy.copies import copy_snapshot
from airflow_delta.copies.request import CopyRequest
settings = dict(pair.split("=", 1) for pair in sys.argv[3:])
spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
OptimisticTransaction.commit = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
copy_snapshot(spark, CopyRequest(sys.argv[1], 2, sys.argv[2], "delta"))
"""


@pytest.mark.deep
def test_a_copy_that_is_killed_leaves_nothing_to_read_and_its_files_to_a_vacuum(
    spark: SparkSession, source: str, tmp_path: Path
) -> None:
    target = tmp_path / "copy"
    settings = [f"{name}={value}" for name, value in (SETTINGS | INTERPRETED).items()]
    done = subprocess.run(
        [sys.executable, "-c", KILLED, source, target, *settings],
        cwd=Path(__file__).parents[3],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        timeout=120,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    left = data_files(target)
    assert len(left) == 3
    assert not DeltaTable(str(target)).exists()
    copy_snapshot(spark, request(source, 1, target))
    assert ids(target) == [0, 1]
    DeltaTable(str(target)).vacuum(retention_hours=0, enforce_retention=False)
    assert not left & data_files(target)
    assert ids(target) == [0, 1]


def test_in_an_object_store(spark: SparkSession, source: str, tmp_path: Path) -> None:
    """Copied, brought up to date, read by a peer; and deleted, once it has expired."""
    uri, options = new_place("s3", tmp_path)
    there = open_storage(f"{uri}/lake/source", options)
    for file in Path(source).rglob("*"):
        if file.is_file():
            there.create(str(file.relative_to(source)), file.read_bytes())
    targets = [f"{uri}/lake/{name}" for name in ("copy", "later")]
    for version, place in ((0, targets[0]), (2, targets[0]), (1, targets[1])):
        wanted = CopyRequest(f"{uri}/lake/source", version, place, "delta", expire_after_ms=0)
        made = copy_snapshot(spark, wanted, storage_options=options)
        assert made.num_rows == version + 1
    copy, later = (DeltaTable(place, options).snapshot() for place in targets)
    bytes_of = [
        sorted(
            storage.read(info.path) for info in storage.walk("") if info.name.endswith("parquet")
        )
        for storage in (there, copy.storage)
    ]
    assert bytes_of[0] == bytes_of[1]
    assert (copy.version, copy.num_rows, later.version) == (1, 3, 0)
    storage = copy.storage
    marker = read_marker(storage)
    assert marker is not None
    assert delete_copy(DeltaTable(targets[0], options), marker) is None
    assert sorted(open_storage(f"{uri}/lake", options).level("").folders) == ["later", "source"]


def test_the_memory_of_this_process_is_no_place(spark: SparkSession, source: str) -> None:
    with pytest.raises(InvalidArgumentError, match="Spark can't see the memory"):
        copy_snapshot(spark, CopyRequest(source, 0, "memory://lake/copy", "delta"))


def test_a_retry_keeps_an_expired_copy_anew(
    spark: SparkSession, source: str, tmp_path: Path
) -> None:
    target = tmp_path / "copy"
    mine = {"txn": ("dag.task", 5)}
    copy_snapshot(spark, request(source, 1, target, expire_after_ms=0, **mine))
    again = copy_snapshot(spark, request(source, 1, target, expire_after_ms=10**9, **mine))
    assert (again.committed_version, added(target, 1)) == (1, [])
    marker = json.loads((target / MARKER).read_text())
    assert marker["committed_version"] == 1
    assert marker["expires_at"] > marker["made_at"]
    assert marker["target_uri"] == str(target)
    # Whatever a further try wants: the table goes when its own file says so.
    third = copy_snapshot(spark, request(source, 1, target, **mine))
    assert utc_text(third.expires_at_ms or 0) == marker["expires_at"]


def test_a_source_that_forgets_identifiers_is_copied_again_and_again(
    spark: SparkSession, source: str, tmp_path: Path
) -> None:
    target = tmp_path / "copy"
    forgets = {"delta.setTransactionRetentionDuration": "interval 0 seconds"}
    DeltaTable(source).alter.set_properties(forgets)
    for committed in (0, 1):
        assert copy_snapshot(spark, request(source, 3, target)).committed_version == committed


@pytest.mark.parametrize("moment", ["before", "within", "behind"])
def test_a_copy_that_a_deletion_may_have_taken_fails(
    spark: SparkSession,
    source: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    moment: str,
) -> None:
    """The expired copy goes while the files are copied, as the commit is made, or is about to go then."""
    target = tmp_path / "copy"
    copy_snapshot(spark, request(source, 0, target, expire_after_ms=0))
    storage, marker = LocalStorage(str(target)), read_marker(LocalStorage(str(target)))
    assert marker is not None
    left = [target / unquote(path) for path in added(target, 0)] if moment == "behind" else []

    def deletes() -> None:
        if moment == "behind":
            assert create_list(storage, DeletionList.begin(marker, (), now_ms=now_ms()))
        else:
            assert delete_copy(DeltaTable(str(target)), marker) is None

    if moment == "before":
        meanwhile(monkeypatch, "copy_files", deletes)
    else:
        create = LocalStorage.create

        def slow(storage: LocalStorage, path: str, data: bytes) -> None:
            if path.startswith("_delta_log/"):
                monkeypatch.setattr(LocalStorage, "create", create)
                deletes()
            create(storage, path, data)

        monkeypatch.setattr(LocalStorage, "create", slow)
    with pytest.raises(CopyBeingDeletedError, match="deleted"):
        copy_snapshot(spark, request(source, 1, target))
    assert set(left) <= data_files(target)
    assert read_marker(storage) == (marker if left else None)
    if not left:
        assert not any(path.is_file() for path in target.rglob("*")), "nothing is in the way"
        copy_snapshot(spark, request(source, 1, target))
        assert ids(target) == [0, 1]
