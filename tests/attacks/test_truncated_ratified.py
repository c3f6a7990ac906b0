"""Ratified commits whose files were cut off or changed: noticed by their size and checksum, and refused.

A file that is cut off at the end of a line is still a commit, of fewer actions; so nothing but its owner's
word tells. Each of the ways to open one is gone: reading, committing, backfilling, converting, checking.
"""

from __future__ import annotations

import json
import sqlite3
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_delta.engine import AddFile, DeltaTable
from airflow_delta.engine.commit.owner import CommitOwner
from airflow_delta.engine.commit.registry import CommitOwners
from airflow_delta.engine.commit.sql.owner import SqlCommitOwner
from airflow_delta.engine.commit.store.memory import MemoryCommitStore
from airflow_delta.engine.commit.store.owner import StoreBackedOwner
from airflow_delta.engine.errors import CorruptLogError, DeltaWarning
from airflow_delta.engine.model.schema import LONG, StructField, StructType

SCHEMA = StructType((StructField("id", LONG),))
PROPERTIES = {
    "delta.managedCommit.commitOwner": "central",
    "delta.managedCommit.commitOwnerConf": json.dumps({"backfill": "on-request"}),
}
OWNERS: dict[str, Callable[[Path], CommitOwner]] = {
    "memory": lambda _: StoreBackedOwner(MemoryCommitStore()),
    "sql": lambda folder: SqlCommitOwner(f"sqlite:///{folder}/commits.db"),
}
DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut at the end of a line": lambda data: data[: data.index(b"\n") + 1],
    "cut in a line": lambda data: data[:-9],
    "empty": lambda _: b"",
    "longer": lambda data: data + b'{"add":{"path":"x"}}\n',
    "changed": lambda data: data.replace(b'"f1"', b'"g1"'),
}


@pytest.fixture(params=OWNERS)
def owner(request: pytest.FixtureRequest, tmp_path: Path) -> CommitOwner:
    return OWNERS[request.param](tmp_path)


def opened(root: Path, owner: CommitOwner) -> DeltaTable:
    return DeltaTable(str(root), commit_owners={"central": owner})


def append(table: DeltaTable, path: str) -> int:
    transaction = table.transaction("WRITE")
    transaction.add_file(
        AddFile(path=path, partition_values={}, size=1, modification_time=1, data_change=True)
    )
    return transaction.commit().version


def table_with_damage(root: Path, owner: CommitOwner, damage: str) -> Path:
    """Versions 0 to 2, of which 1 and 2 aren't backfilled and 1 is damaged: its file."""
    table = DeltaTable.create(
        str(root), SCHEMA, properties=PROPERTIES, commit_owners={"central": owner}
    )
    for number in (1, 2):
        append(table, f"f{number}")
    [path] = (root / "_delta_log" / "_commits").glob(f"{1:020}.*.json")
    before = path.read_bytes()
    path.write_bytes(DAMAGES[damage](before))
    assert path.read_bytes() != before
    return path


