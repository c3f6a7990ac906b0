"""Values of identity columns, by the tasks that make them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F  # noqa: N812

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import ConstraintViolationError
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


@pytest.mark.parametrize(("step", "left"), [(1, 40), (-7, -290)])
def test_no_value_is_beyond_64_bits(
    spark: SparkSession, tmp_path: Path, step: int, left: int
) -> None:
    end = (1 << 63) - 1 if step > 0 else -(1 << 63)
    last = end // step * step
    identity = {
        "delta.identity.start": 0,
        "delta.identity.step": step,
        "delta.identity.allowExplicitInsert": True,
        "delta.identity.highWaterMark": end - left,
    }
    schema = (StructField("id", LONG, metadata=identity), StructField("n", LONG))
    DeltaTable.create(str(tmp_path), StructType(schema))
    rows = spark.range(20).coalesce(1).withColumnRenamed("id", "n")
    assert write(rows, str(tmp_path)).num_rows == 20
    for _ in range(2):
        # The first try has a few values for the rows, and then none.
        with pytest.raises(ConstraintViolationError, match="has no values left") as caught:
            write(rows, str(tmp_path))
        assert caught.value.facts["columns"] == ("id",)
        explicit = spark.createDataFrame([(last, 1)], "id long, n long")
        write(explicit, str(tmp_path))
    ids = [row["id"] for row in read_snapshot(spark, str(tmp_path)).select("id").collect()]
    assert sorted(map(abs, ids))[-2:] == [abs(last)] * 2
    assert len(ids) == 22
