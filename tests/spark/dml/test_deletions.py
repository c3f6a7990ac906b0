"""What deletions, and overwrites by condition, do to files, statistics and change data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_delta.engine import AddFile, DeltaTable
from airflow_delta.spark import delete, read_snapshot, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("interpreted")


def test_statistics_of_a_file_whose_columns_have_another_order(
    spark: SparkSession, tmp_path: Path
) -> None:
    properties = {"delta.enableDeletionVectors": "true"}
    write(spark.createDataFrame([], "a long, b long"), str(tmp_path), properties=properties)
    pq.write_table(pa.table({"b": [100, 200], "a": [1, 2]}), tmp_path / "foreign.parquet")
    transaction = DeltaTable(str(tmp_path)).transaction("WRITE", enforces=["deletionVectors"])
    size = (tmp_path / "foreign.parquet").stat().st_size
    transaction.add_files([AddFile("foreign.parquet", {}, size, 0, data_change=True)])
    transaction.commit()

    delete(spark, str(tmp_path), "a = 1")

    (add,) = DeltaTable(str(tmp_path)).snapshot().files().to_pylist()
    assert json.loads(add["stats"]) == {"numRecords": 2, "tightBounds": False}
    assert read_snapshot(spark, str(tmp_path)).where("b = 200").count() == 1
