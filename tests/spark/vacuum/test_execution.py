"""Vacuums by Spark: what the engine plans for the same table, whatever of it lies in which partition."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.commit.registry import CommitOwners
from airflow_delta.engine.errors import (
    CorruptLogError,
    InvalidArgumentError,
    RetentionError,
    UnsupportedFeatureError,
)
from airflow_delta.engine.maintenance.vacuum.inventory import select_inventory_files
from airflow_delta.engine.maintenance.vacuum.last_vacuum import read_last_vacuum, write_last_vacuum
from airflow_delta.engine.maintenance.vacuum.plan import VacuumPlan, plan_vacuum
from airflow_delta.engine.storage.location import open_storage
from airflow_delta.spark.vacuum import execution as vacuuming
from airflow_delta.spark.vacuum.execution import vacuum
from airflow_delta.spark.vacuum.inventory import inventory_batches
from tests.log_builder import PROTOCOL, add, commit_path, metadata, remove, write_commit
from tests.object_stores import new_place
from tests.vacuum_world import DAY_MS, NOW_MS, random_world

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("compiled")


@pytest.fixture(autouse=True)
def small_parts_in_another_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several partitions for few files, and the time of the tables."""
    monkeypatch.setattr(vacuuming, "_PARTITION_FILES", 12)
    monkeypatch.setattr(vacuuming.clock, "now_ms", lambda: NOW_MS)


def told(plan: VacuumPlan) -> dict[str, Any]:
    """All that a plan says, the files in one order."""
    names = [name for name in VacuumPlan.__slots__ if name != "files"]
    rows = sorted(plan.files.to_pylist(), key=lambda row: row["path"])
    return {"files": rows, **{name: getattr(plan, name) for name in names}}


def test_the_plan_is_the_engines_and_is_done(spark: SparkSession, tmp_path: Path) -> None:
    world = random_world(str(tmp_path / "t"), 3)
    world.lay_out()
    table = DeltaTable(world.root)
    wanted = plan_vacuum(table.storage, CommitOwners(), now_ms=NOW_MS)
    result = vacuum(spark, world.root)
    assert told(result.plan) == told(wanted)
    assert result.num_deleted == wanted.total.num_files == 19
    there = {info.path for info in table.storage.walk("") if "_delta_log" not in info.path[:10]}
    assert there == world.disk.keys() - set(wanted.files["path"].to_pylist())
    assert read_last_vacuum(table.storage) == wanted.vacuumed


@pytest.mark.parametrize(
    ("removed_ms", "written_ms", "vacuumed"), [(1, 1, 2), (NOW_MS, 1, 1), (1, NOW_MS, 1)]
)
def test_a_commit_whose_removed_file_stays_is_not_noted(
    spark: SparkSession, tmp_path: Path, removed_ms: int, written_ms: int, vacuumed: int
) -> None:
    removed = {"a": 1, "b": removed_ms}
    write_commit(tmp_path, 0, PROTOCOL, metadata(), *map(add, removed), modified_ms=1)
    for version, (name, time_ms) in enumerate(removed.items(), start=1):
        action = remove(name, deletionTimestamp=time_ms)
        write_commit(tmp_path, version, action, modified_ms=version)
        (tmp_path / name).touch()
        os.utime(tmp_path / name, ns=(10**6, written_ms * 10**6 if name == "b" else 10**6))
    plans = (
        vacuum(spark, str(tmp_path), dry_run=True).plan,
        plan_vacuum(DeltaTable(tmp_path).storage, CommitOwners(), now_ms=NOW_MS),
    )
    assert told(plans[0]) == told(plans[1])
    assert plans[0].vacuumed == vacuumed


OLD_MS = NOW_MS - 30 * DAY_MS
CHANGE = {"path": "_change_data/c", "partitionValues": {}, "size": 1, "dataChange": False}


