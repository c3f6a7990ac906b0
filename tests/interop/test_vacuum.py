"""Vacuums beside those of the peers: of one table all delete the same, and read it afterwards.

Where they don't agree the test says so: `deltalake` doesn't look whether it may write the table, and
Delta Spark also counts directories.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import UnsupportedFeatureError
from airflow_delta.engine.maintenance.vacuum.last_vacuum import LAST_VACUUM, read_last_vacuum
from airflow_delta.engine.maintenance.vacuum.plan import VacuumPlan
from tests.deep import deep_but_for
from tests.delta_spark.peer import DeltaSpark
from tests.log_builder import add, metadata, remove, write_commit

AT_ONCE: dict[str, Any] = {"retention_hours": 0, "enforce_retention": False}
# Values of a partition column that make odd directories.
VALUES = [
    "x",
    "a b",
    "a%20b",
    "a%2520b",
    "a+b",
    "a#b?c",
    "a&b",
    "é",
    "1:2",
    "2024-01-01 00:00:00",
    "~",
]


def plan(table: Path, **options: Any) -> VacuumPlan:
    return DeltaTable(str(table)).vacuum(dry_run=True, **{**AT_ONCE, **options}).plan


def paths(plan: VacuumPlan) -> set[str]:
    return {*plan.files["path"].to_pylist()}


def left(table: Path) -> set[str]:
    files = (file for file in table.rglob("*") if file.is_file())
    return {str(file.relative_to(table)) for file in files if "_delta_log" not in file.parts}


def orphans(table: Path) -> set[str]:
    """What dead jobs have left, and what nobody may touch."""
    names = {"orphan.parquet", "part=a%20b/orphan.parquet", "part=new/orphan.parquet"}
    for name in (*names, "_temporary/hidden.parquet", "part=x/.hidden.parquet"):
        (table / name).parent.mkdir(exist_ok=True)
        (table / name).write_bytes(b"x")
        os.utime(table / name, (1, 1))
    return names


# deltalake


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": [*ids], "part": [VALUES[id_ % len(VALUES)] for id_ in ids]})


@pytest.fixture
def by_deltalake(tmp_path: Path) -> Path:
    """Appends, deletions, a rewritten partition; a checkpoint on the way."""
    root = tmp_path / "table"
    count = len(VALUES)
    deltalake.write_deltalake(str(root), rows(*range(2 * count)), partition_by=["part"])
    deltalake.write_deltalake(str(root), rows(*range(2 * count, 3 * count)), mode="append")
    peer = deltalake.DeltaTable(str(root))
    peer.delete("part = 'a b'")
    peer.create_checkpoint()
    peer.delete("id % 2 = 0")
    deltalake.write_deltalake(str(root), rows(2), mode="append")
    return root


def test_deltalake_deletes_the_same(by_deltalake: Path) -> None:
    left_behind = orphans(by_deltalake)
    peer = deltalake.DeltaTable(str(by_deltalake))
    theirs = peer.vacuum(0, dry_run=True, enforce_retention_duration=False, full=True)
    ours = paths(plan(by_deltalake))
    # To it only what begins with an underscore is hidden.
    assert {*theirs} - ours == {"part=x/.hidden.parquet"}
    assert {*theirs} > ours
    assert ours > left_behind
    removed = peer.vacuum(0, dry_run=True, enforce_retention_duration=False)
    assert {*removed} == paths(plan(by_deltalake, mode="lite")) == ours - left_behind


@pytest.mark.parametrize("mode", ["full", "lite"])
def test_deltalake_reads_what_we_have_vacuumed(by_deltalake: Path, mode: Any) -> None:
    before = sorted(deltalake.DeltaTable(str(by_deltalake)).to_pyarrow_table()["id"].to_pylist())
    assert len(before) > 10
    left_behind = orphans(by_deltalake)
    made = plan(by_deltalake, mode=mode)
    files = left(by_deltalake)
    assert DeltaTable(str(by_deltalake)).vacuum(mode=mode, **AT_ONCE).num_deleted > 10
    assert left(by_deltalake) == files - paths(made)
    assert bool(left(by_deltalake) & left_behind) == (mode == "lite")
    peer = deltalake.DeltaTable(str(by_deltalake))
    assert sorted(peer.to_pyarrow_table()["id"].to_pylist()) == before
    theirs = peer.vacuum(0, dry_run=True, enforce_retention_duration=False, full=mode == "full")
    assert {path for path in theirs if (by_deltalake / path).exists()} <= {"part=x/.hidden.parquet"}


@pytest.mark.parametrize("deleted", [1, 2, 5, 9])
def test_deltalake_reads_what_a_dead_vacuum_leaves(by_deltalake: Path, deleted: int) -> None:
    peer = deltalake.DeltaTable(str(by_deltalake))
    before = sorted(peer.to_pyarrow_table()["id"].to_pylist())
    made = plan(by_deltalake)
    DeltaTable(str(by_deltalake)).storage.delete(made.files["path"][:deleted].to_pylist())
    assert sorted(peer.to_pyarrow_table()["id"].to_pylist()) == before
    assert paths(plan(by_deltalake)) == {*made.files["path"][deleted:].to_pylist()}


def test_deltalake_does_not_look_at_the_protocol(tmp_path: Path) -> None:
    features = {"writerFeatures": ["novelty"]}
    protocol = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, **features}}
    write_commit(tmp_path, 0, protocol, metadata(), add("a"))
    write_commit(tmp_path, 1, remove("a"))
    (tmp_path / "a").write_bytes(b"x")
    peer = deltalake.DeltaTable(str(tmp_path))
    assert peer.vacuum(0, dry_run=True, enforce_retention_duration=False, full=True) == ["a"]
    with pytest.raises(UnsupportedFeatureError, match="novelty"):
        plan(tmp_path)


# Delta Spark

SETTINGS = {
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    # Of 10,000 tasks that list directories, nearly all would find none.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
}


@pytest.fixture(scope="module")
def made_by_spark(delta_spark: DeltaSpark, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Deletion vectors, change data, odd partitions; rows that are gone in each way."""
    root = tmp_path_factory.mktemp("vacuum") / "table"
    name = f"delta.`{root}`"
    delta_spark.sql(
        f"CREATE TABLE {name} (id BIGINT, part STRING) USING delta PARTITIONED BY (part) TBLPROPERTIES "
        "('delta.enableDeletionVectors'='true', 'delta.enableChangeDataFeed'='true')"
    )
    values = ", ".join(f"({n}, '{VALUES[n % len(VALUES)]}')" for n in range(4 * len(VALUES)))
    delta_spark.sql(f"INSERT INTO {name} SELECT /*+ COALESCE(1) */ * FROM VALUES {values}")
    delta_spark.sql(f"DELETE FROM {name} WHERE id % 7 = 1")
    delta_spark.sql(f"UPDATE {name} SET id = id + 1000 WHERE id % 5 = 2")
    delta_spark.sql(f"DELETE FROM {name} WHERE part = 'a%20b'")
    # The second vector takes the place of the first, in a file of its own.
    delta_spark.sql(f"DELETE FROM {name} WHERE id = 3")
    delta_spark.sql(f"DELETE FROM {name} WHERE id = 14")
    return root


