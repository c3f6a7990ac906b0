"""Values of identity columns, by the tasks that make them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.model.schema import LONG, StructField, StructType
from airflow_delta.spark import read_snapshot, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_more_tasks_than_those_of_the_only_shuffle(spark: SparkSession, tmp_path: Path) -> None:
    identity = {
        "delta.identity.start": 1,
        "delta.identity.step": 1,
        "delta.identity.allowExplicitInsert": False,
    }
    schema = (StructField("id", LONG, metadata=identity), StructField("n", LONG))
    DeltaTable.create(str(tmp_path), StructType(schema))
    few = spark.range(40).groupBy(F.col("id").alias("n")).agg(F.count("*").alias("of"))
    many = spark.range(0, 40, 1, 20).withColumnRenamed("id", "n")
    write(many.join(F.broadcast(few), "n").select("n"), str(tmp_path))
    ids = [row["id"] for row in read_snapshot(spark, str(tmp_path)).select("id").collect()]
    assert len(ids) == len(set(ids)) == 40
