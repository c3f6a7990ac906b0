"""Directories in every kind of store."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import InvalidArgumentError, MissingFilesError
from airflow_delta.engine.storage.base import Storage
from airflow_delta.engine.storage.location import open_storage
from tests.object_stores import new_place

KINDS = ("memory", "s3", "gcs", "azure")


def parquet(**columns: Any) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table(columns), buffer)
    return buffer.getvalue()


def put(storage: Storage, **files: bytes) -> None:
    for path, content in files.items():
        storage.create(path, content)


@pytest.mark.parametrize("kind", KINDS)
def test_a_directory_in_a_store_becomes_a_table(kind: str, tmp_path: Path) -> None:
    uri, options = new_place(kind, tmp_path)
    root = f"{uri}/t"
    storage = open_storage(root, options)
    files = {
        "day=2026-01-31/a b+é.parquet": parquet(id=[1, 2]),
        "day=2026-02-01/1.parquet": parquet(id=[3], note=["x"]),
        "_temporary/0/2.parquet": parquet(id=[9]),
        "day=2026-02-01/_SUCCESS": b"",
    }
    put(storage, **files)
    done = DeltaTable.convert(root, {"day": "date"}, storage_options=options)
    assert (done.to_dict()["files"], done.to_dict()["rows"]) == (2, 3)
    rows = DeltaTable(root, options).snapshot().to_arrow().to_pylist()
    found = sorted((row["id"], row["note"], row["day"].isoformat()) for row in rows)
    assert found == [
        (1, None, "2026-01-31"),
        (2, None, "2026-01-31"),
        (3, "x", "2026-02-01"),
    ]
    assert all(storage.read(path) == content for path, content in files.items())


@pytest.mark.parametrize("kind", ["memory", "s3"])
def test_a_list_is_looked_up_and_other_tables_are_found(kind: str, tmp_path: Path) -> None:
    uri, options = new_place(kind, tmp_path)
    storage = open_storage(uri, options)
    hidden = {"_old/_delta_log/0.json": b"{}", "y/.z/_delta_log/0.json": b"{}"}
    put(storage, **hidden, **{"0.parquet": parquet(id=[1])})
    assert DeltaTable.convert(uri, dry_run=True, storage_options=options).to_dict()["files"] == 1
    put(storage, **{"x/_delta_log/0.json": b"{}"})
    with pytest.raises(InvalidArgumentError, match="the log of another Delta table"):
        DeltaTable.convert(uri, storage_options=options)
    with pytest.raises(MissingFilesError, match=r"'1\.parquet'"):
        DeltaTable.convert(uri, files=["0.parquet", "1.parquet"], storage_options=options)
    done = DeltaTable.convert(uri, files=["0.parquet"], storage_options=options)
    assert (done.version, done.to_dict()["files"]) == (0, 1)
