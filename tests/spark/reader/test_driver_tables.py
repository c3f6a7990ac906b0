from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap64
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from airflow_delta.spark.reader import driver_tables
from airflow_delta.spark.reader.driver_tables import driver_frame
from airflow_delta.spark.reader.file_rows import with_facts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("compiled")

ROWS = 23
LISTS = T.ArrayType(T.ArrayType(T.LongType()))


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kibibyte each, of 128 mebibytes in a message."""
    monkeypatch.setattr(driver_tables, "_ROOM", 128 << 10)


def columns() -> dict[str, tuple[T.DataType, pa.Array]]:
    noon = datetime(2026, 3, 8, 12, tzinfo=timezone.utc)
    times = [None if n % 5 == 0 else noon + timedelta(hours=n) for n in range(ROWS)]
    return {
        "n": (T.LongType(), pa.array(range(ROWS))),
        "ntz": (
            T.TimestampNTZType(),
            pa.array([time and time.replace(tzinfo=None) for time in times], pa.timestamp("us")),
        ),
        "time": (T.TimestampType(), pa.array(times, pa.timestamp("us", "UTC"))),
        "decimal": (
            T.DecimalType(38, 10),
            pa.array(
                [None if n % 7 == 0 else Decimal(n) / 4 for n in range(ROWS)], pa.decimal128(38, 10)
            ),
        ),
        "bytes": (T.BinaryType(), pa.array([bytes(range(10 * n)) for n in range(ROWS)])),
        "date": (T.DateType(), pa.array([date(1500 + n, 1, 1) for n in range(ROWS)])),
        "flag": (T.BooleanType(), pa.array([n % 2 == 0 for n in range(ROWS)])),
        "nothing": (T.StringType(), pa.nulls(ROWS, pa.string())),
        "lists": (
            LISTS,
            pa.array(
                [[None if m % 2 else [*range(m)] for m in range(n % 6)] for n in range(ROWS)],
                pa.list_(pa.list_(pa.int64())),
            ),
        ),
    }


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("rows", [ROWS, 1, 0])
def test_a_table_in_parts_is_the_same(spark: SparkSession, rows: int) -> None:
    types = T.StructType([T.StructField(name, type_) for name, (type_, _) in columns().items()])
    table = pa.table({name: values for name, (_, values) in columns().items()}).slice(0, rows)
    frame = driver_frame(spark, table, types)
    plan = frame._jdf.queryExecution().analyzed().toString()
    assert plan.count("LocalRelation") >= (8 if rows == ROWS else 1)
    assert frame.schema == types
    assert sorted(frame.toArrow().to_pylist(), key=lambda row: row["n"]) == table.to_pylist()


@pytest.mark.usefixtures("small_parts")
def test_vectors_of_some_entries_are_cut_into_parts(spark: SparkSession) -> None:
    """Of both forms, and beside entries that have none, also at the end."""
    vectors = {
        entry: BitMap64(range(entry, 20_000, 3 if entry % 4 else 3_000))
        for entry in range(0, 30, 2)
    }
    rows = spark.range(31 * 20_000).select(
        (F.col("id") / 20_000).cast("long").alias("number"),
        (F.col("id") % 20_000).alias("row_index"),
    )
    numbers = pa.array(np.arange(31))
    kept = with_facts(spark, rows, numbers, {}, vectors=vectors).groupBy("number").count()
    assert dict(map(tuple, kept.collect())) == {
        entry: 20_000 - len(vectors.get(entry, ())) for entry in range(31)
    }
