"""Row tracking is enabled on tables with data: the commits, resumed runs, and other writers."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine import AddFile, DeltaTable, OptimisticTransaction
from airflow_delta.engine.commit.registry import CommitOwners
from airflow_delta.engine.errors import (
    ConcurrentDeleteReadError,
    ConstraintViolationError,
    InvalidArgumentError,
    StorageError,
)
from airflow_delta.engine.maintenance.row_tracking import execution
from airflow_delta.engine.maintenance.row_tracking.execution import (
    RowTrackingResult,
    enable_row_tracking,
)
from airflow_delta.engine.model.dv_descriptor import DeletionVectorDescriptor
from airflow_delta.engine.model.schema import INTEGER, STRING, StructField, StructType
from airflow_delta.engine.transaction.file_rows import add_actions
from tests.engine.changes.logs import inline_vector
from tests.log_builder import commit_path

SCHEMA = StructType((StructField("id", INTEGER), StructField("p", STRING)))
DELETION_VECTORS = {"delta.enableDeletionVectors": "true"}
IDS = ("baseRowId", "defaultRowCommitVersion")


def file_of(path: str, records: int | None = 10, **fields: Any) -> AddFile:
    stats = None if records is None else json.dumps({"numRecords": records})
    return AddFile(
        path=path,
        partition_values={"p": path[:1]},
        size=100,
        modification_time=1,
        data_change=True,
        stats=stats,
        **fields,
    )


def append(table: DeltaTable, *files: AddFile) -> None:
    transaction = table.transaction("WRITE")
    transaction.add_files(files)
    transaction.commit()


def made_table(
    root: Path, paths: str = "abcde", properties: dict[str, str] | None = None
) -> DeltaTable:
    table = DeltaTable.create(str(root), SCHEMA, partition_by=["p"], properties=properties)
    if paths:
        append(table, *(file_of(path) for path in paths))
    return table


def remove(table: DeltaTable, path: str) -> None:
    transaction = table.transaction("DELETE")
    files = transaction.read_files()
    transaction.remove_files(files.filter([name == path for name in files["path"].to_pylist()]))
    transaction.commit()


def enable(table: DeltaTable, batch: int = 2, **named: Any) -> RowTrackingResult:
    return enable_row_tracking(table.storage, CommitOwners(), batch=batch, **named)


def actions(table: DeltaTable, version: int, kind: str) -> list[dict[str, Any]]:
    text = commit_path(Path(table.uri), version).read_text(encoding="utf-8")
    return [line[kind] for line in map(json.loads, text.splitlines()) if kind in line]


def info(table: DeltaTable, version: int) -> dict[str, Any]:
    (found,) = actions(table, version, "commitInfo")
    return found


def row_ids(table: DeltaTable) -> dict[str, tuple[int, int, int]]:
    """Of each file its first row id, the one behind its last, and its row commit version."""
    rows = DeltaTable(table.uri).snapshot().files().to_pylist()
    return {
        row["path"]: (
            row["baseRowId"],
            row["baseRowId"] + json.loads(row["stats"])["numRecords"],
            row["defaultRowCommitVersion"],
        )
        for row in rows
    }


def check_ids(table: DeltaTable) -> None:
    """No two rows have the same id."""
    ranges = sorted((first, end) for first, end, _ in row_ids(table).values())
    assert all(end <= first for (_, end), (first, _) in pairwise(ranges))


def test_the_commits(tmp_path: Path) -> None:
    table = made_table(tmp_path)
    before = {row["path"]: row for row in actions(table, 1, "add")}
    result = enable(table)
    assert result.to_dict() == {
        "version": 6,
        "enabled": True,
        "files": 5,
        "files_backfilled": 5,
        "num_commits": 5,
        "first_version": 2,
        "last_version": 6,
        "steps": [
            "add the feature rowTracking to the protocol",
            "give row ids to 5 files, in 3 commits",
            "set delta.enableRowTracking to true",
        ],
    }
    upgrade = info(table, 2)
    assert upgrade["operation"] == "UPGRADE PROTOCOL"
    (protocol,) = actions(table, 2, "protocol")
    assert {"rowTracking", "domainMetadata"} <= {*protocol["writerFeatures"]}
    told = json.loads(upgrade["operationParameters"]["newProtocol"])
    assert told == {"readerFeatures": None, **protocol}
    for version, batch in [(3, "0"), (4, "1"), (5, "2")]:
        backfill = info(table, version)
        assert backfill["operation"] == "ROW TRACKING BACKFILL"
        assert backfill["operationParameters"] == {"batchId": batch}
        assert backfill["isolationLevel"] == "SnapshotIsolation"
        assert not backfill["isBlindAppend"]
        for add in actions(table, version, "add"):
            assert add.pop("baseRowId") is not None
            assert add.pop("defaultRowCommitVersion") == version
            assert add == {**before.pop(add["path"]), "dataChange": False}
    assert not before
    assert info(table, 6)["operation"] == "SET TBLPROPERTIES"
    assert info(table, 6)["operationParameters"] == {
        "properties": '{"delta.enableRowTracking":"true"}'
    }
    assert info(table, 6)["tags"]["rowTrackingEnablementOnly"] == "true"
    check_ids(table)
    properties = DeltaTable(table.uri).snapshot().properties
    assert properties.row_tracking_enabled
    assert properties.row_id_column_name
    assert properties.row_commit_version_column_name


def test_nothing_is_done_twice(tmp_path: Path) -> None:
    table = made_table(tmp_path)
    assert table.enable_row_tracking().num_commits == 3
    again = table.enable_row_tracking()
    assert (again.version, again.enabled, again.num_commits, again.plan.steps) == (4, True, 0, ())


def test_a_dry_run_commits_nothing(tmp_path: Path) -> None:
    table = made_table(tmp_path)
    result = table.enable_row_tracking(dry_run=True)
    assert (result.version, result.enabled, result.num_commits) == (1, False, 0)
    assert result.plan.steps[1] == "give row ids to 5 files, in 1 commits"
    assert table.latest_version() == 1


def test_a_table_without_files(tmp_path: Path) -> None:
    table = made_table(tmp_path, paths="")
    assert enable(table).plan.num_without_ids == 0
    assert DeltaTable(table.uri).snapshot().properties.row_tracking_enabled


def test_files_keep_deletion_vectors_tags_and_statistics(tmp_path: Path) -> None:
    table = made_table(tmp_path, "a", DELETION_VECTORS)
    vector = inline_vector([1, 3])
    assert vector
    descriptor = DeletionVectorDescriptor.from_json(vector, "test")
    remove(table, "a")
    stats = '{"numRecords":10,"tightBounds":false,"nullCount":{"id":0}}'
    file = AddFile(
        path="a",
        partition_values={"p": "a"},
        size=100,
        modification_time=1,
        data_change=True,
        stats=stats,
        tags={"mine": "yes"},
        deletion_vector=descriptor,
    )
    append(table, file)
    enable(table)
    (row,) = DeltaTable(table.uri).snapshot().files().to_pylist()
    assert (row["stats"], dict(row["tags"])) == (stats, {"mine": "yes"})
    assert row["deletionVector"]["pathOrInlineDv"] == descriptor.path_or_inline_dv
    assert (row["baseRowId"], row["partitionValues"]) == (0, [("p", "a")])


@pytest.mark.parametrize("survived", range(5))
def test_a_run_that_is_stopped_is_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, survived: int
) -> None:
    table = made_table(tmp_path)
    commit, left = OptimisticTransaction.commit, [survived]

    def _stop(self: OptimisticTransaction, **named: Any) -> Any:
        if not left[0]:
            raise StorageError("killed")
        left[0] -= 1
        return commit(self, **named)

    monkeypatch.setattr(OptimisticTransaction, "commit", _stop)
    with pytest.raises(StorageError, match="killed"):
        enable(table)
    monkeypatch.undo()
    assert DeltaTable(table.uri).latest_version() == 1 + survived
    assert not DeltaTable(table.uri).snapshot().properties.row_tracking_enabled
    given = {
        row["path"]: row["baseRowId"]
        for row in DeltaTable(table.uri).snapshot().files().to_pylist()
        if row["baseRowId"] is not None
    }
    result = enable(table)
    assert (result.enabled, result.num_commits) == (True, 5 - survived)
    ids = row_ids(table)
    assert {path: ids[path][0] for path in given} == given
    check_ids(table)


def meanwhile(monkeypatch: pytest.MonkeyPatch, commits: list[Callable[[], object]]) -> None:
    """Make a commit each time that the files of a batch have been chosen."""
    choose = execution.files_without_row_ids

    def _choose(files: Any) -> Any:
        chosen = choose(files)
        if commits:
            commits.pop(0)()
        return chosen

    monkeypatch.setattr(execution, "files_without_row_ids", _choose)


def test_files_that_others_remove_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made_table(tmp_path)
    meanwhile(monkeypatch, [lambda: remove(DeltaTable(table.uri), "a")])
    result = enable(table, batch=10)
    assert (result.num_commits, result.num_backfilled) == (3, 4)
    assert sorted(row_ids(table)) == ["b", "c", "d", "e"]
    check_ids(table)


def test_files_that_others_append_have_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = made_table(tmp_path)
    meanwhile(monkeypatch, [lambda: append(DeltaTable(table.uri), file_of("z", 5))])
    result = enable(table, batch=10)
    assert (result.num_commits, result.num_backfilled) == (3, 5)
    assert row_ids(table)["z"] == (0, 5, 3)
    check_ids(table)


def test_statistics_that_others_correct_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, corrected = made_table(tmp_path), '{"numRecords":10,"minValues":{"id":1}}'

    def _correct() -> None:
        transaction = DeltaTable(table.uri).transaction("COMPUTE STATS")
        files = transaction.read_files()
        adds = add_actions(files, data_change=False)
        transaction.add_files([replace(each, stats=corrected) for each in adds if each.path == "a"])
        transaction.commit()

    meanwhile(monkeypatch, [_correct])
    assert enable(table, batch=10).num_backfilled == 4
    stats = {row["path"]: row["stats"] for row in table.snapshot().files().to_pylist()}
    assert stats["a"] == corrected
    check_ids(table)


def test_two_runs_at_once_give_one_id_to_each_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made_table(tmp_path)
    meanwhile(monkeypatch, [lambda: enable(DeltaTable(table.uri), batch=10)])
    assert enable(table, batch=10).enabled
    assert len(row_ids(table)) == 5
    check_ids(table)


def test_others_who_are_always_faster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, tries = made_table(tmp_path), [0]

    def _lose(self: OptimisticTransaction, **_: Any) -> Any:
        tries[0] += 1
        raise ConcurrentDeleteReadError("too late", table=self.table)

    monkeypatch.setattr(execution, "pause", lambda _: None)
    monkeypatch.setattr(OptimisticTransaction, "commit", _lose)
    with pytest.raises(ConcurrentDeleteReadError):
        enable(table)
    assert tries == [20]


def test_suspended_tables_are_refused(tmp_path: Path) -> None:
    table = made_table(tmp_path, properties={"delta.rowTrackingSuspended": "true"})
    with pytest.raises(
        InvalidArgumentError, match=r"unset the property delta\.rowTrackingSuspended"
    ):
        table.enable_row_tracking()
    assert table.latest_version() == 1


def test_files_must_tell_their_records(tmp_path: Path) -> None:
    table = made_table(tmp_path)
    append(table, file_of("z", None))
    with pytest.raises(
        ConstraintViolationError, match=r"1 files have no number of .* 'z'"
    ) as caught:
        table.enable_row_tracking()
    assert caught.value.path == "z"
    assert table.latest_version() == 2
