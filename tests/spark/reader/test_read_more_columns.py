"""Columns beside those of the table: row ids, and where rows come from."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from airflow_delta.engine import AddFile, DeltaTable
from airflow_delta.engine.errors import InvalidArgumentError, InvalidTableError
from airflow_delta.engine.model.schema import LONG, STRING, StructField, StructType
from airflow_delta.spark import read_snapshot
from tests.spark.conftest import rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

METADATA = [
    "_row_index",
    "_file_path",
    "_snapshot_version",
    "_file_size",
    "_file_modification_time",
]


def tracked_table(path: Path) -> DeltaTable:
    """A table of two files, the second of rows that moved there, but for one; both of five rows."""
    columns = StructType((StructField("n", LONG), StructField("p", STRING)))
    table = DeltaTable.create(
        str(path), columns, partition_by=["p"], properties={"delta.enableRowTracking": "true"}
    )
    properties = table.snapshot().properties
    moved = {
        properties.row_id_column_name: pa.array([100, 7, None, 101, 9], pa.int64()),
        properties.row_commit_version_column_name: pa.array([1, None, None, 1, 0], pa.int64()),
    }
    for number, more in enumerate([{}, moved]):
        file = path / f"f {number}.parquet"
        pq.write_table(pa.table({"n": range(number * 5, number * 5 + 5), **more}), file)
        transaction = table.transaction("WRITE")
        transaction.add_file(
            AddFile(
                f"f%20{number}.parquet",
                {"p": f"p{number}"},
                file.stat().st_size,
                1_750_000_000_123,
                data_change=True,
                stats='{"numRecords":5}',
            )
        )
        transaction.commit()
    return table


def test_row_ids_and_places(spark: SparkSession, tmp_path: Path) -> None:
    table = tracked_table(tmp_path)
    frame = read_snapshot(
        spark,
        str(tmp_path),
        columns=["n"],
        predicate="_row_id <> 2 AND _row_index < 4",
        with_row_tracking=True,
        metadata_columns=METADATA,
    )
    assert frame.columns == ["n", "_row_id", "_row_commit_version", *METADATA]
    rows = {row["n"]: row for row in rows_of(frame)}
    # The first file's rows have the ids from 0, the second's from 5; it came with version 2.
    ids = {0: (0, 1), 1: (1, 1), 3: (3, 1), 5: (100, 1), 6: (7, 2), 7: (7, 2), 8: (101, 1)}
    assert {n: (row["_row_id"], row["_row_commit_version"]) for n, row in rows.items()} == ids
    assert {n: row["_row_index"] for n, row in rows.items()} == {n: n % 5 for n in ids}
    file = tmp_path / "f 1.parquet"
    told: dict[str, Any] = {name: rows[8][name] for name in METADATA}
    assert told.pop("_file_modification_time") == datetime.fromtimestamp(
        1_750_000_000.123, timezone.utc
    )
    assert told == {
        "_row_index": 3,
        "_file_path": f"file:{tmp_path}/f%201.parquet",
        "_snapshot_version": 2,
        "_file_size": file.stat().st_size,
    }
    assert table.latest_version() == 2


def test_without_files_there_are_the_same_columns(spark: SparkSession, tmp_path: Path) -> None:
    tracked_table(tmp_path)
    full, none = (
        read_snapshot(
            spark, str(tmp_path), version, with_row_tracking=True, metadata_columns=METADATA
        )
        for version in (2, 0)
    )
    assert [(f.name, f.dataType) for f in none.schema] == [
        (f.name, f.dataType) for f in full.schema
    ]
    assert none.count() == 0


def test_places_of_rows_that_deletion_vectors_leave(spark: SparkSession, golden_case: Any) -> None:
    table = str(golden_case("basic-dv-with-checkpoint"))
    rows = read_snapshot(spark, table, metadata_columns=["_row_index", "_file_path"])
    places = rows.select("_file_path", "_row_index")
    assert places.distinct().count() == rows.count()
    physical = [
        (uri, pq.read_metadata(uri.removeprefix("file:")).num_rows)
        for uri in {row["_file_path"] for row in places.collect()}
    ]
    assert sum(count for _, count in physical) > rows.count()


def test_what_cannot_be_told_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    plain = str(tmp_path / "plain")
    write_deltalake(plain, pa.table({"_Row_Index": [1], "_row_id": [2]}))
    with pytest.raises(InvalidArgumentError, match=r"delta\.enableRowTracking isn't true"):
        read_snapshot(spark, plain, with_row_tracking=True)
    with pytest.raises(InvalidArgumentError, match="columns with the names _row_index"):
        read_snapshot(spark, plain, metadata_columns=["_file_path", "_row_index"])
    with pytest.raises(
        InvalidArgumentError, match=r"unknown metadata_columns \['_file'\]: expected"
    ):
        read_snapshot(spark, plain, metadata_columns=["_file"])
    with pytest.raises(
        InvalidArgumentError, match="metadata_columns='_row_index': expected a list"
    ):
        read_snapshot(spark, plain, metadata_columns="_row_index")


def test_a_file_without_ids_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    table = tracked_table(tmp_path)
    commit = tmp_path / "_delta_log" / f"{2:020}.json"
    text = commit.read_text(encoding="utf-8")
    assert '"baseRowId":5' in text
    commit.write_text(text.replace('"baseRowId":5,', "").replace(',"baseRowId":5', ""), "utf-8")
    for crc in (tmp_path / "_delta_log").glob("*.crc"):
        crc.unlink()
    with pytest.raises(InvalidTableError, match=r"'f%201.parquet' has no baseRowId"):
        read_snapshot(spark, table.uri, with_row_tracking=True)
    assert read_snapshot(spark, table.uri).count() == 10
