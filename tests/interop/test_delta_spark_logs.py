"""What we leave beside the commits, as Delta Spark takes it: log compactions and version checksums."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_delta.engine import AddFile, DeltaTable
from airflow_delta.engine.maintenance.log_compaction.plan import (
    execute_log_compaction,
    plan_log_compaction,
)
from tests.deep import deep_but_for
from tests.delta_spark.peer import DeltaSpark


def log_file(table: Path, name: str) -> Path:
    return table / "_delta_log" / name


def ids(peer: DeltaSpark, table: Path) -> list[int]:
    """Which rows the peer finds."""
    return sorted(row["id"] for row in peer.sql(f"SELECT id FROM delta.`{table}`"))


def create(peer: DeltaSpark, table: Path, **properties: str) -> Path:
    known = {
        "delta.enableDeletionVectors": "true",
        "delta.checkpointInterval": "1000",
        **properties,
    }
    told = ", ".join(f"'{name}'='{value}'" for name, value in known.items())
    name = f"delta.`{table}`"
    peer.sql(f"CREATE TABLE {name} (id BIGINT) USING delta TBLPROPERTIES ({told})")
    peer.sql(f"INSERT INTO {name} SELECT id FROM range(0, 20, 1, 1)")
    return table


def test_delta_spark_reads_our_compaction_in_place_of_the_commits(
    delta_spark: DeltaSpark, tmp_path: Path
) -> None:
    """A removal of which the peer finds the ``add`` before the range, a deletion vector, a domain."""
    table = create(delta_spark, tmp_path / "table")
    name = f"delta.`{table}`"
    delta_spark.sql(f"DELETE FROM {name} WHERE id < 3")
    delta_spark.sql(f"INSERT INTO {name} SELECT id FROM range(20, 25, 1, 1)")
    delta_spark.sql(f"DELETE FROM {name} WHERE id >= 20 AND id < 25")
    delta_spark.sql(f"INSERT INTO {name} SELECT id FROM range(25, 27, 1, 1)")
    expected = [*range(3, 20), 25, 26]
    storage = DeltaTable(str(table)).storage
    plan = plan_log_compaction(storage, start=2, end=4)
    assert execute_log_compaction(storage, plan).written
    assert plan.path is not None
    # Without their actions the commits give other rows; and without checksums nothing else tells.
    poisoned = Path(shutil.copytree(table, tmp_path / "poisoned"))
    for version in (2, 3, 4):
        commit = log_file(poisoned, f"{version:020}.json")
        commit.write_text(commit.read_text().splitlines()[0] + "\n")
    for crc in poisoned.glob("_delta_log/*.crc"):
        crc.unlink()
    for crc in poisoned.glob("_delta_log/.*.crc"):
        crc.unlink()
    # The peer keeps the state of a path that it knows, so each has a path of its own.
    bare = Path(shutil.copytree(poisoned, tmp_path / "bare"))
    (bare / plan.path).unlink()
    assert ids(delta_spark, poisoned) == expected
    assert ids(delta_spark, bare) == [*range(20), 25, 26]


def append(table: Path, *values: int) -> int:
    """A commit of ours with one file."""
    path = f"ours-{values[0]}.parquet"
    pq.write_table(pa.table({"id": pa.array(values, pa.int64())}), table / path)
    stats = {"numRecords": len(values), "minValues": {"id": min(values)},
             "maxValues": {"id": max(values)}, "nullCount": {"id": 0}}  # fmt: skip
    transaction = DeltaTable(str(table)).transaction("WRITE")
    size = (table / path).stat().st_size
    transaction.add_file(AddFile(path, {}, size, 1, data_change=True, stats=json.dumps(stats)))
    transaction.set_transaction("ours", values[0])
    return transaction.commit().version


def checksum(table: Path, version: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(log_file(table, f"{version:020}.crc").read_text())
    return found


@pytest.mark.parametrize("timestamps", deep_but_for(["true", "false"], "true"))
def test_checksums_go_on_from_one_engine_to_the_other(
    delta_spark: DeltaSpark, tmp_path: Path, timestamps: str
) -> None:
    """The peer continues our checksum, and compares it with the state before it writes a checkpoint."""
    properties = {
        "delta.enableInCommitTimestamps": timestamps,
        "delta.feature.domainMetadata": "supported",
    }
    table = create(delta_spark, tmp_path / "table", **properties)
    name = f"delta.`{table}`"
    delta_spark.sql(f"DELETE FROM {name} WHERE id < 3")
    assert append(table, 100, 101) == 3
    delta_spark.sql(f"INSERT INTO {name} VALUES (200)")
    delta_spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.checkpointInterval' = '1')")
    assert append(table, 102) == 6
    delta_spark.sql(f"INSERT INTO {name} VALUES (201)")
    assert log_file(table, f"{7:020}.checkpoint.parquet").exists()
    ours = DeltaTable(str(table))
    for version in range(8):
        result = ours.snapshot(version=version).verify()
        assert result.differences == ()
        assert "numFiles" in result.checked, version
        assert ("inCommitTimestampOpt" in result.checked) == (timestamps == "true")
    before, mine = checksum(table, 2), checksum(table, 3)
    assert set(before) - set(mine) <= {"histogramOpt", "fileSizeHistogram", "allFiles",
                                       "deletedRecordCountsHistogramOpt"}  # fmt: skip
    assert set(mine) <= set(before)
    assert mine["setTransactions"][0]["appId"] == "ours"
    assert ids(delta_spark, table) == [*range(3, 20), 100, 101, 102, 200, 201]


@pytest.mark.parametrize(("num_files", "written"), [(2, True), (7, False)])
def test_delta_spark_does_compare(
    delta_spark: DeltaSpark, tmp_path: Path, num_files: int, written: bool
) -> None:
    """What the test above relies on: a wrong checksum keeps the peer from writing a checkpoint."""
    table = create(delta_spark, tmp_path / "table")
    append(table, 100)
    told = {**checksum(table, 2), "numFiles": num_files}
    log_file(table, f"{2:020}.crc").write_text(json.dumps(told))
    name = f"delta.`{shutil.copytree(table, tmp_path / 'fresh')}`"
    delta_spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.checkpointInterval' = '1')")
    assert bool(list(tmp_path.glob("fresh/_delta_log/*.checkpoint.parquet"))) == written
