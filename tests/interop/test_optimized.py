"""Tables that the engine optimizes, read by the peers: the same rows, the same row ids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from airflow_delta.engine import DeltaTable
from tests.deep import deep_but_for
from tests.delta_spark.peer import DeltaSpark
from tests.row_tables import bag

COLUMNS = (
    "id INT, s STRUCT<x: INT, y: STRING>, l ARRAY<STRUCT<n: SMALLINT>>, m MAP<STRING, INT>, "
    "price DECIMAL(10,2), wide DECIMAL(30,4), f FLOAT, d DOUBLE, ok BOOLEAN, raw BINARY, "
    "at TIMESTAMP, wall TIMESTAMP_NTZ, day DATE, tiny TINYINT, p STRING"
)
ROWS = (
    "INSERT INTO T! SELECT CAST(id AS INT), "
    "IF(id % 5 = 0, NULL, named_struct('x', CAST(id AS INT), 'y', concat('é', id))), "
    "array(named_struct('n', CAST(id AS SMALLINT)), NULL), map('k', CAST(id AS INT)), "
    "CAST(id AS DECIMAL(10,2)) / 4, CAST(id AS DECIMAL(30,4)) / 3, "
    "IF(id = 7, CAST('NaN' AS FLOAT), CAST(id AS FLOAT) / 3), id / 7, id % 2 = 0, "
    "CAST(concat('b', id) AS BINARY), "
    "timestamp'2026-03-08T06:59:59.123456Z' + make_interval(0,0,0,0,0,0,id), "
    "timestamp_ntz'1900-01-01 00:00:00.5' + make_interval(0,0,0,id), "
    "date_add(date'1969-12-30', CAST(id % 9 AS INT)), CAST(id AS TINYINT), "
    "CASE id % 3 WHEN 0 THEN NULL WHEN 1 THEN 'a%20=b/c' ELSE 'é' END FROM range({0}, {1}, 1, 2)"
)
STEPS = [
    ROWS.format(0, 20),
    ROWS.format(20, 30),
    "DELETE FROM T! WHERE id % 7 = 3",
    "UPDATE T! SET d = -d, price = NULL WHERE id BETWEEN 12 AND 22",
    "ALTER TABLE T! CHANGE COLUMN id TYPE BIGINT",
    "ALTER TABLE T! ADD COLUMN more STRING",
    "INSERT INTO T! (id, more, p) VALUES (5000000000, 'new', 'é')",
]
PROPERTIES = {
    "delta.enableDeletionVectors": "true",
    "delta.enableRowTracking": "true",
    "delta.enableTypeWidening": "true",
}
IDS = "_metadata.row_id AS _row_id, _metadata.row_commit_version AS _row_commit_version"
MODES = ("none", "name", "id")


@pytest.mark.parametrize("mode", deep_but_for(MODES, "name"))
def test_delta_spark_reads_what_we_have_optimized(
    delta_spark: DeltaSpark, tmp_path: Path, mode: str
) -> None:
    root = tmp_path / "t"

    def sql(statement: str) -> list[dict[str, Any]]:
        return delta_spark.sql(statement.replace("T!", f"delta.`{root}`"))

    told = {**PROPERTIES, "delta.columnMapping.mode": mode}
    properties = ", ".join(f"'{name}'='{value}'" for name, value in told.items())
    layout = "PARTITIONED BY (p)" if mode != "id" else ""
    sql(f"CREATE TABLE T! ({COLUMNS}) USING delta {layout} TBLPROPERTIES ({properties})")
    for step in STEPS:
        sql(step)
    before = sql(f"SELECT *, {IDS} FROM T!")
    table = DeltaTable(str(root))
    done = table.optimize()
    assert done.num_removed > done.num_added > 0
    assert bag(sql(f"SELECT *, {IDS} FROM T!")) == bag(before)
    ours = table.snapshot().to_arrow(with_row_tracking=True)
    assert ours.num_rows == len(before)
    # It skips files by our statistics, and changes our files.
    assert len(sql("SELECT id FROM T! WHERE id >= 20 AND day < date'1970-01-03'")) == len(
        [r for r in before if r["id"] >= 20 and r["day"] and str(r["day"]) < "1970-01-03"]
    )
    sql("DELETE FROM T! WHERE id = 1")
    sql("INSERT INTO T! (id, more, p) SELECT id, 'newer', 'é' FROM range(30, 40)")
    rows = sql(f"SELECT *, {IDS} FROM T!")
    assert table.optimize(max_deleted_ratio=0).num_added > 0
    assert bag(sql(f"SELECT *, {IDS} FROM T!")) == bag(rows)


@pytest.mark.parametrize("partition_by", [[], ["p"]])
def test_deltalake_reads_what_we_have_optimized(tmp_path: Path, partition_by: list[str]) -> None:
    for number in range(4):
        rows = pa.table(
            {
                "id": pa.array(range(number * 10, number * 10 + 10), pa.int64()),
                "p": ["a", "b"] * 5,
                "x": [None, 0.5] * 5,
                "l": [[number], None] * 5,
            }
        )
        deltalake.write_deltalake(
            str(tmp_path), rows, mode="append", partition_by=partition_by or None
        )
    before = deltalake.DeltaTable(str(tmp_path)).to_pyarrow_table()
    done = DeltaTable(str(tmp_path)).optimize()
    assert done.num_added == (2 if partition_by else 1)
    peer = deltalake.DeltaTable(str(tmp_path))
    assert bag(peer.to_pyarrow_table().to_pylist()) == bag(before.to_pylist())
    assert peer.to_pyarrow_table(filters=[("id", ">", 35)]).num_rows == 4
    # The peer finds nothing more to do, and its own compaction leaves us nothing to do.
    assert peer.optimize.compact()["numFilesAdded"] == 0
