"""Data files of another writer than Spark: with a column in another case, old dates, and times as INT96."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_delta.engine import AddFile, DeltaTable
from airflow_delta.spark import write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["ROWS", "SCHEMA", "foreign_files"]

SCHEMA = "id long, day date, at timestamp, k long"
ROWS = pa.table(
    {
        "ID": [1, 2],
        "day": [dt.date(1000, 1, 1), None],
        "at": pa.array(
            [dt.datetime(1000, 1, 1, 12, tzinfo=dt.timezone.utc)] * 2, pa.timestamp("us", "UTC")
        ),
        "k": [1, 2],
    }
)
"""Rows of a table with `SCHEMA` that depend on settings for reading."""


def foreign_files(
    spark: SparkSession,
    path: Path,
    schema: str,
    rows: pa.Table,
    properties: Mapping[str, str] | None = None,
    num_records: int | None = None,
) -> DeltaTable:
    """A table with two equal files of another writer."""
    write(spark.createDataFrame([], schema), str(path), properties=properties)
    transaction = DeltaTable(str(path)).transaction("WRITE", enforces=["rowTracking"])
    for name in ("a.parquet", "b.parquet"):
        pq.write_table(rows, path / name, use_deprecated_int96_timestamps=True)
        size = (path / name).stat().st_size
        stats = json.dumps({"numRecords": num_records or len(rows)})
        transaction.add_files([AddFile(name, {}, size, 0, data_change=True, stats=stats)])
    transaction.commit()
    return DeltaTable(str(path))
