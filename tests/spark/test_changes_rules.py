from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.spark.changes_rules import (
    MARKER,
    FeedRequest,
    feed_app_id,
    is_new,
    range_directory,
    told_by_files,
    told_by_table,
    told_by_target,
)
from tests.log_builder import add, write_table

REQUEST = FeedRequest("/t", 3, 7, "/c")


def txn(app_id: str, version: int) -> dict[str, Any]:
    return {"txn": {"appId": app_id, "version": version}}


@pytest.mark.parametrize(
    ("told", "new"), [(None, True), (0, True), (2, True), (7, False), (9, False)]
)
def test_a_range_is_new_or_told(told: int | None, new: bool) -> None:
    assert is_new(REQUEST, told) is new


@pytest.mark.parametrize("told", [3, 6])
def test_a_range_of_which_a_part_is_told_is_refused(told: int) -> None:
    with pytest.raises(InvalidArgumentError, match=f"go on at version {told + 1}; or choose"):
        is_new(REQUEST, told)


def test_a_table_tells_by_a_transaction_identifier(tmp_path: Path) -> None:
    uri = write_table(tmp_path / "c", [add("a"), txn(feed_app_id("ours"), 4), txn("other", 9)])
    table = DeltaTable(uri)
    assert told_by_table(REQUEST, "ours", table.snapshot()) == 4
    assert told_by_target(REQUEST, "ours", table) == 4
    with pytest.raises(
        InvalidArgumentError, match="the changes of another table, whose id is ours"
    ):
        told_by_table(REQUEST, "another", table.snapshot())
    plain = write_table(tmp_path / "p", [add("a"), txn("other", 9)])
    assert told_by_table(REQUEST, "ours", DeltaTable(plain).snapshot()) is None
    assert told_by_target(REQUEST, "ours", DeltaTable(str(tmp_path / "none"))) is None


def made_range(target: Path, start: int, end: int, marker: object | None) -> None:
    folder = target / range_directory(start, end)
    folder.mkdir(parents=True)
    (folder / "part-0.parquet").write_bytes(b"rows")
    if marker is not None:
        (folder / MARKER).write_text(json.dumps(marker))


def test_files_tell_by_the_markers_of_their_ranges(tmp_path: Path) -> None:
    storage = DeltaTable(str(tmp_path)).storage
    assert told_by_files(REQUEST, "ours", storage) is None
    made_range(tmp_path, 0, 2, {"table_id": "ours"})
    made_range(tmp_path, 9, 10, {"table_id": "ours"})
    made_range(tmp_path, 11, 12, None)
    assert told_by_files(REQUEST, "ours", storage) == 10
    with pytest.raises(
        InvalidArgumentError, match="the changes of another table, whose id is ours"
    ):
        told_by_files(REQUEST, "another", storage)


@pytest.mark.parametrize("marker", [[], {"table_id": 1}])
def test_a_marker_that_says_nothing_is_refused(tmp_path: Path, marker: object) -> None:
    made_range(tmp_path, 0, 2, marker)
    with pytest.raises(InvalidArgumentError, match="doesn't say which table it is about"):
        told_by_files(REQUEST, "ours", DeltaTable(str(tmp_path)).storage)


def test_a_marker_that_is_no_json_is_refused(tmp_path: Path) -> None:
    made_range(tmp_path, 0, 2, {})
    (tmp_path / range_directory(0, 2) / MARKER).write_text("{")
    with pytest.raises(InvalidArgumentError, match="can't be read"):
        told_by_files(REQUEST, "ours", DeltaTable(str(tmp_path)).storage)
