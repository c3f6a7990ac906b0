"""Each kind of checkpoint that we write, read by deltalake and by pyarrow, statistics included.

What deltalake makes of the commits alone is compared with what it makes of the checkpoint alone: of the log
only that and the commit of its version are left.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_delta.engine import AddFile, DeltaTable, RemoveFile
from airflow_delta.engine.checkpoint.read import open_checkpoint
from airflow_delta.engine.log.listing import list_log
from airflow_delta.engine.maintenance.checkpoint.plan import Kind
from airflow_delta.engine.model.actions import Protocol
from tests.faults.maintenance_jobs import rely_on, small_files
from tests.log_builder import write_commit

LAST = 5
KINDS: dict[str, list[tuple[int, Kind]]] = {
    "classic": [(5, "classic")],
    "classic, from the previous one": [(3, "classic"), (4, "classic"), (5, "classic")],
    "classic, after one of v2": [(4, "v2"), (5, "classic")],
    "v2": [(3, "classic"), (5, "v2")],
    "v2 of the classic name": [(5, "v2")],
    "v2, from the previous one": [(3, "v2"), (4, "v2"), (5, "v2")],
}
STATISTICS = {
    "texts": {},
    "typed": {
        "delta.checkpoint.writeStatsAsJson": "false",
        "delta.checkpoint.writeStatsAsStruct": "true",
    },
    "both": {"delta.checkpoint.writeStatsAsStruct": "true"},
}


def rows(first: int, end: int) -> pa.Table:
    numbers = range(first, end)
    moments = [datetime(2026, 1, 1, 0, 0, n, 123_456, timezone.utc) for n in numbers]
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "part": pa.array(["x", "a b%/ü=", None][n % 3] for n in numbers),
            "price": pa.array([Decimal(n).scaleb(-2) for n in numbers], pa.decimal128(10, 2)),
            "at": pa.array(moments, pa.timestamp("us", "UTC")),
            "name": pa.array(None if n % 4 == 0 else f"row {n}" for n in numbers),
        }
    )


@pytest.fixture(scope="module", params=STATISTICS)
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Commits of deltalake's and of ours, and no checkpoint."""
    root = tmp_path_factory.mktemp("peers") / "table"
    configuration = STATISTICS[request.param]
    for first in (0, 20):
        deltalake.write_deltalake(
            str(root),
            rows(first, first + 20),
            partition_by=["part"],
            mode="append",
            configuration=configuration,
        )
    # No engine of this file adds a feature to a table of other engines.
    known = {"appendOnly", "invariants", "v2Checkpoint"}
    protocol = Protocol(3, 7, frozenset({"v2Checkpoint"}), frozenset(known))
    write_commit(root, 2, {"protocol": protocol.to_json()})
    ours = DeltaTable(str(root))
    for version in range(3, LAST + 1):
        copy_and_remove(ours, root, version)
    return root


def copy_and_remove(table: DeltaTable, root: Path, version: int) -> None:
    """A file more, which has the rows of another one, and one less."""
    files = table.snapshot().files().sort_by("path").to_pylist()
    copied, removed = files[-1], files[version - 3]
    name = f"copy-{version}.parquet"
    shutil.copy(DeltaTable(str(root)).snapshot().file_uris()[-1], root / name)
    transaction = table.transaction("WRITE")
    size = (root / name).stat().st_size
    values = dict(copied["partitionValues"])
    transaction.add_file(
        AddFile(name, values, size, 1_760_000_000_000, data_change=True, stats=copied["stats"])
    )
    transaction.remove_file(RemoveFile(removed["path"], data_change=True))
    assert transaction.commit().version == version


