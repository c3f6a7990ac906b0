"""Logs of other engines after our cleanup, as these see them."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable as PeerTable
from deltalake import write_deltalake
from deltalake.exceptions import DeltaError as PeerError

from airflow_delta.engine import DeltaTable
from tests.deep import deep_but_for
from tests.delta_spark.peer import DeltaSpark

DAY_S = 24 * 60 * 60
COMMITS = 12


def age(table: Path, *, newest_days: int) -> None:
    """Make the log old: a day lies between two commits, and all else is of the oldest time."""
    now = time.time()
    for path in (table / "_delta_log").rglob("*"):
        name = path.name.lstrip(".")
        version = int(name[:20]) if name[:20].isdigit() else 0
        moment = now - (newest_days + COMMITS - version) * DAY_S
        if path.is_file():
            os.utime(path, (moment, moment))


def hidden(table: Path) -> set[int]:
    """The versions of commits that Hadoop has a checksum of."""
    return {int(path.name[1:21]) for path in (table / "_delta_log").glob(".*.json.crc")}


def test_deltalake_reads_what_we_have_kept(tmp_path: Path) -> None:
    table = tmp_path / "table"
    for number in range(COMMITS):
        write_deltalake(
            str(table),
            pa.table({"id": pa.array([number], pa.int64())}),
            mode="append",
            configuration={"delta.checkpointInterval": "4"} if number == 0 else None,
        )
    age(table, newest_days=26)
    # The cut-off, thirty days back, is after version 7; there is a checkpoint of 3, 7 and 11, or so.
    result = DeltaTable(str(table)).cleanup_metadata()
    earliest = result.earliest_version
    assert 3 <= earliest <= 8
    assert result.plan.count("commits") == earliest
    peer = PeerTable(str(table))
    assert peer.version() == COMMITS - 1
    assert len(peer.file_uris()) == COMMITS
    for version in range(earliest, COMMITS):
        peer.load_as_version(version)
        assert len(peer.file_uris()) == version + 1
    with pytest.raises(PeerError):
        peer.load_as_version(earliest - 1)


@pytest.mark.parametrize("policy", deep_but_for(["classic", "v2"]))
def test_delta_spark_reads_and_writes_what_we_have_kept(
    delta_spark: DeltaSpark, tmp_path: Path, policy: str
) -> None:
    table = tmp_path / "table"
    name = f"delta.`{table}`"
    properties = {
        "delta.checkpointInterval": "4",
        "delta.checkpointPolicy": policy,
        "delta.deletedFileRetentionDuration": "interval 30 days",
        # The peer shall leave the cleaning to us.
        "delta.enableExpiredLogCleanup": "false",
        "delta.minReaderVersion": "3",
        "delta.minWriterVersion": "7",
    }
    told = ", ".join(f"'{key}'='{value}'" for key, value in properties.items())
    delta_spark.sql(f"CREATE TABLE {name} (id BIGINT) USING delta TBLPROPERTIES ({told})")
    for number in range(1, COMMITS):
        delta_spark.sql(f"INSERT INTO {name} VALUES ({number})")
    age(table, newest_days=26)
    assert hidden(table) >= {0, 1, 2}
    result = DeltaTable(str(table)).cleanup_metadata(force=True)
    assert result.earliest_version == 4
    assert result.plan.count("sidecars") == 0  # the first checkpoint is that of version 4
    assert hidden(table) == {*range(4, COMMITS)}
    # The peer keeps the state of a path that it knows.
    moved = table.rename(tmp_path / "moved")
    name = f"delta.`{moved}`"
    # It refuses older ones, whether or not they are there.
    for version in (9, COMMITS - 1):
        rows = delta_spark.sql(f"SELECT id FROM {name} VERSION AS OF {version}")
        assert sorted(row["id"] for row in rows) == [*range(1, version + 1)]
    delta_spark.sql(f"INSERT INTO {name} VALUES ({COMMITS})")
    (detail,) = delta_spark.sql(f"DESCRIBE DETAIL {name}")
    assert detail["numFiles"] == COMMITS
    # A later cleanup takes the checkpoint of version 4, and its sidecars.
    age(moved, newest_days=30)
    result = DeltaTable(str(moved)).cleanup_metadata(force=True)
    assert result.earliest_version == 8
    assert (result.plan.count("sidecars") > 0) == (policy == "v2")
    rows = delta_spark.sql(f"SELECT id FROM {name}")
    assert sorted(row["id"] for row in rows) == [*range(1, COMMITS + 1)]
