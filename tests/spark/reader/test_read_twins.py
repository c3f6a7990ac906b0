"""Tables that Delta Spark writes, read by both at every version: values, row ids, places of rows."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.spark import read_snapshot
from tests.delta_spark.peer import DeltaSpark, DeltaSparkError
from tests.spark.conftest import rows_of, rows_of_each

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Sql = Callable[[str], list[dict[str, Any]]]

PROPERTIES = {
    "delta.enableDeletionVectors": "true",
    "delta.enableRowTracking": "true",
    "delta.enableChangeDataFeed": "true",
    "delta.enableTypeWidening": "true",
}
COLUMNS = (
    "id INT, `a b` STRUCT<x: INT, `y z`: STRING>, l ARRAY<STRUCT<n: SMALLINT>>, "
    "m MAP<STRING, STRUCT<v: INT>>, price DECIMAL(10,2), f FLOAT, d DOUBLE, ok BOOLEAN, raw BINARY, "
    "at TIMESTAMP, wall TIMESTAMP_NTZ, day DATE, p STRING"
)
ROWS = (
    "INSERT INTO T! SELECT CAST(id AS INT), "
    "IF(id % 5 = 0, NULL, named_struct('x', CAST(id AS INT), 'y z', concat('é', id))), "
    "array(named_struct('n', CAST(id AS SMALLINT)), NULL), "
    "map('k', named_struct('v', CAST(id AS INT))), CAST(id AS DECIMAL(10,2)) / 4, "
    "IF(id = 7, CAST('NaN' AS FLOAT), CAST(id AS FLOAT) / 3), id / 7, id % 2 = 0, "
    "CAST(concat('b', id) AS BINARY), "
    "timestamp'2026-03-08T06:59:59.123456Z' + make_interval(0,0,0,0,0,0,id), "
    "timestamp_ntz'1900-01-01 00:00:00.5' + make_interval(0,0,0,id), "
    "date_add(date'1969-12-30', CAST(id % 2 AS INT)), "
    "CASE id % 3 WHEN 0 THEN NULL WHEN 1 THEN 'a%20=b/c' ELSE 'é' END FROM range({first}, {end}, 1, 1)"
)
MERGE = (
    "MERGE INTO T! USING (SELECT explode(array(1, 2, 100)) AS k) ON id = k "
    "WHEN MATCHED AND k = 1 THEN DELETE WHEN MATCHED THEN UPDATE SET ok = NULL "
    "WHEN NOT MATCHED THEN INSERT (id, p) VALUES (k, 'x')"
)
DATA = [
    ROWS.format(first=0, end=20),
    ROWS.format(first=20, end=30),
    "DELETE FROM T! WHERE id % 7 = 3",
    "UPDATE T! SET d = -d, price = NULL WHERE id BETWEEN 12 AND 22",
    MERGE,
]
COLUMN_CHANGES = [
    "ALTER TABLE T! RENAME COLUMN `a b` TO ab",
    "ALTER TABLE T! DROP COLUMN f",
    "ALTER TABLE T! ADD COLUMN f STRING",
]
MORE_CHANGES = [
    "ALTER TABLE T! RENAME COLUMN l.element.n TO number",
    "ALTER TABLE T! CHANGE COLUMN id TYPE BIGINT",
    "ALTER TABLE T! CHANGE COLUMN ab.x TYPE BIGINT",
    "ALTER TABLE T! CHANGE COLUMN price TYPE DECIMAL(14,3)",
]
NEW_ROW = (
    "INSERT INTO T! (id, ab, f, p) "
    "VALUES (5000000000, named_struct('x', 5000000000, 'y z', 'w'), 'new', 'é')"
)
# Rows, vectors and names of before, and another delete on top.
RESTORED = ["RESTORE TABLE T! TO VERSION AS OF 4", "DELETE FROM T! WHERE id % 7 = 5"]
STEPS = {
    "name": [*DATA, *COLUMN_CHANGES, "OPTIMIZE T!", *RESTORED],
    "id": [DATA[0], MERGE, *COLUMN_CHANGES, *MORE_CHANGES, NEW_ROW],
}
ROW_IDS = "_metadata.row_id AS _row_id, _metadata.row_commit_version AS _row_commit_version"


@pytest.mark.deep
@pytest.mark.parametrize("mode", STEPS)
def test_every_version_reads_as_by_delta_spark(
    spark: SparkSession, delta_spark: DeltaSpark, tmp_path: Path, mode: str
) -> None:
    sql = statements(delta_spark, tmp_path / "t")
    layout = "PARTITIONED BY (p)" if mode == "name" else ""
    told = {**PROPERTIES, "delta.columnMapping.mode": mode}
    sql(f"CREATE TABLE T! ({COLUMNS}) USING delta {layout} TBLPROPERTIES ({properties(told)})")
    table = str(tmp_path / "t")
    for number, step in enumerate(STEPS[mode], 1):
        try:
            sql(step)
        except DeltaSparkError as error:
            # What an OPTIMIZE answers, Arrow doesn't take; it is done all the same.
            assert "view array" in str(error)  # noqa: PT017
        assert DeltaTable(table).latest_version(number - 1) >= number
    for versions in by_schema(DeltaTable(table)):
        ours = rows_of_each(
            [read_snapshot(spark, table, version, with_row_tracking=True) for version in versions]
        )
        theirs = delta_spark.sql_of_each(
            [f"SELECT *, {ROW_IDS} FROM delta.`{table}` VERSION AS OF {v}" for v in versions]
        )
        for version, rows, expected in zip(versions, ours, theirs, strict=True):
            assert texts(rows) == texts(expected), version


def by_schema(table: DeltaTable) -> list[list[int]]:
    """The versions, those of the same columns together."""
    found: dict[str, list[int]] = {}
    for version in range(table.latest_version() + 1):
        schema = table.snapshot(version).metadata.schema_string
        found.setdefault(str(schema), []).append(version)
    return [*found.values()]


def test_places_of_rows_are_those_of_delta_spark(
    spark: SparkSession, delta_spark: DeltaSpark, tmp_path: Path
) -> None:
    sql = statements(delta_spark, tmp_path / "a b%41")
    told = {"delta.enableDeletionVectors": "true"}
    sql(f"CREATE TABLE T! (id BIGINT) USING delta TBLPROPERTIES ({properties(told)})")
    sql("INSERT INTO T! SELECT id FROM range(0, 20, 1, 2)")
    sql("DELETE FROM T! WHERE id IN (3, 12)")
    names = {
        "_file_path": "file_path",
        "_file_size": "file_size",
        "_file_modification_time": "file_modification_time",
        "_row_index": "row_index",
    }
    table = str(tmp_path / "a b%41")
    ours = rows_of(read_snapshot(spark, table, metadata_columns=[*names, "_snapshot_version"]))
    assert {row.pop("_snapshot_version") for row in ours} == {DeltaTable(table).latest_version()}
    chosen = ", ".join(f"_metadata.{theirs} AS {name}" for name, theirs in names.items())
    theirs = sql(f"SELECT id, {chosen} FROM T!")
    for row in theirs:
        row["_file_path"] = row["_file_path"].replace("file:///", "file:/")
    assert texts(ours) == texts(theirs)
    assert len(ours) == 18


def statements(peer: DeltaSpark, table: Path) -> Sql:
    return lambda statement: peer.sql(statement.replace("T!", f"delta.`{table}`"))


def properties(told: dict[str, str]) -> str:
    return ", ".join(f"'{name}'='{value}'" for name, value in told.items())


def texts(rows: list[dict[str, Any]]) -> list[str]:
    """Rows in a form that compares, whatever the zone of a session: the peer's have been JSON already."""
    return sorted(json.dumps(row, default=_text, sort_keys=True) for row in rows)


def _text(value: object) -> str:
    if isinstance(value, dt.datetime) and value.tzinfo:
        return str(value.astimezone(dt.timezone.utc))
    return str(value)
