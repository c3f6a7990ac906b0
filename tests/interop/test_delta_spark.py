"""Delta Spark, the reference: its checkpoints and ours of one table hold the same rows, and either
engine reads the table by the other's alone.

Checkpoints are read here with pyarrow and json, not with the engine's reader.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from airflow_delta.engine import DeltaTable
from tests.delta_spark.peer import DeltaSpark

_PROPERTIES = {
    "classic": {"delta.checkpointPolicy": "classic"},
    "v2": {"delta.checkpointPolicy": "v2"},
    "typed statistics": {
        "delta.checkpointPolicy": "classic",
        "delta.checkpoint.writeStatsAsStruct": "true",
        "delta.checkpoint.writeStatsAsJson": "true",
    },
}
_COLUMNS = (
    "id BIGINT, name STRING, price DECIMAL(12,2), at TIMESTAMP, nested STRUCT<a: INT, b: DOUBLE>, "
    "day DATE"
)
_ROWS = (
    "SELECT id, concat('row ', id) AS name, CAST(id * 1.25 AS DECIMAL(12,2)) AS price, "
    "timestamp'2026-01-01T00:00:00.123456Z' + make_interval(0,0,0,0,0,0,id) AS at, "
    "named_struct('a', CAST(id AS INT), 'b', id / 3) AS nested, "
    "date_add(date'2026-01-01', CAST(id % 3 AS INT)) AS day FROM range({first}, {end})"
)


@pytest.fixture(scope="module", params=_PROPERTIES)
def spark_table(
    request: pytest.FixtureRequest,
    delta_spark: DeltaSpark,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """A table of Delta Spark's: appends, deletion vectors, removed files; a checkpoint at its end."""
    root = tmp_path_factory.mktemp("spark") / "table"
    properties = {
        **_PROPERTIES[request.param],
        "delta.enableDeletionVectors": "true",
        "delta.enableRowTracking": "true",
        "delta.checkpointInterval": "4",
    }
    told = ", ".join(f"'{name}'='{value}'" for name, value in properties.items())
    name = f"delta.`{root}`"
    delta_spark.sql(
        f"CREATE TABLE {name} ({_COLUMNS}) USING delta PARTITIONED BY (day) TBLPROPERTIES ({told})"
    )
    delta_spark.sql(f"INSERT INTO {name} {_ROWS.format(first=0, end=30)}")
    delta_spark.sql(f"INSERT INTO {name} {_ROWS.format(first=30, end=60)}")
    delta_spark.sql(f"DELETE FROM {name} WHERE id % 7 = 0")
    delta_spark.sql(f"DELETE FROM {name} WHERE day = date'2026-01-02'")
    return root


def checkpoint_rows(log: Path, version: int) -> dict[str, list[dict[str, Any]]]:
    """What the one checkpoint of a version holds, by kind of action, in a form that compares."""
    (top,) = log.glob(f"{version:020}.checkpoint*")
    if top.suffix == ".json":
        lines = [json.loads(line) for line in top.read_text(encoding="utf-8").splitlines()]
    else:
        lines = pq.read_table(top).to_pylist()
    sidecars = [line["sidecar"]["path"] for line in lines if line.get("sidecar")]
    for sidecar in sidecars:
        lines += pq.read_table(log / "_sidecars" / sidecar).to_pylist()
    found: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        for kind, action in line.items():
            if action is not None and kind not in {"sidecar", "checkpointMetadata"}:
                found.setdefault(kind, []).append(comparable(kind, action))
    return {kind: sorted(actions, key=repr) for kind, actions in found.items()}


def comparable(kind: str, action: dict[str, Any]) -> dict[str, Any]:
    """An action without what engines are free in: order, nulls, the text of statistics."""
    fields = dict(action)
    if fields.get("stats") is not None:
        fields["stats"] = json.loads(fields["stats"])
    if kind == "protocol":
        fields = {name: sorted(v) if isinstance(v, list) else v for name, v in fields.items()}
    fields.pop("stats_parsed", None)  # has a test of its own
    fields.pop("partitionValues_parsed", None)
    return {
        name: plain(value) for name, value in sorted(fields.items()) if plain(value) is not None
    }


def plain(value: Any) -> Any:
    """Maps of Parquet as those of JSON; null and empty ones left out."""
    if isinstance(value, list) and all(isinstance(item, tuple) for item in value):
        value = dict(value)
    if isinstance(value, dict):
        items = {name: plain(item) for name, item in sorted(value.items())}
        value = {name: item for name, item in items.items() if item is not None}
    return None if value in ([], {}) else value


@pytest.fixture
def ours(spark_table: Path, tmp_path: Path) -> Path:
    """The same table with our checkpoint in place of Delta Spark's, and no commit before it."""
    root = tmp_path / "table"
    shutil.copytree(spark_table, root)
    log = root / "_delta_log"
    for checkpoint in log.glob("*.checkpoint*"):
        checkpoint.unlink()
    shutil.rmtree(log / "_sidecars", ignore_errors=True)
    (log / "_last_checkpoint").unlink()
    result = DeltaTable(str(root)).checkpoint()
    assert (result.version, result.written) == (4, True)
    return root


def test_our_checkpoint_holds_what_delta_sparks_holds(spark_table: Path, ours: Path) -> None:
    theirs = checkpoint_rows(spark_table / "_delta_log", 4)
    assert min(len(theirs["add"]), len(theirs["remove"])) > 2
    assert checkpoint_rows(ours / "_delta_log", 4) == theirs


def test_delta_spark_reads_the_table_by_our_checkpoint(
    spark_table: Path, ours: Path, delta_spark: DeltaSpark
) -> None:
    query = "SELECT *, _metadata.row_id AS row_id FROM delta.`{}` ORDER BY id"
    expected = delta_spark.sql(query.format(spark_table))
    # Its cache of logs knows the path no more than the commits that are gone.
    for file in [*(ours / "_delta_log").glob("*.json"), *(ours / "_delta_log").glob("*.crc")]:
        if file.name != f"{4:020}.json" and ".checkpoint." not in file.name:
            file.unlink()
    assert delta_spark.sql(query.format(ours)) == expected
    assert [row["id"] for row in expected] == [i for i in range(60) if i % 7 and i % 3 != 1]


def test_delta_spark_writes_on(ours: Path, delta_spark: DeltaSpark) -> None:
    name = f"delta.`{ours}`"
    delta_spark.sql(f"DELETE FROM {name} WHERE id < 10")
    delta_spark.sql(f"INSERT INTO {name} {_ROWS.format(first=60, end=63)}")
    (counted,) = delta_spark.sql(f"SELECT count(*) AS rows FROM {name}")
    assert DeltaTable(str(ours)).snapshot().num_rows == counted["rows"]


def test_we_read_the_table_by_delta_sparks_checkpoint(spark_table: Path, tmp_path: Path) -> None:
    by_commits, by_checkpoint = tmp_path / "commits", tmp_path / "checkpoint"
    for root in (by_commits, by_checkpoint):
        shutil.copytree(spark_table, root)
    for file in (by_commits / "_delta_log").glob("*checkpoint*"):
        file.unlink()
    for version in range(4):
        (by_checkpoint / "_delta_log" / f"{version:020}.json").unlink()
    states = [
        (snapshot.files().sort_by("path").to_pylist(), snapshot.tombstones().num_rows)
        for snapshot in (DeltaTable(str(root)).snapshot() for root in (by_commits, by_checkpoint))
    ]
    for adds, _ in states:
        for add in adds:
            add["stats"] = json.loads(add["stats"])
            add["dataChange"] = None  # checkpoints don't keep it
    assert states[0] == states[1]