def expired_table(root: Path, *, young: str) -> None:
    """A table whose commits are all old; all of its files are too, except one that was copied later."""
    names = ["a", "b", "c", "d"]
    removes = [remove(name, deletionTimestamp=OLD_MS) for name in names]
    commits = [[PROTOCOL, metadata(), *map(add, names)], *([action] for action in removes)]
    commits[3].append({"cdc": CHANGE})
    for version, actions in enumerate(commits):
        write_commit(root, version, *actions, modified_ms=OLD_MS + version * DAY_MS)
    for path in (*names, CHANGE["path"], "unknown"):
        file, time_ms = root / path, NOW_MS - DAY_MS if path == young else OLD_MS
        file.parent.mkdir(exist_ok=True)
        file.touch()
        os.utime(file, ns=(time_ms * 10**6, time_ms * 10**6))


@pytest.mark.parametrize(
    ("young", "kind", "vacuumed"),
    [
        ("_change_data/c", "whole", 2),
        ("d", "whole", 3),
        ("unknown", "whole", 4),
        # No version before the checkpoint of version 3 can be rebuilt, but the commits 1 to 3 exist.
        ("a", "begun", 0),
        ("c", "begun", 2),
        ("_change_data/c", "begun", 2),
        ("unknown", "begun", 4),
        # A checkpoint covers the damaged commit 2.
        ("unknown", "damaged", None),
        # Version 2 has been recorded before, rightly or not.
        ("a", "recorded", 4),
        ("c", "recorded", None),
    ],
)
def test_the_same_version_is_noted_as_by_the_engine(
    spark: SparkSession, tmp_path: Path, young: str, kind: str, vacuumed: int | None
) -> None:
    expired_table(tmp_path, young=young)
    table = DeltaTable(tmp_path)
    if kind in ("begun", "damaged"):
        table.checkpoint(3)
        commit_path(tmp_path, 0).unlink()
    if kind == "damaged":
        commit_path(tmp_path, 2).write_text("{")
    if kind == "recorded":
        write_last_vacuum(table.storage, 2)
    wanted = plan_vacuum(table.storage, CommitOwners(), now_ms=NOW_MS)
    found = vacuum(spark, str(tmp_path)).plan
    assert told(found) == told(wanted)
    assert found.vacuumed == vacuumed
    assert (tmp_path / young).exists()
    if kind == "whole" and vacuumed is not None and young != "unknown":
        later = plan_vacuum(table.storage, CommitOwners(), mode="lite", now_ms=NOW_MS + 30 * DAY_MS)
        assert young in later.files["path"].to_pylist()


def test_longer_than_checkpoints_remember_by_an_inventory(
    spark: SparkSession, tmp_path: Path
) -> None:
    world = random_world(str(tmp_path / "t"), 40)
    world.lay_out()
    table = DeltaTable(world.root)
    table.checkpoint(len(world.history) - 2)
    rows = [(path, size, False, time) for path, (size, time) in world.disk.items()]
    inventory = spark.createDataFrame(
        [*rows, *rows[:3], ("part=x", None, True, 0), ("s3://other/t/f", 1, False, NOW_MS)],
        "path STRING, length INT, isDir BOOLEAN, modificationTime LONG",
    )
    names = ("path", "length", "isDir", "modificationTime")
    listed = pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows])
    wanted = plan_vacuum(
        table.storage, CommitOwners(), now_ms=NOW_MS, retention_hours=480, inventory=listed
    )
    options: dict[str, Any] = {"retention_hours": 480, "dry_run": True}
    found = vacuum(spark, world.root, inventory=inventory, **options)
    assert told(found.plan) == told(wanted)
    assert (wanted.oldest_restorable, wanted.total.num_files) == (4, 4)
    assert {info.path for info in table.storage.walk("")} >= world.disk.keys()


def test_in_an_object_store(spark: SparkSession, tmp_path: Path) -> None:
    uri, options = new_place("s3", tmp_path)
    write_commit(tmp_path / "t", 0, PROTOCOL, metadata(), add("part=x/a%20b"))
    storage = open_storage(f"{uri}/t", options)
    log = "_delta_log/00000000000000000000.json"
    storage.create(log, (tmp_path / "t" / log).read_bytes())
    for path in ("part=x/a b", "part=x/orphan", "new/y=1/orphan", "orphan", "_hidden/a"):
        storage.create(path, b"x")
    # What some programs make for directories; it isn't there by the name that clients give it.
    storage.create("part=x", b"")
    result = vacuum(spark, f"{uri}/t", storage_options=options)
    wanted = ["new/y=1/orphan", "orphan", "part=x/orphan"]
    assert sorted(result.plan.files["path"].to_pylist()) == wanted
    left = {info.path for info in storage.walk("") if not info.path.startswith("_delta_log/")}
    assert left == {"part=x", "part=x/a b", "_hidden/a"}


