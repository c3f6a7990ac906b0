"""Changes of rows that end in the middle: all or nothing, and no file too many."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_delta.engine import DeltaTable, OptimisticTransaction
from airflow_delta.spark import delete, merge, read_changes, update, write
from airflow_delta.spark.dml import change_files, removed_rows
from airflow_delta.spark.rewrite import files as rewritten_files
from airflow_delta.spark.writer import file_writing
from tests.deep import deep_but_for
from tests.spark.dml.tables import all_files, rows_in, stored_bytes
from tests.spark.ingest.test_interrupted import StoppedError, stopping

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TXN = ("task", 1)
KEPT = [(i, 0) for i in (0, 1, 2, 5, 6, 7, 8, 9)]


def run_delete(spark: SparkSession, table: str) -> Any:
    return delete(spark, table, "id IN (3, 4)", txn=TXN)


def run_update(spark: SparkSession, table: str) -> Any:
    return update(spark, table, {"v": "id"}, "id IN (3, 4)", txn=TXN)


def run_merge(spark: SparkSession, table: str) -> Any:
    rows = spark.sql("SELECT * FROM VALUES (3L, 5), (4L, 6), (40L, 7) AS t(id, v)")
    begun = merge(spark, table, rows, "target.id = source.id", txn=TXN)
    begun = begun.when_matched_update_all("source.id = 3").when_matched_delete()
    return begun.when_not_matched_insert_all().execute()


CHANGES: dict[str, tuple[Callable[..., Any], list[tuple[int, int]], set[tuple[Any, ...]]]] = {
    "delete": (run_delete, [], {("delete", 3, 0), ("delete", 4, 0)}),
    "update": (
        run_update,
        [(3, 3), (4, 4)],
        {
            ("update_preimage", 3, 0),
            ("update_preimage", 4, 0),
            ("update_postimage", 3, 3),
            ("update_postimage", 4, 4),
        },
    ),
    "merge": (
        run_merge,
        [(3, 5), (40, 7)],
        {
            ("update_preimage", 3, 0),
            ("update_postimage", 3, 5),
            ("delete", 4, 0),
            ("insert", 40, 7),
        },
    ),
}
"""For each change what it leaves beside `KEPT`, and its change data."""

STEPS: dict[str, tuple[Any, str, bool]] = {
    "after the rows were found": (removed_rows, "rows_that_stay", False),
    "after the deletion vectors": (removed_rows, "_add_with_vectors", True),
    "before the copies": (rewritten_files, "write_data_files", False),
    "after the copies": (rewritten_files, "write_data_files", True),
    "before the new rows": (file_writing, "write_data_files", False),
    "after the new rows": (file_writing, "write_data_files", True),
    "before the change data": (change_files, "write_data_files", False),
    "after the change data": (change_files, "list_data_files", True),
    "before the commit": (OptimisticTransaction, "commit", False),
}
NEVER = {
    ("delete", "before the new rows"),
    ("delete", "after the new rows"),
    ("delete with vectors", "before the change data"),
    ("delete with vectors", "after the change data"),
}
"""Steps that a change doesn't have."""
TABLES: dict[str, Mapping[str, str]] = {
    "copies": {},
    "vectors": {"delta.enableDeletionVectors": "true", "delta.enableRowTracking": "true"},
}
NO_FEED = "no feed"
"""A table whose rows are updated while their files are rewritten."""
CASES = [(change, kind) for change in CHANGES for kind in TABLES] + [("update", NO_FEED)]
IN_SHORT = ("merge", "vectors")


def steps_of(change: str, kind: str) -> list[str]:
    """The steps of a change, in their order."""
    if kind == NO_FEED:
        return ["before the new rows", "after the new rows", "before the commit"]
    return [
        step
        for step in STEPS
        if not (kind == "vectors" and "copies" in step)
        and not (kind == "copies" and "vectors" in step)
        and not {(change, step), (f"{change} with {kind}", step)} & NEVER
    ]


@pytest.fixture(scope="module")
def copy_table(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, Path], None]:
    """A function that copies a table of ten rows, of one of `TABLES`, into an empty folder."""

    @cache
    def written(kind: str) -> Path:
        path = tmp_path_factory.mktemp("table") / "t"
        rows = spark.sql("SELECT id, 0 AS v FROM range(10)").coalesce(1)
        properties = {
            "delta.enableChangeDataFeed": str(kind != NO_FEED).lower(),
            **TABLES.get(kind, {}),
        }
        write(rows, str(path), properties=properties)
        return path

    return lambda kind, to: shutil.copytree(written(kind), to, dirs_exist_ok=True)


@pytest.mark.parametrize("case", deep_but_for(CASES, IN_SHORT), ids=", ".join)
def test_a_change_that_stops_leaves_nothing_and_a_retry_makes_it_once(
    spark: SparkSession,
    copy_table: Callable[[str, Path], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    case: tuple[str, str],
) -> None:
    name, kind = case
    change, new, changes = CHANGES[name]
    copy_table(kind, tmp_path)
    files = all_files(tmp_path)
    # Each try finds the table as it was before all of them, but for the last one, which is just before the
    # commit: after it come the retries.
    for step in steps_of(name, kind):
        owner, function, is_after = STEPS[step]
        with monkeypatch.context() as patch:
            patch.setattr(owner, function, stopping(getattr(owner, function) if is_after else None))
            with pytest.raises(StoppedError):
                pytest.fail(f"{step}: {change(spark, str(tmp_path))}")
        assert DeltaTable(str(tmp_path)).latest_version() == 0, step
        if step == "before the commit":
            assert files < all_files(tmp_path)
        else:
            assert all_files(tmp_path) == files, step
        assert stored_bytes(spark) == 0, step
    assert len(rows_in(spark, tmp_path)) == 10
    results = [change(spark, str(tmp_path)) for _ in range(2)]
    facts = [(result.version, result.written, result.repeated) for result in results]
    assert facts == [(1, True, False), (1, False, True)]
    assert rows_in(spark, tmp_path) == sorted([*KEPT, *new], key=str)
    if kind != NO_FEED:
        found = read_changes(spark, str(tmp_path), 1, 1).select("_change_type", "id", "v")
        assert sorted(map(tuple, found.collect())) == sorted(changes)
    assert not DeltaTable(str(tmp_path)).snapshot().verify().differences
