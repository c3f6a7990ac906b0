"""Delta Spark, the reference: its checkpoints and ours of one table hold the same rows, and either
engine reads the table by the other's alone.

Checkpoints are read here with pyarrow and json, not with the engine's reader.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, get_args

import pyarrow.parquet as pq
import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.maintenance.checkpoint.plan import Kind
from tests.deep import deep_but_for
from tests.delta_spark.peer import DeltaSpark
from tests.faults.maintenance_jobs import small_files

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


@pytest.fixture(scope="module", params=deep_but_for(_PROPERTIES, "v2"))
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


def without_checkpoints(table: Path, copy: Path) -> Path:
    shutil.copytree(table, copy)
    log = copy / "_delta_log"
    for checkpoint in log.glob("*.checkpoint*"):
        checkpoint.unlink()
    shutil.rmtree(log / "_sidecars", ignore_errors=True)
    (log / "_last_checkpoint").unlink()
    return copy


def rely_on_checkpoint(root: Path, version: int) -> None:
    """Take away all that a checkpoint stands for; the commit of its version is the newest."""
    log = root / "_delta_log"
    for file in log.glob(f"{0:010}*"):
        if not file.name.startswith((f"{version:020}.checkpoint", f"{version:020}.json")):
            file.unlink()


# Which versions get a checkpoint of ours before the last one.
_FORMS = {"whole": [], "from the previous one": [2, 3]}


@pytest.fixture(params=deep_but_for(_FORMS, "from the previous one"))
def ours(request: pytest.FixtureRequest, spark_table: Path, tmp_path: Path) -> Path:
    """The same table with our checkpoints in place of Delta Spark's."""
    versions = _FORMS[request.param]
    root = without_checkpoints(spark_table, tmp_path / "table")
    table = DeltaTable(str(root))
    # Few files share a sidecar, so that there is something to be used again.
    with small_files():
        results = [table.checkpoint(version) for version in [*versions, 4]]
    assert [(result.version, result.written) for result in results] == [
        (version, True) for version in [*versions, 4]
    ]
    if results[-1].kind == "v2":
        assert results[-1].plan.incremental == bool(versions)
        assert results[-1].path.endswith(".json" if versions else "4.checkpoint.parquet")
    return root


def test_our_checkpoint_holds_what_delta_sparks_holds(spark_table: Path, ours: Path) -> None:
    theirs = checkpoint_rows(spark_table / "_delta_log", 4)
    assert min(len(theirs["add"]), len(theirs["remove"])) > 2
    assert checkpoint_rows(ours / "_delta_log", 4) == theirs


_ROWS_OF = "SELECT *, _metadata.row_id AS row_id FROM delta.`{}` ORDER BY id"


@pytest.fixture(scope="module")
def expected(spark_table: Path, delta_spark: DeltaSpark) -> list[dict[str, Any]]:
    """The rows of the table as Delta Spark has written it."""
    rows = delta_spark.sql(_ROWS_OF.format(spark_table))
    assert [row["id"] for row in rows] == [i for i in range(60) if i % 7 and i % 3 != 1]
    return rows


def test_delta_spark_reads_the_table_by_our_checkpoint(
    ours: Path, expected: list[dict[str, Any]], delta_spark: DeltaSpark
) -> None:
    # Its cache of logs knows the path no more than the commits that are gone.
    rely_on_checkpoint(ours, 4)
    assert delta_spark.sql(_ROWS_OF.format(ours)) == expected


def test_delta_spark_writes_on(spark_table: Path, tmp_path: Path, delta_spark: DeltaSpark) -> None:
    root = without_checkpoints(spark_table, tmp_path / "table")
    assert DeltaTable(str(root)).checkpoint().written
    name = f"delta.`{root}`"
    delta_spark.sql(f"DELETE FROM {name} WHERE id < 10")
    delta_spark.sql(f"INSERT INTO {name} {_ROWS.format(first=60, end=63)}")
    (counted,) = delta_spark.sql(f"SELECT count(*) AS rows FROM {name}")
    assert DeltaTable(str(root)).snapshot().num_rows == counted["rows"]


@pytest.mark.parametrize("spark_table", ["v2"], indirect=True)
def test_delta_sparks_checkpoints_of_both_policies_hold_the_same(
    spark_table: Path, tmp_path: Path, delta_spark: DeltaSpark
) -> None:
    """Of the same files: what changes in between is the policy. Ours hold the same once more."""
    log = spark_table / "_delta_log"
    root = Path(shutil.copytree(spark_table, tmp_path / "table"))
    delta_spark.sql(
        f"ALTER TABLE delta.`{root}` SET TBLPROPERTIES "
        "('delta.checkpointPolicy'='classic', 'delta.checkpointInterval'='5')"
    )
    v2, classic = checkpoint_rows(log, 4), checkpoint_rows(root / "_delta_log", 5)
    assert classic.keys() == v2.keys()
    assert {kind for kind in v2 if classic[kind] != v2[kind]} == {"metaData"}
    for policy in get_args(Kind):
        copy = without_checkpoints(root, tmp_path / policy)
        assert DeltaTable(str(copy)).checkpoint(policy=policy).kind == policy
        assert checkpoint_rows(copy / "_delta_log", 5) == classic


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
