"""Overwrites with rows that were read from the table itself: what others commit meanwhile isn't undone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import CommitConflictError
from airflow_delta.spark import delete, read_snapshot, update, write
from tests.spark.dml.tables import all_files, rows_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = [(1, "a", 1), (2, "b", 2), (3, "b", 3)]
OVERWRITES: dict[str, dict[str, Any]] = {
    "static": {},
    "condition": {"replace_where": "p = 'b'"},
    "dynamic": {"partition_overwrite": "dynamic"},
}


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> str:
    path = str(tmp_path / "t")
    write(spark.createDataFrame(ROWS, "id int, p string, v int"), path, partition_by=["p"])
    return path


@pytest.mark.parametrize("named", OVERWRITES.values(), ids=OVERWRITES)
@pytest.mark.parametrize(
    "change",
    [
        lambda spark, table: update(spark, table, {"v": "7"}, "id = 2"),
        lambda spark, table: delete(spark, table, "id = 2"),
        lambda spark, table: write(spark.sql("SELECT 9 AS id, 'b' AS p, 9 AS v"), table),
    ],
    ids=["update", "delete", "append"],
)
def test_a_change_since_the_rows_were_read_is_a_conflict(
    spark: SparkSession, table: str, named: dict[str, Any], change: Callable[..., Any]
) -> None:
    rows = read_snapshot(spark, table).where("p = 'b'")
    change(spark, table)
    before = rows_in(spark, Path(table))
    files = all_files(Path(table))
    with pytest.raises(CommitConflictError) as caught:
        write(rows.withColumn("v", rows.v * 2), table, "overwrite", **named)
    assert (caught.value.table, caught.value.version) == (table, 1)
    assert rows_in(spark, Path(table)) == before
    assert all_files(Path(table)) == files


@pytest.mark.parametrize("named", OVERWRITES.values(), ids=OVERWRITES)
def test_rows_that_were_appended_since_the_read_stay(
    spark: SparkSession, table: str, named: dict[str, Any]
) -> None:
    DeltaTable(table).alter.set_properties({"delta.isolationLevel": "WriteSerializable"})
    rows = read_snapshot(spark, table).where("p = 'b'")
    write(spark.createDataFrame([(9, "b", 9)], "id int, p string, v int"), table)
    write(rows.withColumn("v", rows.v * 2), table, "overwrite", **named)
    others = [ROWS[0]] if named else []
    assert rows_in(spark, Path(table)) == [*others, (2, "b", 4), (3, "b", 6), (9, "b", 9)]


def test_a_change_in_another_partition_is_no_conflict(spark: SparkSession, table: str) -> None:
    rows = read_snapshot(spark, table).where("p = 'b'")
    update(spark, table, {"v": "7"}, "p = 'a'")
    write(rows.limit(0), table, "overwrite", replace_where="p = 'b'")
    assert rows_in(spark, Path(table)) == [(1, "a", 7)]


def test_rows_of_a_version_that_was_asked_for_replace_the_newest(
    spark: SparkSession, table: str
) -> None:
    update(spark, table, {"v": "7"})
    write(read_snapshot(spark, table, 0), table, "overwrite")
    assert rows_in(spark, Path(table)) == ROWS
