"""The change feeds of tables that Delta Spark wrote: as Delta Spark itself tells them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import ChangesNotAvailableError
from airflow_delta.spark import read_changes
from tests.delta_spark.peer import DeltaSpark, DeltaSparkError
from tests.spark.conftest import rows_of, rows_of_each

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = (
    "id BIGINT, name STRING, price DECIMAL(12,2), at TIMESTAMP, wall TIMESTAMP_NTZ, "
    "nested STRUCT<a: INT, b: DOUBLE>, tags ARRAY<STRING>, day DATE"
)
ROWS = (
    "SELECT id, concat('row ', id) AS name, CAST(id * 1.25 AS DECIMAL(12,2)) AS price, "
    "timestamp'2026-01-01T00:00:00.123456Z' + make_interval(0,0,0,0,0,0,id) AS at, "
    "timestamp_ntz'2026-03-08T02:30:00' AS wall, "
    "named_struct('a', CAST(id AS INT), 'b', id / 3) AS nested, "
    "array(CAST(id AS STRING), NULL) AS tags, "
    "date_add(date'2026-01-01', CAST(id % 3 AS INT)) AS day FROM range({first}, {end})"
)
CHANGES = [
    f"INSERT INTO {{0}} {ROWS.format(first=0, end=30)}",
    f"INSERT INTO {{0}} {ROWS.format(first=30, end=40)}",
    "DELETE FROM {0} WHERE id % 7 = 0",
    "UPDATE {0} SET name = 'changed', price = price + 1 WHERE id % 5 = 1",
    "DELETE FROM {0} WHERE day = date'2026-01-02'",
    (
        f"MERGE INTO {{0}} t USING ({ROWS.format(first=35, end=45)}) s ON t.id = s.id "
        "WHEN MATCHED AND s.id % 2 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET t.name = s.name "
        "WHEN NOT MATCHED THEN INSERT *"
    ),
    "OPTIMIZE {0}",
    "RESTORE TABLE {0} TO VERSION AS OF 3",
    "RESTORE TABLE {0} TO VERSION AS OF 2",
    "INSERT OVERWRITE {0} SELECT * FROM {0} WHERE id < 5",
]


def made(peer: DeltaSpark, root: Path, statements: Sequence[str], **properties: str) -> str:
    """A table of the peer's with a change feed: version 0 creates it, then one per statement."""
    table = f"delta.`{root}`"
    told = {"enableChangeDataFeed": "true", **properties}
    texts = ", ".join(f"'delta.{name}'='{value}'" for name, value in told.items())
    peer.sql(
        f"CREATE TABLE {table} ({COLUMNS}) USING delta PARTITIONED BY (day) TBLPROPERTIES ({texts})"
    )
    for statement in statements:
        # What OPTIMIZE gives has no form that the worker could send: it comes as an error.
        with suppress(DeltaSparkError) if statement.startswith("OPTIMIZE") else nullcontext():
            peer.sql(statement.format(table))
    assert DeltaTable(str(root)).latest_version() == len(statements)
    return str(root)


def feed_of_peer(peer: DeltaSpark, root: str, start: int, end: int) -> list[dict[str, Any]]:
    return peer.sql(f"SELECT * FROM table_changes_by_path('{root}', {start}, {end})")


def counted(rows: Sequence[dict[str, Any]]) -> Counter[str]:
    """Rows as a multiset, in the form in which the peer's come."""
    return Counter(json.dumps(row, default=str) for row in rows)


@pytest.mark.deep
def test_deletes_updates_merges_and_restores(
    spark: SparkSession, delta_spark: DeltaSpark, tmp_path: Path
) -> None:
    root = made(delta_spark, tmp_path / "t", CHANGES, enableDeletionVectors="true")
    last = len(CHANGES)
    feed = feed_of_peer(delta_spark, root, 0, last)
    # Ranges with a file's insert and delete, with one of them, and with restores alone.
    ranges = ((0, last), (3, 3), (8, 9))
    found = rows_of_each([read_changes(spark, root, start, end) for start, end in ranges])
    for (start, end), rows in zip(ranges, found, strict=True):
        wanted = [row for row in feed if start <= row["_commit_version"] <= end]
        assert counted(rows) == counted(wanted)


@pytest.mark.deep
@pytest.mark.parametrize("mode", ["name", "id"])
def test_mapped_columns(
    spark: SparkSession, delta_spark: DeltaSpark, tmp_path: Path, mode: str
) -> None:
    root = made(
        delta_spark,
        tmp_path / "t",
        [
            CHANGES[0],
            "ALTER TABLE {0} RENAME COLUMN name TO `na me`",
            "ALTER TABLE {0} RENAME COLUMN nested.a TO b_a",
            "ALTER TABLE {0} RENAME COLUMN day TO `the day`",
            "ALTER TABLE {0} DROP COLUMN price",
            "UPDATE {0} SET nested.b_a = 7 WHERE id % 5 = 1",
            "ALTER TABLE {0} ADD COLUMN (price STRING)",
            "DELETE FROM {0} WHERE id % 7 = 0",
            "RESTORE TABLE {0} TO VERSION AS OF 7",
        ],
        **{"columnMapping.mode": mode, "enableDeletionVectors": "true"},
    )
    wanted = feed_of_peer(delta_spark, root, 6, 9)
    assert {"price", "na me", "the day"} <= wanted[0].keys()
    frame = read_changes(spark, root, 6)
    assert counted(rows_of(frame)) == counted(wanted)
    # Filters on what the files hold, and on what they don't.
    some = [row for row in wanted if row["nested"]["b_a"] == 7 and row["the day"] > "2026-01-01"]
    found = rows_of(frame.where("nested.b_a = 7 AND `the day` > date'2026-01-01'"))
    assert counted(found) == counted(some)
    assert some
    with pytest.raises(ChangesNotAvailableError, match="in version 2 the column name was dropped"):
        read_changes(spark, root, 1, 4)
