"""Dates in the hybrid calendar are those that Spark reads, before and after a compaction."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import UnsupportedFeatureError
from airflow_delta.engine.maintenance.optimize import copying
from airflow_delta.spark import read_snapshot
from tests.spark.conftest import bag, rows_of

WRITE = "spark.sql.parquet.datetimeRebaseModeInWrite"
INT96 = "spark.sql.parquet.int96RebaseModeInWrite"
TYPE = "spark.sql.parquet.outputTimestampType"


@pytest.fixture
def legacy(spark: SparkSession) -> Iterator[SparkSession]:
    spark.conf.set(WRITE, "LEGACY")
    spark.conf.set(INT96, "LEGACY")
    yield spark
    for name in (WRITE, INT96, TYPE):
        spark.conf.unset(name)


# Days around each switch of the centuries, and at the change of the calendars.
DAYS = [
    *(dt.date(year, 2, 25) + dt.timedelta(days=n) for year in range(100, 1700, 100) for n in range(9)),
    *(dt.date(1582, 10, 1) + dt.timedelta(days=n) for n in range(20)),
    *(dt.date(1, 1, 1), dt.date(4, 2, 29), dt.date(1970, 1, 1), dt.date(9999, 12, 31)),
]  # fmt: skip


def written(spark: SparkSession, root: Path) -> DeltaTable:
    texts = ", ".join(f"('{day.isoformat()}')" for day in DAYS)
    for part in range(2):
        rows = spark.sql(
            f"SELECT CAST(d AS DATE) AS d, {part} AS part FROM VALUES {texts} AS days(d)"
        )
        rows = rows.selectExpr(
            "d", "part", "timestamp'1950-01-01 00:00:00' AS t", "struct(array(d)) AS s"
        )
        rows.coalesce(1).write.mode("append").parquet(str(root))
    DeltaTable.convert(str(root))
    return DeltaTable(str(root))


@pytest.mark.parametrize("copies", [False, True], ids=["rewritten", "copied"])
def test_dates_are_those_that_spark_reads(
    legacy: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copies: bool
) -> None:
    legacy.conf.set(TYPE, "TIMESTAMP_MICROS")
    if copies:
        monkeypatch.setattr(copying, "_TINY", 1)
    table = written(legacy, tmp_path)
    before = bag(rows_of(read_snapshot(legacy, str(tmp_path))))
    assert bag(table.snapshot().to_arrow().to_pylist()) == before
    assert {row["d"] for row in table.snapshot().to_arrow().to_pylist()} >= {*DAYS[:9]}
    assert table.optimize(max_file_size=1 << 20).num_copied == copies
    assert bag(table.snapshot().to_arrow().to_pylist()) == before
    assert bag(rows_of(read_snapshot(legacy, str(tmp_path)))) == before
    for text in ("d = '1000-03-01'", "d < '1582-10-05'", "d IN ('0001-01-01', '1582-10-15')"):
        expected = bag(rows_of(read_snapshot(legacy, str(tmp_path)).where(text)))
        assert expected
        assert bag(rows_of(read_snapshot(legacy, str(tmp_path), predicate=text))) == expected
        assert bag(table.snapshot().to_arrow(predicate=text).to_pylist()) == expected


@pytest.mark.parametrize("type_", ["TIMESTAMP_MICROS", "TIMESTAMP_MILLIS", "INT96"])
def test_times_from_1900_on_are_read_and_older_ones_refused(
    legacy: SparkSession, tmp_path: Path, type_: str
) -> None:
    legacy.conf.set(TYPE, type_)
    texts = {"new": "1900-01-01T00:00:00Z", "old": "1899-12-31T23:59:59Z"}
    for name, text in texts.items():
        rows = legacy.sql(f"SELECT CAST('{text}' AS TIMESTAMP) AS t")
        rows.coalesce(1).write.parquet(str(tmp_path / name))
        DeltaTable.convert(str(tmp_path / name))
    found = DeltaTable(str(tmp_path / "new")).snapshot().to_arrow().to_pylist()
    assert bag(found) == bag(rows_of(read_snapshot(legacy, str(tmp_path / "new"))))
    with pytest.raises(UnsupportedFeatureError, match="column 't' has a time before 1900"):
        DeltaTable(str(tmp_path / "old")).snapshot().to_arrow()