READS: dict[str, Callable[[DeltaTable], object]] = {
    "the newest version": lambda table: table.snapshot(),
    "a version": lambda table: table.snapshot(1).files(),
    "its files": lambda table: table.snapshot(2).files(),
    "a commit": lambda table: append(table, "f3"),
    "a backfill": lambda table: table.backfill(),
    "a conversion": lambda table: table.convert_to_file_system(),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("read", READS)
def test_it_is_refused_wherever_it_is_opened(
    tmp_path: Path, owner: CommitOwner, damage: str, read: str
) -> None:
    path = table_with_damage(tmp_path / "table", owner, damage)
    damaged = path.read_bytes()
    files = sorted(path.parent.parent.glob("*.json"))
    with pytest.raises(CorruptLogError) as raised:
        READS[read](opened(tmp_path / "table", owner))
    error = raised.value
    assert (error.version, error.path) == (1, f"_delta_log/_commits/{path.name}")
    assert error.facts["found"][0] == len(damaged)
    if len(damaged) != error.facts["expected"][0]:
        assert f"has {len(damaged):,} bytes, expected {error.facts['expected'][0]:,}" in str(error)
    else:
        assert "has the CRC-32" in str(error)
    assert "accept" in str(error)
    assert sorted(path.parent.parent.glob("*.json")) == files


def test_a_writer_that_was_there_before_notices_it(tmp_path: Path, owner: CommitOwner) -> None:
    """It goes on from the version before, and meets the damaged commit as one that came meanwhile."""
    root = tmp_path / "table"
    table = DeltaTable.create(
        str(root), SCHEMA, properties=PROPERTIES, commit_owners={"central": owner}
    )
    transaction = table.transaction("WRITE")
    transaction.add_file(
        AddFile(path="x", partition_values={}, size=1, modification_time=1, data_change=True)
    )
    append(opened(root, owner), "f1")
    [path] = (root / "_delta_log" / "_commits").glob(f"{1:020}.*.json")
    path.write_bytes(DAMAGES["cut at the end of a line"](path.read_bytes()))
    with pytest.raises(CorruptLogError, match="cut off, or changed"):
        transaction.commit()


def test_the_check_reports_it(tmp_path: Path, owner: CommitOwner) -> None:
    path = table_with_damage(tmp_path / "table", owner, "cut at the end of a line")
    report = opened(tmp_path / "table", owner).check()
    [found] = [each for each in report.findings if each.code == "ratified-commit-damaged"]
    assert found.severity == "error"
    assert path.name in found.message


def test_the_owner_can_be_made_to_give_it_up(tmp_path: Path, owner: CommitOwner) -> None:
    """As the message says; versions from the damaged one on are lost."""
    root = tmp_path / "table"
    table_with_damage(root, owner, "changed")
    table = opened(root, owner)
    assert isinstance(owner, StoreBackedOwner)
    logged = table_alone(root)
    owned = CommitOwners({"central": owner}).find_owned_table(
        logged.storage, logged.snapshot().protocol, logged.snapshot().metadata
    )
    assert owned is not None
    assert owner.accept_log(owned.table, 0) == 2
    assert table.snapshot().version == 0
    assert append(table, "again") == 1


def table_alone(root: Path) -> DeltaTable:
    """As who doesn't know the owner sees it, without a word about that."""
    warnings.simplefilter("ignore", DeltaWarning)
    return DeltaTable(str(root))


@pytest.mark.filterwarnings("ignore::airflow_delta.engine.errors.DeltaWarning")
def test_a_copy_in_the_log_that_is_not_what_was_ratified_is_told_of(
    tmp_path: Path, owner: CommitOwner
) -> None:
    """Whoever backfilled it was broken off, and its own file is gone."""
    root = tmp_path / "table"
    path = table_with_damage(root, owner, "cut at the end of a line")
    path.rename(root / "_delta_log" / f"{1:020}.json")
    with pytest.warns(DeltaWarning, match="isn't the commit"):
        opened(root, owner).snapshot()


# Commit stores of an earlier version


def test_commit_stores_without_checksums_get_them_and_older_workers_go_on(tmp_path: Path) -> None:
    url, root = f"sqlite:///{tmp_path}/commits.db", tmp_path / "table"
    table = DeltaTable.create(
        str(root), SCHEMA, properties=PROPERTIES, commit_owners={"central": SqlCommitOwner(url)}
    )
    append(table, "f1")
    with sqlite3.connect(tmp_path / "commits.db") as database:
        database.execute("ALTER TABLE airflow_delta_managed_commits DROP COLUMN crc32")
    table = opened(root, SqlCommitOwner(url))
    assert append(table, "f2") == 2
    with sqlite3.connect(tmp_path / "commits.db") as database:
        rows = database.execute(
            "SELECT version, crc32 IS NULL FROM airflow_delta_managed_commits ORDER BY version"
        ).fetchall()
        schema = database.execute("SELECT version FROM airflow_delta_managed_schema").fetchall()
        # As an older version does it, which names its columns.
        database.execute(
            "INSERT INTO airflow_delta_managed_commits (table_id, version, uuid, size, modified_ms)"
            " SELECT table_id, 99, uuid, size, modified_ms FROM airflow_delta_managed_commits"
            " WHERE version = 2"
        )
        database.execute("DELETE FROM airflow_delta_managed_commits WHERE version = 99")
    assert rows == [(1, 1), (2, 0)]
    assert schema == [(1,)]
    # Of the first one the size must do.
    [path] = (root / "_delta_log" / "_commits").glob(f"{1:020}.*.json")
    path.write_bytes(DAMAGES["cut at the end of a line"](path.read_bytes()))
    with pytest.raises(CorruptLogError, match="bytes, expected"):
        opened(root, SqlCommitOwner(url)).snapshot()


def test_commit_stores_that_may_not_be_altered_serve_without_checksums(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, root = f"sqlite:///{tmp_path}/commits.db", tmp_path / "table"
    DeltaTable.create(
        str(root), SCHEMA, properties=PROPERTIES, commit_owners={"central": SqlCommitOwner(url)}
    )
    # The statement fails, as there is such a column; and it isn't seen.
    monkeypatch.setattr(
        "airflow_delta.engine.commit.sql.schema._has_checksums", lambda _connection: False
    )
    table = opened(root, SqlCommitOwner(url))
    assert [append(table, "f1"), append(table, "f2")] == [1, 2]
    assert table.snapshot().num_files == 2
    with sqlite3.connect(tmp_path / "commits.db") as database:
        rows = database.execute("SELECT crc32 FROM airflow_delta_managed_commits").fetchall()
    assert rows == [(None,), (None,)]