@pytest.fixture(scope="module", params=KINDS)
def checkpointed(
    request: pytest.FixtureRequest, table: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The same table of which only our checkpoint is left."""
    root = Path(shutil.copytree(table, tmp_path_factory.mktemp("checkpointed") / "table"))
    delta = DeltaTable(str(root))
    with small_files():
        for version, policy in KINDS[request.param]:
            result = delta.checkpoint(version, policy=policy)
            assert result.written
    assert (result.plan.version, result.plan.incremental) == (
        LAST,
        request.param.endswith(", from the previous one"),
    )
    rely_on(delta.storage, LAST)
    return root


def actions(root: Path) -> list[dict[str, Any]]:
    """The live files as deltalake sees them, with statistics in columns of their own."""
    found = pa.table(deltalake.DeltaTable(str(root)).get_add_actions(flatten=True))
    return found.select(sorted(found.column_names)).sort_by("path").to_pylist()


def test_deltalake_finds_the_same(table: Path, checkpointed: Path) -> None:
    expected = actions(table)
    assert len(expected) == 6
    assert all(action["min.id"] <= action["max.id"] for action in expected)
    assert actions(checkpointed) == expected
    ours = DeltaTable(str(checkpointed)).snapshot().files().to_pylist()
    assert {add["path"]: add["size"] for add in ours} == {
        add["path"]: add["size_bytes"] for add in expected
    }


def test_deltalake_reads_the_same_rows(table: Path, checkpointed: Path) -> None:
    query = "SELECT id, part, price, name FROM t WHERE id > 5 ORDER BY id, part, name"
    found = []
    for root in (table, checkpointed):
        builder = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(str(root)))
        found.append(pa.table(builder.execute(query)).to_pylist())
    assert found[0] == found[1]
    assert len(found[0]) > 20


def test_pyarrow_finds_what_our_reader_finds(checkpointed: Path) -> None:
    delta = DeltaTable(str(checkpointed))
    snapshot = delta.snapshot()
    found = list(file_actions(checkpointed))
    adds = {add["path"]: add for kind, add in found if kind == "add"}
    ours = {add["path"]: add for add in snapshot.files().to_pylist()}
    assert adds.keys() == ours.keys()
    for path, add in adds.items():
        for name in ("size", "modificationTime", "partitionValues"):
            assert add[name] == ours[path][name]
        told = json.loads(ours[path]["stats"])
        if add.get("stats") is not None:
            assert json.loads(add["stats"]) == told
        if add.get("stats_parsed") is not None:
            typed = add["stats_parsed"]
            assert typed["numRecords"] == told["numRecords"]
            assert typed["minValues"]["id"] == told["minValues"]["id"]
            assert typed["nullCount"] == {"name": None, **told["nullCount"]}
            assert typed["maxValues"]["at"] == datetime.fromisoformat(told["maxValues"]["at"])
        assert {"stats", "stats_parsed"} & {name for name, value in add.items() if value}
    removed = {remove["path"] for kind, remove in found if kind == "remove"}
    assert removed == set(snapshot.tombstones()["path"].to_pylist())
    assert len(removed) == 3


def file_actions(root: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The adds and removes of the one checkpoint, by its names and pyarrow alone."""
    (checkpoint,) = (root / "_delta_log").glob("*.checkpoint*")
    if checkpoint.suffix == ".json":
        lines = [json.loads(line) for line in checkpoint.read_text("utf-8").splitlines()]
    else:
        lines = pq.read_table(checkpoint).to_pylist()
    sidecars = [line["sidecar"]["path"] for line in lines if line.get("sidecar")]
    for sidecar in sidecars:
        lines += pq.read_table(root / "_delta_log" / "_sidecars" / sidecar).to_pylist()
    for line in lines:
        for kind in ("add", "remove"):
            if line.get(kind) is not None:
                yield kind, line[kind]


def test_the_statistics_are_stored_as_the_table_says(
    checkpointed: Path, request: pytest.FixtureRequest
) -> None:
    statistics = request.node.callspec.params["table"]
    stored = {
        name
        for kind, add in file_actions(checkpointed)
        for name in ("stats", "stats_parsed")
        if kind == "add" and add.get(name)
    }
    texts, typed = {"stats"}, {"stats_parsed"}
    assert stored == {"texts": texts, "typed": typed, "both": texts | typed}[statistics]


def test_our_reader_takes_the_one_that_is_left(checkpointed: Path) -> None:
    storage = DeltaTable(str(checkpointed)).storage
    (found,) = list_log(storage).checkpoints
    rows = sum(table.num_rows for table in open_checkpoint(storage, found, table="t").adds())
    assert rows == 6
