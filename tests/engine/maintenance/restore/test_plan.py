"""Restoring a table: which files are added and removed, what is refused, and what is a conflict."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine import AddFile, DeltaTable
from airflow_delta.engine.errors import (
    CommitConflictError,
    ConcurrentAppendError,
    ConcurrentDeleteReadError,
    ConcurrentTransactionError,
    ConstraintViolationError,
    InvalidArgumentError,
    InvalidTableError,
    MetadataChangedError,
    TimestampOutOfRangeError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from airflow_delta.engine.maintenance.restore import missing_files as restore_missing
from airflow_delta.engine.model.actions import Protocol, RemoveFile
from airflow_delta.engine.transaction import commit_loop
from tests.engine.transaction.prepare.attempts import protocol
from tests.log_builder import add, metadata, remove, write_commit, write_table
from tests.watched_owner import WatchedOwner

VECTOR: dict[str, Any] = {
    "storageType": "i",
    "pathOrInlineDv": "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
    "sizeInBytes": 44,
    "cardinality": 1,
}
ID = {"name": "id", "type": "long", "nullable": True, "metadata": {}}
LARGER = {**VECTOR, "pathOrInlineDv": f"x{VECTOR['pathOrInlineDv'][1:]}", "cardinality": 2}
COUNTED = {"stats": '{"numRecords":9}'}
Files = set[tuple[str, str | None]]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_loop, "pause", lambda _: None)


def columns(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


def files(table: DeltaTable, version: int | None = None) -> Files:
    rows = table.snapshot(version).files(columns=["path", "deletionVector"]).to_pylist()
    return {
        (row["path"], row["deletionVector"] and row["deletionVector"]["pathOrInlineDv"])
        for row in rows
    }


def restored(root: Path, version: int | None = None, **options: Any) -> DeltaTable:
    """A table, restored without a look whether its files are there, and what must hold in any case."""
    table = DeltaTable(str(root))
    result = table.restore(version, ignore_missing_files=True, **options)
    assert files(table) == files(table, result.plan.version)
    return table


def made(root: Path) -> list[dict[str, Any]]:
    """The actions of the newest commit but for ``commitInfo``."""
    version = DeltaTable(str(root)).latest_version()
    text = (root / "_delta_log" / f"{version:020}.json").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()[1:]]


def kinds(root: Path, kind: str) -> list[dict[str, Any]]:
    return [action[kind] for action in made(root) if kind in action]


# The request.


def test_either_a_version_or_a_timestamp_is_required(tmp_path: Path) -> None:
    write_table(tmp_path, [add("a")], [add("b")])
    table = DeltaTable(str(tmp_path))
    with pytest.raises(InvalidArgumentError, match="found neither"):
        table.restore()
    with pytest.raises(InvalidArgumentError, match="found both"):
        table.restore(0, 1_000_000)
    with pytest.raises(InvalidArgumentError, match="a version is a whole number"):
        table.restore("0")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="True"):
        table.restore(True)
    with pytest.raises(InvalidArgumentError, match="no timestamp"):
        table.restore(timestamp="yesterday")
    assert table.latest_version() == 1


def test_there_is_something_to_restore(tmp_path: Path) -> None:
    write_table(tmp_path, [add("a")], [add("b")])
    table = DeltaTable(str(tmp_path))
    with pytest.raises(InvalidArgumentError, match="version 1 is the newest one"):
        table.restore(1)
    with pytest.raises(InvalidArgumentError, match="version 1 is the newest one"):
        table.restore(timestamp=1_001_000)
    with pytest.raises(VersionNotFoundError, match="version 2"):
        table.restore(2)
    with pytest.raises(InvalidArgumentError, match="no version -1"):
        table.restore(-1)
    with pytest.raises(TimestampOutOfRangeError):
        table.restore(timestamp=999_999)
    with pytest.raises(TimestampOutOfRangeError):
        table.restore(timestamp=1_001_001)
    assert table.latest_version() == 1


def test_a_timestamp_means_the_newest_version_that_was_there(tmp_path: Path) -> None:
    write_table(tmp_path, [add("a")], [add("b")], [add("c")])
    (tmp_path / "a").touch()
    result = DeltaTable(str(tmp_path)).restore(timestamp="1970-01-01T00:16:40.999Z")
    assert (result.plan.version, result.version) == (0, 3)
    (info,) = DeltaTable(str(tmp_path)).history(1)
    assert info.operation == "RESTORE"
    assert info.operation_parameters == {"timestamp": "1970-01-01T00:16:40.999Z"}


def test_a_table_that_the_engine_cannot_write_is_left_alone(tmp_path: Path) -> None:
    write_commit(tmp_path, 0, protocol("novelty"), metadata(), add("a"))
    write_commit(tmp_path, 1, remove("a"))
    with pytest.raises(UnsupportedFeatureError, match="novelty"):
        DeltaTable(str(tmp_path)).restore(0)


def test_a_dry_run_changes_nothing(tmp_path: Path) -> None:
    write_table(tmp_path, [add("a", size=3), add("b", size=5)], [remove("a"), add("c", size=7)])
    (tmp_path / "a").touch()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    result = DeltaTable(str(tmp_path)).restore(0, dry_run=True)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert (result.version, result.commit, result.checkpoint_due) == (None, None, False)
    plan = result.plan
    assert (plan.base_version, plan.version, plan.timestamp_ms) == (1, 0, None)
    assert plan.files.restored["path"].to_pylist() == ["a"]
    assert plan.files.removed["path"].to_pylist() == ["c"]
    assert plan.metrics == {
        "tableSizeAfterRestore": 8,
        "numOfFilesAfterRestore": 2,
        "numRemovedFiles": 1,
        "numRestoredFiles": 1,
        "removedFilesSize": 7,
        "restoredFilesSize": 3,
    }


# Files.


def test_files_are_restored_with_all_fields_and_removed_with_all_fields(tmp_path: Path) -> None:
    fields = {"partitionValues": {"part": "x"}, "tags": {"k": "v"}, "size": 4, **COUNTED}
    write_commit(
        tmp_path,
        0,
        protocol("deletionVectors"),
        metadata(partition_columns=["part"]),
        add("a", **fields, modificationTime=5, clusteringProvider="liquid", dataChange=False),
        add("stays", partitionValues={"part": None}),
    )
    write_commit(
        tmp_path, 1, remove("a"), add("b%20c", **fields, deletionVector=VECTOR, modificationTime=6)
    )
    restored(tmp_path, 0)
    (came,) = kinds(tmp_path, "add")
    assert came == {
        "path": "a",
        **fields,
        "modificationTime": 5,
        "dataChange": True,
        "clusteringProvider": "liquid",
    }
    (went,) = kinds(tmp_path, "remove")
    assert went.pop("deletionTimestamp") > 1_700_000_000_000
    assert went == {
        "path": "b%20c",
        **fields,
        "deletionVector": VECTOR,
        "dataChange": True,
        "extendedFileMetadata": True,
    }


@pytest.mark.parametrize(
    ("then", "now"), [(None, VECTOR), (VECTOR, None), (VECTOR, LARGER), (LARGER, VECTOR)]
)
def test_deleted_rows_come_and_go_with_the_deletion_vector(
    tmp_path: Path, then: dict[str, Any] | None, now: dict[str, Any] | None
) -> None:
    old, new = ({"deletionVector": vector} if vector else {} for vector in (then, now))
    write_commit(tmp_path, 0, protocol("deletionVectors"), metadata(), add("a", **COUNTED, **old))
    write_commit(tmp_path, 1, remove("a", **old), add("a", **COUNTED, **new))
    (tmp_path / "a").touch()
    table = DeltaTable(str(tmp_path))
    table.restore(0)
    assert files(table) == {("a", then and then["pathOrInlineDv"])}
    # The table makes no vectors (delta.enableDeletionVectors), but may bring one back.
    table.restore(1)
    assert files(table) == {("a", now and now["pathOrInlineDv"])}


def test_two_spellings_of_a_location_are_one_file(tmp_path: Path) -> None:
    write_table(tmp_path, [add("/data/a")], [remove("/data/a"), add("b")], [add("file:///data/a")])
    result = DeltaTable(str(tmp_path)).restore(0)
    assert result.plan.files.restored.num_rows == 0
    assert result.plan.files.removed["path"].to_pylist() == ["b"]


def test_files_of_a_checkpoint_count_as_those_of_commits(tmp_path: Path) -> None:
    write_table(
        tmp_path,
        [add(f"f{number}") for number in range(9)],
        [remove("f3"), add("g")],
        [remove("f4")],
    )
    table = DeltaTable(str(tmp_path))
    table.checkpoint(1)
    restored(tmp_path, 1)
    assert [file["path"] for file in kinds(tmp_path, "add")] == ["f4"]
    table.checkpoint(3)
    restored(tmp_path, 0)
    assert [file["path"] for file in kinds(tmp_path, "add")] == ["f3"]
    assert [file["path"] for file in kinds(tmp_path, "remove")] == ["g"]


def test_careless_files_of_others_come_back(tmp_path: Path) -> None:
    """What the table had is no worse for being restored, and Delta Spark would restore it."""
    fields = columns(
        {**ID, "nullable": False},
        {**ID, "name": "part", "type": "string"},
    )
    clustered = {"domain": "delta.clustering", "configuration": '{"clusteringColumns":[["id"]]}'}
    write_commit(
        tmp_path,
        0,
        protocol("invariants", "domainMetadata", "clustering", "deletionVectors"),
        metadata(schema=fields),
        {"domainMetadata": {**clustered, "removed": False}},
        add("unclustered"),
        add("null", stats='{"numRecords":2,"nullCount":{"id":1}}'),
        add("uncounted", deletionVector=VECTOR),
        add("values", partitionValues={"part": "__HIVE_DEFAULT_PARTITION__"}),
    )
    gone = [remove(path) for path in ("unclustered", "null", "values")]
    write_commit(tmp_path, 1, *gone, remove("uncounted", deletionVector=VECTOR))
    restored(tmp_path, 0)
    assert len(kinds(tmp_path, "add")) == 4


def test_change_data_are_read_from_the_files(tmp_path: Path) -> None:
    write_commit(
        tmp_path,
        0,
        protocol("changeDataFeed", "deletionVectors"),
        metadata(configuration={"delta.enableChangeDataFeed": "true"}),
        add("a", **COUNTED),
        add("b", **COUNTED),
    )
    write_commit(
        tmp_path,
        1,
        remove("a"),
        add("a", **COUNTED, deletionVector=VECTOR),
        remove("b"),
        add("c", **COUNTED),
    )
    table = restored(tmp_path, 0)
    assert not kinds(tmp_path, "cdc")
    changes = table.changes(2).files
    assert {
        (row["path"], row["_change_type"], bool(row["selectionVector"]))
        for row in changes.to_pylist()
    } == {("a", "insert", True), ("b", "insert", False), ("c", "delete", False)}


# Append-only tables.


def test_an_append_only_table_loses_no_rows_by_a_restore(tmp_path: Path) -> None:
    write_table(tmp_path, [add("a")])
    write_commit(tmp_path, 1, metadata(configuration={"delta.appendOnly": "true"}), add("b"))
    write_commit(tmp_path, 2, metadata(configuration={"delta.appendOnly": "true", "x": "y"}))
    table = DeltaTable(str(tmp_path))
    with pytest.raises(ConstraintViolationError, match=r"delta\.appendOnly=true"):
        table.restore(0)
    table.restore(1)  # which takes no rows
    table.alter.unset_properties(["delta.appendOnly"])
    table.restore(0)
    table.restore(3, ignore_missing_files=True)
    assert table.snapshot().properties.append_only
    assert files(table) == {("a", None), ("b", None)}


# Other writers.


def append(table: DeltaTable) -> None:
    transaction = table.transaction("WRITE")
    transaction.add_file(AddFile("new", {}, 1, 1, data_change=True))
    transaction.commit()


def rewrite(table: DeltaTable) -> None:
    transaction = table.transaction("OPTIMIZE")
    transaction.remove_file(RemoveFile("b", data_change=False))
    transaction.add_file(AddFile("new", {}, 1, 1, data_change=False))
    transaction.commit()


def delete(table: DeltaTable) -> None:
    transaction = table.transaction("DELETE")
    transaction.remove_file(RemoveFile("stays", data_change=True))
    transaction.commit()


def set_domain(table: DeltaTable) -> None:
    transaction = table.transaction("X")
    transaction.set_domain("new", "{}")
    transaction.commit()


def set_transaction(table: DeltaTable) -> None:
    transaction = table.transaction("X")
    transaction.set_transaction("app", 1)
    transaction.commit()


def upgrade(table: DeltaTable) -> None:
    transaction = table.transaction("X")
    now = table.snapshot().protocol
    features = frozenset({*(now.writer_features or ()), "checkConstraints"})
    transaction.set_protocol(Protocol(3, 7, now.reader_features, features))
    transaction.commit()


CONFLICTS: list[tuple[Callable[[DeltaTable], object], type[CommitConflictError]]] = [
    (append, ConcurrentAppendError),
    (rewrite, ConcurrentAppendError),
    (delete, ConcurrentDeleteReadError),
    (set_domain, ConcurrentTransactionError),
    (upgrade, CommitConflictError),
    (lambda table: table.alter.set_properties({"team": "us"}), MetadataChangedError),
    (
        lambda table: table.alter.set_properties({"delta.enableDeletionVectors": "true"}),
        MetadataChangedError,
    ),
]


def raced(
    root: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[DeltaTable], object]
) -> DeltaTable:
    """A table to which another writer commits when a restore of version 0 has made its plan."""
    features = protocol("deletionVectors", "domainMetadata")
    write_commit(root, 0, features, metadata(), add("a"), add("stays"))
    write_commit(root, 1, remove("a"), add("b"))

    looks = iter((True,))

    def others(*_: object) -> list[str]:
        if next(looks, False):
            meanwhile(DeltaTable(str(root)))
        return []

    monkeypatch.setattr(restore_missing, "find_missing_files", others)
    return DeltaTable(str(root))


@pytest.mark.parametrize(("meanwhile", "error"), CONFLICTS)
def test_a_concurrent_change_of_the_table_is_a_conflict(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    meanwhile: Callable[[DeltaTable], object],
    error: type[CommitConflictError],
) -> None:
    table = raced(tmp_path, monkeypatch, meanwhile)
    with pytest.raises(error, match="version 2"):
        table.restore(0)
    assert table.latest_version() == 2


def test_what_changes_nothing_of_the_table_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = raced(tmp_path, monkeypatch, set_transaction)
    assert table.restore(0).version == 3
    assert files(table) == {("a", None), ("stays", None)}
    assert table.snapshot().transactions["app"].version == 1


# Commit owners.


def test_a_managed_table_is_restored_by_its_owner(tmp_path: Path) -> None:
    owner = WatchedOwner()
    write_table(tmp_path, [add("a")], [remove("a"), add("b")])
    table = DeltaTable(str(tmp_path), commit_owners={"owner-db": owner})
    table.convert_to_managed("owner-db")
    configuration = table.snapshot().metadata.configuration

    result = table.restore(0, ignore_missing_files=True)

    assert [call[1] for call in owner.named("commit")][-1] == result.version == 3
    snapshot = table.snapshot()
    assert files(table) == {("a", None)}
    # The version that came back had none of these, and the table keeps them.
    assert snapshot.metadata.configuration == configuration
    assert table.commit_status().owner == "owner-db"
    assert table.restore(2, ignore_missing_files=True).version == 4
    assert files(table) == {("b", None)}


def test_the_owner_of_a_former_version_does_not_come_back(tmp_path: Path) -> None:
    owner = WatchedOwner()
    write_table(tmp_path, [add("a")])
    table = DeltaTable(str(tmp_path), commit_owners={"owner-db": owner})
    table.convert_to_managed("owner-db")
    table.convert_to_file_system()
    append(table)
    table.restore(1)
    snapshot = table.snapshot()
    assert "managedCommit" not in (snapshot.protocol.writer_features or ())
    assert not [name for name in snapshot.metadata.configuration if "managedCommit" in name]
    assert files(table) == {("a", None)}


# What no commit may leave.


def test_former_metadata_must_fit_what_the_table_supports_by_now(tmp_path: Path) -> None:
    # The constraint meant nothing to writers of that protocol, so that nobody has checked the rows.
    configuration = {"delta.constraints.few": "id < 9"}
    write_commit(
        tmp_path,
        0,
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        metadata(configuration=configuration),
        add("a"),
    )
    features = protocol("appendOnly", "invariants", "checkConstraints")
    write_commit(tmp_path, 1, features, metadata(), remove("a"), add("b"))
    with pytest.raises(ConstraintViolationError, match="'id < 9'"):
        DeltaTable(str(tmp_path)).restore(0, ignore_missing_files=True)


def test_a_table_that_is_clustered_by_now_is_not_partitioned_again(tmp_path: Path) -> None:
    write_commit(tmp_path, 0, protocol("domainMetadata"), metadata(partition_columns=["part"]))
    write_commit(tmp_path, 1, protocol("domainMetadata", "clustering"), metadata())
    with pytest.raises(InvalidTableError, match="can't be clustered"):
        DeltaTable(str(tmp_path)).restore(0)