def test_what_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "t"
    write_commit(root, 0, PROTOCOL, metadata(), add("a"), modified_ms=NOW_MS - 9 * DAY_MS)
    with pytest.raises(RetentionError, match="the requested retention is 1 hour"):
        vacuum(spark, str(root), retention_hours=1)
    with pytest.raises(InvalidArgumentError, match="memory of this process"):
        vacuum(spark, "memory://t")
    pq.write_table(pa.table({"path": ["a"], "length": [1], "isDir": [False]}), tmp_path / "i")
    with pytest.raises(InvalidArgumentError, match="lacks the column modificationTime"):
        vacuum(spark, str(root), inventory=str(tmp_path / "i"))
    rows = spark.createDataFrame(
        [("a", "1", False, 1)], "path STRING, length STRING, isDir BOOLEAN, modificationTime LONG"
    )
    with pytest.raises(InvalidArgumentError, match=r"column length .* has the type string"):
        vacuum(spark, str(root), inventory=rows)
    # Found out by an executor, whose error the driver raises.
    write_commit(root, 1, add("%zz"), modified_ms=NOW_MS)
    with pytest.raises(CorruptLogError, match="%zz"):
        vacuum(spark, str(root))
    write_commit(root, 2, {"protocol": {**PROTOCOL["protocol"], "minWriterVersion": 8}})
    with pytest.raises(UnsupportedFeatureError, match="writer version 8"):
        vacuum(spark, str(root))


def test_times_of_an_inventory_are_those_of_the_engine(spark: SparkSession, tmp_path: Path) -> None:
    made = spark.sql(
        "SELECT 'a' AS path, 1L AS length, false AS isDir, "
        "timestamp_millis(1234567890123) AS modificationTime"
    )
    naive = made.withColumn("modificationTime", made.modificationTime.cast("timestamp_ntz"))
    for rows in (made, naive):
        (batch,) = inventory_batches(rows, root=str(tmp_path), now_ms=NOW_MS).collect()
        found = vacuuming._files(batch)
        expected = select_inventory_files(rows.toArrow(), root=str(tmp_path))
        assert found.to_pylist() == expected.to_pylist()


@pytest.mark.parametrize("is_listed", [True, False])
def test_live_files_of_a_table_inside_stay(
    spark: SparkSession, tmp_path: Path, is_listed: bool
) -> None:
    """Its log is a link, and no inventory has it."""
    old_ms = NOW_MS - 30 * DAY_MS
    write_commit(tmp_path / "t", 0, PROTOCOL, metadata(), modified_ms=old_ms)
    write_commit(tmp_path / "log-of", 0, PROTOCOL, metadata(), add("live"), modified_ms=old_ms)
    paths = ["p=1/orphan", "p=1/t/live", "p=1/t/q=1/live"]
    for path in paths:
        file = tmp_path / "t" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"x")
        os.utime(file, ns=(old_ms * 1_000_000, old_ms * 1_000_000))
    (tmp_path / "t/p=1/t/_delta_log").symlink_to(tmp_path / "log-of" / "_delta_log")
    rows = [(path, 1, False, old_ms) for path in paths]
    schema = "path string, length long, isDir boolean, modificationTime long"
    inventory = None if is_listed else spark.createDataFrame(rows, schema)
    result = vacuum(spark, str(tmp_path / "t"), inventory=inventory)
    assert result.plan.files["path"].to_pylist() == ["p=1/orphan"]
    assert result.plan.kept.other_tables == 2
    assert [path for path in paths if (tmp_path / "t" / path).exists()] == paths[1:]
