"""Conditions on a column skip the partitions that are generated from it, and no row that they need."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F  # noqa: N812

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.model.schema import (
    DATE,
    INTEGER,
    STRING,
    TIMESTAMP,
    StructField,
    StructType,
)
from airflow_delta.spark import delete, read_snapshot, write
from airflow_delta.spark.reader.columns import frame_schema
from airflow_delta.spark.reader.generated_partitions import generated_partitions
from airflow_delta.spark.reader.pruning import pruning_expression
from tests.spark.conftest import SETTINGS, bag, rows_of, rows_of_each

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GENERATED = {
    "day": (DATE, "CAST(At AS DATE)"),
    "month_start": (DATE, "trunc(at, 'MM')"),
    "y": (INTEGER, "YEAR(at)"),
    "m": (INTEGER, "MONTH(at)"),
    "d": (INTEGER, "DAY(at)"),
    "h": (INTEGER, "HOUR(at)"),
    "letter": (STRING, "upper(substring(name, 1, 1))"),
    "text": (STRING, "CAST(at AS STRING)"),
    "year_text": (STRING, "YEAR(born)"),
    "both": (STRING, "concat(name, born)"),
}
ZONES = (SETTINGS["spark.sql.session.timeZone"], "Pacific/Kiritimati", "-12:00")
TIMES = [
    dt.datetime(*parts, tzinfo=dt.timezone.utc)
    for parts in (
        (2023, 12, 31, 23, 59, 59),
        (2024, 1, 1, 12),
        (2024, 3, 10, 7),
        (2024, 11, 3, 5, 30),
        (2024, 11, 3, 6, 30),
        (2024, 12, 31, 12),
        (2026, 2, 15),
        (1582, 10, 10),
    )
]

# Conditions, and how many of the partition columns' values of a single zone may be read; of all files
# that is three times as many.
CONDITIONS = {
    "at < '2024-01-05'": 3,
    "at <= timestamp'2023-12-25 00:00:00'": 1,
    "timestamp'2025-06-01 00:00:00Z' < at": 1,
    "at = timestamp'2024-03-10 07:00:00Z'": 1,
    "at <=> timestamp'2024-03-10 07:00:00Z' OR name = 'bea'": 4,
    "at IN (timestamp'2024-03-10 07:00:00Z', timestamp'2024-11-03 05:30:00Z')": 3,
    "at BETWEEN '2024-11-01' AND '2024-11-06'": 2,
    # An empty text is null as a partition value, so that null may be any of them.
    "name = 'ann'": 3,
    "name IN ('ann', 'bea', NULL)": 4,
    f"name IN ('ann', {', '.join(repr(str(n)) for n in range(20))})": 3,
    "name > 'x'": 8,
    "NOT (at < '2024-01-05')": 5,
    "NOT (name = 'ann')": 8,
    "born = date'2001-02-03'": 8,
    "at > '9999-12-31 23:00:00'": 8,
    "at < '0001-01-01 10:00:00'": 8,
}


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A file for each row, without statistics; the same rows by writers in three time zones."""
    path = tmp_path_factory.mktemp("generated") / "table"
    columns = [
        StructField("at", TIMESTAMP),
        StructField("name", STRING),
        StructField("born", DATE),
        StructField("zone", STRING),
        *(
            StructField(name, data_type, metadata={"delta.generationExpression": expression})
            for name, (data_type, expression) in GENERATED.items()
        ),
    ]
    DeltaTable.create(
        str(path),
        StructType(tuple(columns)),
        partition_by=list(GENERATED),
        properties={"delta.dataSkippingNumIndexedCols": "0"},
    )
    names = ["ann", "bea", "cid", None, "Dee", "", "éva", "zoë"]
    for zone in ZONES:
        spark.conf.set("spark.sql.session.timeZone", zone)
        rows = [
            (at, name, dt.date(2001, 2, 3), zone) for at, name in zip(TIMES, names, strict=True)
        ]
        frame = spark.createDataFrame(rows, "at timestamp, name string, born date, zone string")
        write(frame.coalesce(1), str(path))
    spark.conf.set("spark.sql.session.timeZone", ZONES[0])
    assert DeltaTable(path).snapshot().num_files == len(TIMES) * len(ZONES)
    return str(path)


@pytest.mark.deep
def test_files_are_skipped(spark: SparkSession, table: str) -> None:
    snapshot = DeltaTable(table).snapshot()
    generated, schema = generated_partitions(spark, snapshot), frame_schema(snapshot.schema)
    for condition, expected in CONDITIONS.items():
        pruning = pruning_expression(spark, schema, condition, generated=generated)
        kept = snapshot.files(columns=["path"], predicate=pruning).num_rows
        assert kept == len(ZONES) * expected, condition
    found = rows_of_each([read_snapshot(spark, table, predicate=c) for c in CONDITIONS])
    # Each row with what Spark makes of each condition: so no file is skipped.
    results = {f"condition{number}": condition for number, condition in enumerate(CONDITIONS)}
    told = [F.expr(condition).alias(name) for name, condition in results.items()]
    every = rows_of(read_snapshot(spark, table).select("*", *told))
    met = [{name for name in results if row.pop(name)} for row in every]
    for (name, condition), rows in zip(results.items(), found, strict=True):
        wanted = [row for row, names in zip(every, met, strict=True) if name in names]
        assert bag(rows) == bag(wanted), condition


def test_overwrites_and_deletions_look_into_these_files_alone(
    spark: SparkSession, tmp_path: Path
) -> None:
    day = StructField("day", DATE, metadata={"delta.generationExpression": "CAST(at AS DATE)"})
    schema = StructType((StructField("at", TIMESTAMP), day))
    properties = {"delta.dataSkippingNumIndexedCols": "0"}
    DeltaTable.create(str(tmp_path), schema, partition_by=["day"], properties=properties)
    rows = spark.createDataFrame([(at,) for at in TIMES], "at timestamp")
    write(rows, str(tmp_path))
    for path in tmp_path.rglob("day=2024-1*/*.parquet"):
        # Whoever looks into them fails.
        path.unlink()
    new = spark.createDataFrame([(TIMES[-2],)], "at timestamp")
    overwritten = write(new, str(tmp_path), "overwrite", replace_where="at >= '2026-01-01'")
    assert (overwritten.num_files, overwritten.num_removed_files) == (1, 1)
    assert delete(spark, str(tmp_path), "at < '2000-01-01'").num_deleted_rows == 1
