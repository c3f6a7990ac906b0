"""Settings of the Spark session that change what names and queries mean: the results stay the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import ConstraintViolationError, StorageError
from airflow_delta.spark import (
    add_constraint,
    delete,
    merge,
    read_snapshot,
    set_not_null,
    update,
    write,
)
from airflow_delta.spark.copy.text_files import write_text_files
from airflow_delta.spark.rewrite.rewrite import rewrite_data
from tests.row_tables import bag
from tests.spark.foreign_files import ROWS, SCHEMA, foreign_files

SETTINGS = {
    "spark.sql.parser.quotedRegexColumnNames": "true",
    "spark.sql.retainGroupColumns": "false",
}


@pytest.fixture(params=SETTINGS)
def session(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[SparkSession]:
    """A session with one of the settings."""
    spark.conf.set(request.param, SETTINGS[request.param])
    yield spark
    spark.conf.unset(request.param)


def test_rows_are_written_changed_and_read(session: SparkSession, tmp_path: Path) -> None:
    root = str(tmp_path / "t")
    write(session.sql("SELECT id, 'a.b' AS text, id AS `i.d` FROM range(4)"), root)
    update(session, root, {"text": "'c'"}, "id = 1")
    source = session.sql("SELECT 5L AS id, 'new' AS text, 5L AS `i.d`")
    merging = merge(session, root, source, "target.id = source.id")
    merging.when_matched_update_all().when_not_matched_insert_all().execute()
    delete(session, root, "id = 2")
    write(
        session.sql("SELECT 0L AS id, 'z' AS text, 0L AS `i.d`"),
        root,
        "overwrite",
        replace_where="id = 0",
    )
    expected = [(0, "z", 0), (1, "c", 1), (3, "a.b", 3), (5, "new", 5)]
    assert sorted(tuple(row) for row in read_snapshot(session, root).collect()) == expected
    some = read_snapshot(session, root, columns=["i.d"], predicate="id > 1")
    assert sorted(tuple(row) for row in some.collect()) == [(3,), (5,)]
    copied = str(tmp_path / "csv")
    assert write_text_files(read_snapshot(session, root), copied, "csv") == 4
    assert session.read.option("header", "true").csv(copied).where("text = 'new'").count() == 1


def test_rows_that_break_a_constraint_are_counted(session: SparkSession, tmp_path: Path) -> None:
    root = str(tmp_path)
    write(session.range(4).toDF("id"), root)
    with pytest.raises(ConstraintViolationError) as found:
        add_constraint(session, root, "small", "id < 2")
    assert found.value.facts["num_rows"] == 2


# All at once: each would change values of the rows.
READ_SETTINGS = {
    "spark.sql.caseSensitive": "true",
    "spark.sql.parquet.int96TimestampConversion": "true",
    "spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY",
    "spark.sql.parquet.int96RebaseModeInRead": "LEGACY",
}
VECTORS = {"delta.enableDeletionVectors": "true"}
FEED = {**VECTORS, "delta.enableChangeDataFeed": "true"}


def merged(spark: SparkSession, table: str) -> None:
    source = spark.sql("SELECT 1L AS k")
    merging = merge(spark, table, source, "target.k = source.k")
    merging.when_matched_update({"k": "9"}).execute()


def replaced(spark: SparkSession, table: str) -> None:
    nothing = spark.createDataFrame([], SCHEMA)
    write(nothing, table, "overwrite", replace_where="k = 1")


def without_vectors(spark: SparkSession, table: str) -> None:
    """The files get vectors under Spark's own settings."""
    for name in READ_SETTINGS:
        spark.conf.unset(name)
    delete(spark, table, "k = 1")
    for name, value in READ_SETTINGS.items():
        spark.conf.set(name, value)
    DeltaTable(table).alter.set_properties({"delta.enableDeletionVectors": "false"})
    rewrite_data(spark, table, "deletionVectors")


CHANGES: dict[str, tuple[Callable[[SparkSession, str], object], dict[str, str], int | None]] = {
    "delete": (lambda spark, table: delete(spark, table, "k = 1"), {}, None),
    "update": (lambda spark, table: update(spark, table, {"k": "9"}, "k = 1"), {}, 9),
    "update, vectors": (lambda spark, table: update(spark, table, {"k": "9"}, "k = 1"), VECTORS, 9),
    "update, feed": (lambda spark, table: update(spark, table, {"k": "9"}, "k = 1"), FEED, 9),
    "update of all": (lambda spark, table: update(spark, table, {"k": "k + 0"}), {}, 1),
    "merge": (merged, {}, 9),
    "merge, vectors": (merged, VECTORS, 9),
    "replace_where": (replaced, {}, None),
    "rewrite_data": (without_vectors, VECTORS, None),
}
"""Changes, the properties of their tables, and the ``k`` of the first row afterwards."""


@pytest.fixture
def reading_otherwise(spark: SparkSession) -> Iterator[SparkSession]:
    """A session that reads files of other writers with other values."""
    for name, value in READ_SETTINGS.items():
        spark.conf.set(name, value)
    yield spark
    for name in READ_SETTINGS:
        spark.conf.unset(name)


@pytest.mark.parametrize("name", CHANGES)
def test_rows_that_are_written_anew_stay_as_they_are_stored(
    reading_otherwise: SparkSession, tmp_path: Path, name: str
) -> None:
    spark = reading_otherwise
    change, properties, k = CHANGES[name]
    table = foreign_files(spark, tmp_path, SCHEMA, ROWS, properties)
    expected: list[dict[str, Any]] = []
    for row in table.snapshot().to_arrow().to_pylist():
        if row["k"] != 1:
            expected.append(row)
        elif k is not None:
            expected.append({**row, "k": k})
    change(spark, str(tmp_path))
    assert bag(table.snapshot().to_arrow().to_pylist()) == bag(expected)


def test_rows_are_checked_against_new_rules_as_they_are_stored(
    reading_otherwise: SparkSession, tmp_path: Path
) -> None:
    spark, root = reading_otherwise, str(tmp_path)
    foreign_files(spark, tmp_path, SCHEMA, ROWS)
    add_constraint(spark, root, "old", "day IS NULL OR day = DATE'1000-01-01'")
    with pytest.raises(ConstraintViolationError) as found:
        add_constraint(spark, root, "other", "day IS NULL OR day <> DATE'1000-01-01'")
    assert found.value.facts["num_rows"] == 2
    set_not_null(spark, root, "id")  # In the files it is ID.


def test_rows_without_the_ids_of_columns_are_not_written_as_nulls(
    spark: SparkSession, tmp_path: Path
) -> None:
    """As Spark would read them."""
    by_id = {"delta.columnMapping.mode": "id"}
    table = foreign_files(spark, tmp_path, "k long", pa.table({"k": [1, 2]}), by_id)
    version = table.latest_version()
    spark.conf.set("spark.sql.parquet.fieldId.read.ignoreMissing", "true")
    try:
        with pytest.raises(StorageError, match="failed to read"):
            update(spark, str(tmp_path), {"k": "9"}, "k IS NULL")
    finally:
        spark.conf.unset("spark.sql.parquet.fieldId.read.ignoreMissing")
    assert table.latest_version() == version
