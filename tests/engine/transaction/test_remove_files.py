"""Files are removed by the rows that `Snapshot.files` and `read_files` return."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable as Peer
from deltalake import write_deltalake

from airflow_delta.engine import DeltaTable, RemoveFile
from airflow_delta.engine.errors import (
    CommitConflictError,
    ConstraintViolationError,
    InvalidArgumentError,
)
from airflow_delta.engine.model.dv_descriptor import DeletionVectorDescriptor
from tests.engine.transaction.prepare.attempts import table
from tests.log_builder import add, commit_path

VECTOR = DeletionVectorDescriptor("u", "ab^-aqEH.-t@S}K{vb[*k^", 4, 40, 6)


def actions(root: Path, version: int, kind: str) -> list[dict[str, Any]]:
    lines = commit_path(root, version).read_text(encoding="utf-8").splitlines()
    return [action[kind] for action in map(json.loads, lines) if kind in action]


@pytest.fixture
def days(tmp_path: Path) -> DeltaTable:
    """A partitioned table of the peer, a file a day."""
    rows = pa.table({"day": ["a", "b", "c"], "id": [1, 2, 3]})
    write_deltalake(tmp_path, rows, partition_by=["day"])
    return DeltaTable(tmp_path)


@pytest.mark.parametrize("columns", [None, ["path"], ["path", "deletionVector", "size"]])
def test_rows_of_files_are_removed(
    tmp_path: Path, days: DeltaTable, columns: list[str] | None
) -> None:
    transaction = days.transaction("DELETE")
    transaction.remove_files(transaction.read_files(pc.field("day") != "b", columns=columns))
    result = transaction.commit()
    assert result.num_files_removed == 2
    assert Peer(tmp_path).to_pyarrow_table().to_pylist() == [{"day": "b", "id": 2}]
    # Each repeats its add, whichever columns were requested.
    added = {file["path"]: file for file in actions(tmp_path, 0, "add")}
    for removed in actions(tmp_path, 1, "remove"):
        known = added[removed["path"]]
        assert removed["extendedFileMetadata"]
        assert removed["dataChange"]
        for name in ("partitionValues", "size"):
            assert removed[name] == known[name]


def test_a_file_with_a_deletion_vector_needs_it(tmp_path: Path) -> None:
    masked = add("f", deletionVector=VECTOR.to_json(), stats='{"numRecords":9}')
    table(tmp_path, ("deletionVectors",), masked, add("g"))
    transaction = DeltaTable(tmp_path).transaction("DELETE")
    files = transaction.base.files()
    with pytest.raises(InvalidArgumentError, match=r"'deletionVector'.*columns="):
        transaction.remove_files(files.select(["path"]))
    transaction.remove_files(files)
    assert transaction.commit().num_files_removed == 2
    assert DeltaTable(tmp_path).snapshot().num_files == 0
    (removed,) = (file for file in actions(tmp_path, 1, "remove") if file["path"] == "f")
    assert removed["deletionVector"] == VECTOR.to_json()


def test_rows_of_an_earlier_version_are_no_files_of_the_table(days: DeltaTable) -> None:
    earlier = days.snapshot().files()
    first = days.transaction("DELETE")
    first.remove_files(earlier.slice(0, 1))
    first.commit()
    again = days.transaction("DELETE")
    again.remove_files(earlier)
    with pytest.raises(ConstraintViolationError, match="that the table doesn't have"):
        again.commit()


def test_files_that_another_writer_removes_are_a_conflict(days: DeltaTable) -> None:
    mine, theirs = days.transaction("DELETE"), days.transaction("DELETE")
    for transaction in (mine, theirs):
        transaction.remove_files(days.snapshot().files())
    theirs.commit()
    with pytest.raises(CommitConflictError):
        mine.commit()


def test_rearranged_rows_change_no_data(tmp_path: Path, days: DeltaTable) -> None:
    transaction = days.transaction("OPTIMIZE")
    transaction.remove_files(days.snapshot().files(), data_change=False)
    assert {file.data_change for file in transaction._staged.removes} == {False}


def test_no_rows_remove_nothing(days: DeltaTable) -> None:
    transaction = days.transaction("DELETE")
    transaction.remove_files(transaction.read_files(pc.field("day") == "z"))
    with pytest.raises(InvalidArgumentError, match="nothing to commit"):
        transaction.commit()


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        (["a"], "rows: expected a pyarrow.Table"),
        (RemoveFile("a", data_change=True), "rows: expected a pyarrow.Table"),
        (pa.table({"file": ["a"]}), "'path'.*found the columns file"),
        (pa.table({"path": [1]}), "'path' of the type string, found int64"),
        (pa.table({"path": pa.array([None], pa.string())}), "a path is null"),
        (pa.table({"path": ["a"], "deletionVector": ["b"]}), "'deletionVector'"),
    ],
)
def test_what_is_no_row_of_a_file_is_refused(days: DeltaTable, rows: Any, problem: str) -> None:
    with pytest.raises(InvalidArgumentError, match=problem) as caught:
        days.transaction("DELETE").remove_files(rows)
    assert str(days.uri) in str(caught.value)
