"""Locations of rows: whichever task has found them, none is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from airflow_delta.spark.dml.matching import collect_rows
from airflow_delta.spark.reader.snapshot_reader import LOCATION_FILE, LOCATION_ROW

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPLITS = {
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "2000",
    "spark.sql.adaptive.rebalancePartitionsSmallPartitionFactor": "0.01",
}


def test_rows_of_a_file_that_several_tasks_have_found(spark: SparkSession) -> None:
    """Spark cuts what one task would get of a large file."""
    for name, value in SPLITS.items():
        spark.conf.set(name, value)
    try:
        rows = spark.range(0, 40_000, numPartitions=8).select(
            F.lit(0).cast("long").alias(LOCATION_FILE), F.col("id").alias(LOCATION_ROW)
        )
        found = collect_rows(rows, table="t")
    finally:
        for name in SPLITS:
            spark.conf.unset(name)
    assert (found.num_distinct, found.count) == (40_000, 40_000)
