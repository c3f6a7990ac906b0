"""Write data files anew, as `Rewrite` asks for it, with pyarrow and one transaction of ours.

It stands for the job of Spark where a test is about what comes before and after, and shows that the
commits of such a job are ones that transactions take. Files and deletion vectors are below the table's
root, in a directory, and there are no nested columns.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_delta.engine import AddFile, DeltaTable, RemoveFile, Snapshot
from airflow_delta.engine.features.column_mapping import (
    mapping_mode,
    physical_name,
)
from airflow_delta.engine.maintenance.drop_feature.narrow_types import find_files_with_narrow_types
from airflow_delta.engine.maintenance.drop_feature.rewrite import Rewrite
from airflow_delta.engine.maintenance.drop_feature.unmapping import unmap_columns
from airflow_delta.engine.snapshot.feature_usage import files_with
from airflow_delta.engine.storage.file_access import FileAccess
from tests.deletion_vectors import read_deletion_vector

__all__ = ["read_rows", "rewrite_files"]

OPERATIONS = {
    "deletionVectors": "REORG",
    "typeWidening": "REORG",
    "columnMapping": "REMOVE COLUMN MAPPING",
}


def rewrite_files(uri: str, rewrite: Rewrite) -> None:
    """Do what a drop asks for."""
    delta = DeltaTable(uri)
    transaction = delta.transaction(OPERATIONS[rewrite.feature])
    snapshot = transaction.read_table()
    concerned = _concerned(snapshot, rewrite)
    assert (len(concerned), sum(file["size"] for file in concerned)) == (
        rewrite.num_files,
        rewrite.size_in_bytes,
    )
    for file in concerned:
        rows = _rows(snapshot, file)
        transaction.remove_file(_removed(file))
        if rows.num_rows:
            transaction.add_file(_added(snapshot, file, rows, by_name=rewrite.feature))
    if rewrite.feature == "columnMapping":
        unmap_columns(transaction)
    transaction.commit()


def read_rows(delta: DeltaTable, version: int | None = None) -> list[dict[str, Any]]:
    """The rows of a version, by logical names."""
    snapshot = delta.snapshot(version)
    tables = [_rows(snapshot, file) for file in snapshot.files().to_pylist()]
    found = [row for table in tables for row in table.to_pylist()]
    return sorted(found, key=lambda row: json.dumps(row, default=str))


def _concerned(snapshot: Snapshot, rewrite: Rewrite) -> list[dict[str, Any]]:
    files: list[dict[str, Any]] = snapshot.files().to_pylist()
    if rewrite.feature == "deletionVectors":
        concerned = files_with("deletionVectors", snapshot)["path"].to_pylist()
        return [file for file in files if file["path"] in concerned]
    if rewrite.feature == "typeWidening":
        narrow = find_files_with_narrow_types(snapshot, FileAccess(snapshot.storage))[
            "path"
        ].to_pylist()
        return [file for file in files if file["path"] in narrow]
    return files


def _rows(snapshot: Snapshot, file: Mapping[str, Any]) -> pa.Table:
    """The live rows of a file with the columns of the table."""
    found = pq.read_table(Path(snapshot.table, file["path"]))
    if file["deletionVector"] is not None:
        (add,) = (AddFile.from_json({**row, "dataChange": False}, "add") for row in [_plain(file)])
        assert add.deletion_vector is not None
        gone = set(
            read_deletion_vector(add.deletion_vector, snapshot.storage, table=snapshot.table)
        )
        kept = [place for place in range(found.num_rows) if place not in gone]
        found = found.take(pa.array(kept, pa.int64()))
    mode = mapping_mode(snapshot.protocol, snapshot.metadata, table=snapshot.table)
    columns = {}
    for field in snapshot.schema:
        name, type_ = physical_name(field, mode), snapshot.arrow_schema.field(field.name).type
        there = name in found.column_names
        columns[field.name] = found[name].cast(type_) if there else pa.nulls(len(found), type_)
    return pa.table(columns)


def _plain(file: Mapping[str, Any]) -> dict[str, Any]:
    """A row of adds as the JSON object that it stands for."""
    maps = ("partitionValues", "tags")
    return {**file, **{name: dict(file[name]) for name in maps if file[name] is not None}}


def _removed(file: Mapping[str, Any]) -> RemoveFile:
    told = {**_plain(file), "dataChange": False, "extendedFileMetadata": True}
    return RemoveFile.from_json(told, "remove")


def _added(snapshot: Snapshot, file: Mapping[str, Any], rows: pa.Table, *, by_name: str) -> AddFile:
    mode = mapping_mode(snapshot.protocol, snapshot.metadata, table=snapshot.table)
    if by_name != "columnMapping":
        rows = rows.rename_columns([physical_name(field, mode) for field in snapshot.schema])
    path = f"{uuid.uuid4()}.parquet"
    pq.write_table(rows, Path(snapshot.table, path))
    size = Path(snapshot.table, path).stat().st_size
    add = AddFile.from_json({**_plain(file), "dataChange": False, "deletionVector": None}, "add")
    stats = json.dumps({"numRecords": rows.num_rows})
    return replace(
        add, path=path, size=size, stats=stats, base_row_id=None, default_row_commit_version=None
    )
