"""The Rust implementation writes and we read; we commit and checkpoint, and it reads.

deltalake is a peer that shares no code with us: tables, checkpoints and commits of either must mean
the same to the other, and both must be able to write to one table at the same time.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_delta.engine import DeltaTable, Snapshot
from airflow_delta.engine.errors import VersionNotFoundError
from airflow_delta.engine.model.actions import AddFile, RemoveFile
from airflow_delta.engine.model.partition_values import parse_partition_value
from airflow_delta.engine.model.schema import PrimitiveType, StructField, StructType
from tests.log_builder import commit_path
from tests.row_tables import bag

DATA = pa.table(
    {
        "id": pa.array([1, 2, 3, 4], pa.int64()),
        "part": pa.array(["x", "a b%/ü=", None, "x"], pa.string()),
        "day": pa.array([date(2024, 2, 29), date(1969, 7, 20), None, date(2024, 2, 29)]),
        # No negative ones: deltalake writes them as -3.-25 in partition values.
        "price": pa.array(
            [Decimal("1.50"), None, Decimal("3.25"), Decimal(0)], pa.decimal128(10, 2)
        ),
        "at": pa.array(
            [datetime(2024, 1, 1, 12, tzinfo=timezone.utc)] * 4, pa.timestamp("us", "UTC")
        ),
        "flag": pa.array([True, False, None, True]),
        "nested": pa.array([{"a": 1, "b": [1, 2]}] * 4),
    }
)


def write(root: Path, data: pa.Table = DATA, **options: Any) -> None:
    """Write with deltalake."""
    deltalake.write_deltalake(str(root), data, **options)


def theirs(root: Path, version: int | None = None) -> Any:
    """The table as deltalake sees it."""
    return deltalake.DeltaTable(str(root), version=version)


def rows(root: Path, snapshot: Snapshot) -> list[int]:
    """The ids in the data files that we see."""
    uris = snapshot.file_uris()
    assert all(uri.startswith(str(root)) for uri in uris)
    return sorted(
        value for uri in uris for value in pq.ParquetFile(uri).read(["id"])["id"].to_pylist()
    )


def same(root: Path, version: int | None = None) -> None:
    """Both see the same table at a version."""
    peer, ours = theirs(root, version), DeltaTable(str(root)).snapshot(version=version)
    assert ours.version == peer.version()
    actions = pa.table(peer.get_add_actions()).to_pylist()
    files = ours.files().to_pylist()
    assert {f["path"]: f["size"] for f in files} == {a["path"]: a["size_bytes"] for a in actions}
    assert ours.num_rows == sum(action["num_records"] for action in actions)
    assert {f["path"]: f["modificationTime"] for f in files} == {
        a["path"]: int(a["modification_time"].timestamp() * 1000)
        if isinstance(a["modification_time"], datetime)
        else a["modification_time"]
        for a in actions
    }
    assert sorted(ours.file_uris()) == sorted(peer.file_uris())
    whole = peer.to_pyarrow_table()
    assert rows(root, ours) == sorted(whole["id"].to_pylist())
    assert bag(ours.to_arrow().to_pylist()) == bag(whole.to_pylist())
    metadata = peer.metadata()
    assert ours.metadata.id == metadata.id
    assert list(ours.metadata.partition_columns) == metadata.partition_columns
    assert dict(ours.metadata.configuration) == metadata.configuration
    assert [f.name for f in ours.schema] == [f.name for f in peer.schema().fields]
    protocol = peer.protocol()
    assert ours.protocol.min_reader_version == protocol.min_reader_version
    assert ours.protocol.min_writer_version == protocol.min_writer_version
    partitions = {
        action["path"]: {name: action["partition"][name] for name in metadata.partition_columns}
        if metadata.partition_columns
        else {}
        for action in actions
    }
    assert partitions == {
        file["path"]: {
            name: parse_partition_value(value, ours.schema.field(name).data_type)
            for name, value in file["partitionValues"]
        }
        for file in files
    }


def every_version(root: Path) -> None:
    for version in range(theirs(root).version() + 1):
        same(root, version)


def add_file(root: Path, name: str, ids: list[int]) -> AddFile:
    """A data file of ours for an unpartitioned table."""
    data = DATA.slice(0, 1).take([0] * len(ids)).set_column(0, "id", pa.array(ids, pa.int64()))
    pq.write_table(data, root / name)
    return AddFile(
        name,
        {},
        (root / name).stat().st_size,
        1_700_000_000_000,
        data_change=True,
        stats=f'{{"numRecords":{len(ids)}}}',
    )


@pytest.fixture(params=[(), ("part",), ("day", "flag"), ("price", "at")], ids=str)
def partition_by(request: pytest.FixtureRequest) -> list[str]:
    return list(request.param)


def test_appends_overwrites_and_deletes(tmp_path: Path, partition_by: list[str]) -> None:
    write(tmp_path, partition_by=partition_by)
    write(tmp_path, mode="append")
    theirs(tmp_path).delete("id = 2")
    write(tmp_path, DATA.slice(2), mode="overwrite")
    write(tmp_path, mode="append")
    every_version(tmp_path)


def test_we_read_their_checkpoint(tmp_path: Path, partition_by: list[str]) -> None:
    write(tmp_path, partition_by=partition_by)
    write(tmp_path, mode="append")
    theirs(tmp_path).delete("id > 2")
    theirs(tmp_path).create_checkpoint()
    write(tmp_path, mode="append")
    every_version(tmp_path)
    for version in range(2):
        commit_path(tmp_path, version).unlink()
    for version in (2, 3):
        same(tmp_path, version)


def test_we_read_their_tombstones(tmp_path: Path) -> None:
    write(tmp_path)
    first = theirs(tmp_path).file_uris()
    write(tmp_path, mode="overwrite")
    theirs(tmp_path).create_checkpoint()
    for version in range(2):
        commit_path(tmp_path, version).unlink()
    tombstones = DeltaTable(str(tmp_path)).snapshot().tombstones()
    assert [f"{tmp_path}/{path}" for path in tombstones["path"].to_pylist()] == first


def test_we_read_what_their_cleanup_leaves(tmp_path: Path) -> None:
    config = {"delta.logRetentionDuration": "interval 0 days"}
    write(tmp_path, configuration=config)
    for _ in range(3):
        write(tmp_path, mode="append")
    theirs(tmp_path).create_checkpoint()
    theirs(tmp_path).cleanup_metadata()
    same(tmp_path)
    table = DeltaTable(str(tmp_path))
    earliest = table.snapshot().timeline.earliest_recreatable
    for version in range(4):
        if version >= earliest:
            same(tmp_path, version)
        else:
            with pytest.raises(VersionNotFoundError, match=str(version)):
                table.snapshot(version=version)


def test_we_read_tables_with_their_features(tmp_path: Path) -> None:
    write(tmp_path, configuration={"delta.enableChangeDataFeed": "true"})
    theirs(tmp_path).alter.add_constraint({"positive": "id > 0"})
    theirs(tmp_path).alter.set_table_properties({"delta.appendOnly": "true"})
    every_version(tmp_path)


def test_a_schema_that_grows(tmp_path: Path) -> None:
    write(tmp_path)
    wider = DATA.append_column("more", pa.array([1.5] * 4))
    write(tmp_path, wider, mode="append", schema_mode="merge")
    theirs(tmp_path).create_checkpoint()
    write(tmp_path, mode="append", schema_mode="merge")
    every_version(tmp_path)


def test_history_and_times(tmp_path: Path) -> None:
    write(tmp_path)
    write(tmp_path, mode="append")
    theirs(tmp_path).delete("id = 1")
    ours = DeltaTable(str(tmp_path)).history()
    peers = theirs(tmp_path).history()
    assert [(i.version, i.operation) for i in ours] == [
        (i["version"], i["operation"]) for i in peers
    ]
    assert [i.raw["timestamp"] for i in ours] == [i["timestamp"] for i in peers]


def test_we_find_their_transactions(tmp_path: Path) -> None:
    properties = deltalake.CommitProperties(app_transactions=[deltalake.Transaction("app", 7)])
    write(tmp_path)
    write(tmp_path, mode="append", commit_properties=properties)
    theirs(tmp_path).create_checkpoint()
    write(tmp_path, mode="append")
    table = DeltaTable(str(tmp_path))
    assert table.snapshot().transactions["app"].version == 7
    assert table.version_of_transaction("app", 7) == 1


def our_commits(root: Path) -> DeltaTable:
    """Two commits of ours after one of theirs."""
    write(root)
    table = DeltaTable(str(root))
    transaction = table.transaction("WRITE")
    transaction.set_transaction("ours", 3)
    transaction.add_files([add_file(root, "new.parquet", [5, 6]), add_file(root, "o.parquet", [7])])
    transaction.commit()
    transaction = table.transaction("DELETE")
    removed = table.snapshot().files(columns=["path", "size"]).to_pylist()[0]
    transaction.remove_file(
        RemoveFile(
            removed["path"],
            data_change=True,
            deletion_timestamp=2**42,
            extended_file_metadata=True,
            partition_values={},
            size=removed["size"],
        )
    )
    transaction.commit()
    return table


def test_they_read_our_commits(tmp_path: Path) -> None:
    our_commits(tmp_path)
    every_version(tmp_path)
    assert theirs(tmp_path).transaction_version("ours") == 3
    assert [info["operation"] for info in theirs(tmp_path).history()][:2] == ["DELETE", "WRITE"]


def test_they_read_our_checkpoint(tmp_path: Path) -> None:
    table = our_commits(tmp_path)
    assert table.checkpoint().written
    every_version(tmp_path)
    for version in range(3):
        commit_path(tmp_path, version).unlink()
    same(tmp_path)
    assert theirs(tmp_path).transaction_version("ours") == 3


@pytest.mark.parametrize("version", [1, 2])
def test_commits_after_our_checkpoint(tmp_path: Path, version: int) -> None:
    table = our_commits(tmp_path)
    assert table.checkpoint(version=version).written
    for old in range(version):
        commit_path(tmp_path, old).unlink()
    write(tmp_path, mode="append")
    theirs(tmp_path).delete("id = 7")
    for later in range(version, 5):
        same(tmp_path, later)
    # And the other way round: their checkpoint over ours, and ours over theirs.
    theirs(tmp_path).create_checkpoint()
    write(tmp_path, mode="append")
    assert table.checkpoint().written
    for old in range(version, 5):
        commit_path(tmp_path, old).unlink()
    same(tmp_path)


def test_our_checkpoint_of_their_partitions(tmp_path: Path, partition_by: list[str]) -> None:
    write(tmp_path, partition_by=partition_by)
    theirs(tmp_path).delete("id = 1")
    assert DeltaTable(str(tmp_path)).checkpoint().written
    commit_path(tmp_path, 0).unlink()
    same(tmp_path)
    theirs(tmp_path).delete("id = 4")
    same(tmp_path)


def test_a_table_that_we_create(tmp_path: Path) -> None:
    schema = StructType((StructField("id", PrimitiveType("long"), nullable=True),))
    DeltaTable.create(str(tmp_path), schema, name="made here", description="é")
    assert (theirs(tmp_path).version(), theirs(tmp_path).metadata().name) == (0, "made here")
    write(tmp_path, DATA.select(["id"]), mode="append")
    same(tmp_path)


def appends(root: Path, names: list[str]) -> Iterator[int]:
    """Append files of ours, one a commit."""
    table = DeltaTable(str(root))
    for name in names:
        transaction = table.transaction("WRITE")
        transaction.add_file(add_file(root, name, [9]))
        yield transaction.commit().version


def test_writers_of_both_kinds_at_once_lose_nothing(tmp_path: Path) -> None:
    write(tmp_path)
    done: list[int] = []
    failed: list[BaseException] = []
    names = [[f"{writer}-{number}.parquet" for number in range(10)] for writer in range(4)]

    def ours(names: list[str]) -> None:
        done.extend(appends(tmp_path, names))

    def peer() -> None:
        for _ in range(5):
            write(tmp_path, DATA.slice(0, 1), mode="append")

    def guarded(work: Any, *args: Any) -> None:
        try:
            work(*args)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=guarded, args=(ours, each)) for each in names]
    threads.append(threading.Thread(target=guarded, args=(peer,)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    snapshot = DeltaTable(str(tmp_path)).snapshot()
    assert snapshot.version == 45
    assert len(set(done)) == 40
    paths = set(snapshot.files(columns=["path"])["path"].to_pylist())
    assert {name for each in names for name in each} <= paths
    assert len(paths) == 46
    same(tmp_path)
