"""Checkpoints across engines: deltalake reads ours, and we read deltalake's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_delta.engine.checkpoint.read import CheckpointReader, open_checkpoint
from airflow_delta.engine.checkpoint.write import (
    CheckpointContent,
    ExpectedFiles,
    write_classic_checkpoint,
)
from airflow_delta.engine.log.listing import list_log
from airflow_delta.engine.model.actions import DomainMetadata, Metadata, Protocol, Txn
from airflow_delta.engine.storage.local import LocalStorage


@pytest.fixture
def table(tmp_path: Path) -> DeltaTable:
    """A partitioned table of five commits, with tombstones, and a checkpoint by deltalake."""
    uri = str(tmp_path / "table")
    for number in range(4):
        rows = pa.table({"id": [number, number + 10], "p": ["a b", None], "x": [0.5, None]})
        write_deltalake(uri, rows, mode="append", partition_by=["p"])
    DeltaTable(uri).delete("id = 1")
    found = DeltaTable(uri)
    found.create_checkpoint()
    return found


def reader_of(root: str) -> CheckpointReader:
    storage = LocalStorage(root)
    (checkpoint,) = list_log(storage).checkpoints
    return open_checkpoint(storage, checkpoint, table=root)


def actions(reader: CheckpointReader, kind: str) -> list[Any]:
    return [value for name, value in reader.non_file_actions() if name == kind]


def state(table: DeltaTable) -> list[dict[str, Any]]:
    columns = pa.table(table.get_add_actions(flatten=True))
    kept = [name for name in columns.column_names if name != "modification_time"]
    return sorted(columns.select(kept).to_pylist(), key=lambda row: str(row["path"]))


def test_we_read_what_deltalake_writes(table: DeltaTable, tmp_path: Path) -> None:
    root = str(tmp_path / "table")
    reader = reader_of(root)
    (protocol,), (metadata,) = actions(reader, "protocol"), actions(reader, "metaData")
    theirs = table.protocol()
    assert protocol["minReaderVersion"] == theirs.min_reader_version
    assert protocol["minWriterVersion"] == theirs.min_writer_version
    assert metadata["id"] == str(table.metadata().id)
    assert metadata["partitionColumns"] == ["p"]
    live = pa.concat_tables(reader.adds())
    assert sorted(live["size"].to_pylist()) == sorted(row["size_bytes"] for row in state(table))
    assert live.num_rows == len(table.file_uris())
    assert sum(tombstones.num_rows for tombstones in reader.removes()) == 1


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"delta.checkpoint.writeStatsAsStruct": "true"},
        {
            "delta.checkpoint.writeStatsAsStruct": "true",
            "delta.checkpoint.writeStatsAsJson": "false",
        },
    ],
)
def test_deltalake_reads_what_we_write(
    table: DeltaTable, tmp_path: Path, properties: dict[str, str]
) -> None:
    root = str(tmp_path / "table")
    before = state(table)
    reader = reader_of(root)
    metadata = Metadata.from_json(actions(reader, "metaData")[0], "test")
    content = CheckpointContent(
        protocol=Protocol.from_json(actions(reader, "protocol")[0], "test"),
        metadata=replace(metadata, configuration=properties),
        transactions=(Txn("app", 3, 1),),
        domains=(DomainMetadata("d", "{}"),),
        # All of it first: the file that is read here is the one that is replaced.
        files=[
            *(("add", adds) for adds in reader.adds()),
            *(("remove", removes) for removes in reader.removes()),
        ],
        expected=ExpectedFiles(len(before), sum(row["size_bytes"] for row in before)),
    )
    result = write_classic_checkpoint(
        LocalStorage(root), content, version=table.version(), table=root, replaces=True
    )
    for commit in (tmp_path / "table" / "_delta_log").glob("*.json"):
        commit.unlink()
    (tmp_path / "table" / "_delta_log" / "_last_checkpoint").unlink()
    reopened = DeltaTable(root)
    assert reopened.version() == result.version
    assert state(reopened) == before
    assert reopened.metadata().id == table.metadata().id
    assert reopened.schema() == table.schema()
    assert reopened.transaction_version("app") == 3
    rows = reopened.to_pyarrow_table(columns=["id"])["id"].to_pylist()
    assert sorted(rows) == [0, 2, 3, 10, 11, 12, 13]