@pytest.fixture
def by_spark(made_by_spark: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made_by_spark, tmp_path / "table"))


def spark_dry_run(peer: DeltaSpark, table: Path, kind: str = "") -> set[str]:
    """The files that Delta Spark would delete, below the table."""
    told = peer.sql(f"VACUUM delta.`{table}` {kind} RETAIN 0 HOURS DRY RUN", settings=SETTINGS)
    found = {row["path"].removeprefix("file:") for row in told}
    return {os.path.relpath(path, table) for path in found if not Path(path).is_dir()}


def ids(peer: DeltaSpark, table: Path) -> list[int]:
    return [row["id"] for row in peer.sql(f"SELECT id FROM delta.`{table}` ORDER BY id")]


def test_delta_spark_deletes_the_same(by_spark: Path, delta_spark: DeltaSpark) -> None:
    left_behind = orphans(by_spark)
    made = plan(by_spark)
    assert spark_dry_run(delta_spark, by_spark) == paths(made)
    assert paths(made) > left_behind
    assert all(totals.num_files for totals in made.by_kind.values())
    assert made.kept.referenced > 10
    # Of a lite one the log tells.
    lite = plan(by_spark, mode="lite")
    assert spark_dry_run(delta_spark, by_spark, "LITE") == paths(lite) == paths(made) - left_behind


@pytest.mark.deep
@pytest.mark.parametrize("mode", ["full", "lite"])
def test_delta_spark_reads_what_we_have_vacuumed(
    by_spark: Path, delta_spark: DeltaSpark, mode: Any
) -> None:
    before = ids(delta_spark, by_spark)
    assert len(before) > 20
    made = DeltaTable(str(by_spark)).vacuum(mode=mode, **AT_ONCE).plan
    assert not paths(made) & left(by_spark)
    fresh = Path(shutil.copytree(by_spark, by_spark.parent / "fresh"))
    assert ids(delta_spark, fresh) == before
    assert spark_dry_run(delta_spark, fresh) == set()
    # It goes on from where we have been.
    assert read_last_vacuum(DeltaTable(str(fresh)).storage) == made.version
    # Of the newest commit it reads again what that has removed, and we have deleted.
    assert not spark_dry_run(delta_spark, fresh, "LITE") & left(fresh)
    name = f"delta.`{fresh}`"
    delta_spark.sql(f"DELETE FROM {name} WHERE part = 'x'")
    assert spark_dry_run(delta_spark, fresh, "LITE") == paths(plan(fresh, mode="lite")) != set()


@pytest.mark.deep
def test_we_go_on_from_a_vacuum_of_delta_spark(by_spark: Path, delta_spark: DeltaSpark) -> None:
    name = f"delta.`{by_spark}`"
    newest = DeltaTable(str(by_spark)).latest_version()
    delta_spark.sql(f"VACUUM {name} LITE RETAIN 0 HOURS", settings=SETTINGS)
    assert json.loads((by_spark / LAST_VACUUM).read_text()) == {
        "latestCommitVersionOutsideOfRetentionWindow": newest
    }
    again = plan(by_spark, mode="lite")
    # Only the commits that tell of the vacuum itself have come since.
    assert (again.commits.start, again.files.num_rows) == (newest + 1, 0)
    delta_spark.sql(f"VACUUM {name} RETAIN 0 HOURS", settings=SETTINGS)
    assert read_last_vacuum(DeltaTable(str(by_spark)).storage) is None
    assert plan(by_spark).files.num_rows == 0


@pytest.mark.parametrize("deleted", deep_but_for([1, 4, 9], 4))
def test_delta_spark_reads_what_a_dead_vacuum_leaves(
    by_spark: Path, delta_spark: DeltaSpark, deleted: int
) -> None:
    before = ids(delta_spark, by_spark)
    made = plan(by_spark)
    DeltaTable(str(by_spark)).storage.delete(made.files["path"][:deleted].to_pylist())
    fresh = Path(shutil.copytree(by_spark, by_spark.parent / "fresh"))
    assert ids(delta_spark, fresh) == before
    assert spark_dry_run(delta_spark, fresh) == {*made.files["path"][deleted:].to_pylist()}
