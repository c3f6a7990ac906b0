"""Our V2 checkpoints of every form, read by deltalake when there is nothing else left to read."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from airflow_delta.engine.checkpoint.v2_write import (
    CheckpointTarget,
    publish_top_level,
    write_v2_checkpoint,
)
from airflow_delta.engine.checkpoint.write import ExpectedFiles, NonFileContent
from airflow_delta.engine.log.files import checkpoint_path, v2_checkpoint_path
from airflow_delta.engine.model.actions import Sidecar
from airflow_delta.engine.storage.local import LocalStorage
from tests.engine.checkpoint.contents import (
    METADATA,
    PROTOCOL_V2,
    add_row,
    add_table,
    remove_row,
    remove_table,
)
from tests.log_builder import write_commit

ADDS = [add_row(n) for n in range(5)]
SMALL = NonFileContent(PROTOCOL_V2, METADATA, (), ())


def write_table(root: Path, top_level: str) -> None:
    """A table of which only the checkpoint of version 7 and that version's commit are there."""
    storage = LocalStorage(str(root))
    files = [("add", add_table(ADDS)), ("remove", remove_table([remove_row(1)]))]
    path = v2_checkpoint_path(7, "0" * 36, "json")
    target = CheckpointTarget(path, 7, "t")
    write_v2_checkpoint(storage, SMALL, files, target, expected=ExpectedFiles(5))
    lines = [json.loads(line) for line in storage.read(path).decode().splitlines()]
    named = [Sidecar.from_json(line["sidecar"], "") for line in lines if "sidecar" in line]
    storage.delete([path])
    publish_top_level(storage, SMALL, named, CheckpointTarget(top_level, 7, "t"))
    write_commit(root, 7, {"commitInfo": {"timestamp": 1}})


@pytest.mark.parametrize(
    "top_level",
    [
        v2_checkpoint_path(7, "1" * 36, "json"),
        v2_checkpoint_path(7, "1" * 36, "parquet"),
        checkpoint_path(7),
    ],
    ids=["JSON", "Parquet", "classic name"],
)
def test_deltalake_reads_what_we_write(tmp_path: Path, top_level: str) -> None:
    write_table(tmp_path, top_level)
    table = DeltaTable(str(tmp_path))
    assert table.version() == 7
    actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    assert {(row["path"], row["size_bytes"], row["num_records"]) for row in actions} == {
        (row["path"], row["size"], n) for n, row in enumerate(ADDS)
    }
    assert table.metadata().id == METADATA.id
