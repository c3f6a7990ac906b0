"""Contents of checkpoints for the tests of this folder."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain, repeat
from typing import Any

import pyarrow as pa

from airflow_delta.engine.arrow.action_schema import add_schema, remove_schema
from airflow_delta.engine.checkpoint.write import CheckpointContent
from airflow_delta.engine.model.actions import DomainMetadata, Metadata, Protocol, Txn
from airflow_delta.engine.storage.memory import MemoryStorage

SCHEMA_STRING = (
    '{"type":"struct","fields":['
    '{"name":"id","type":"long","nullable":true,"metadata":{}},'
    '{"name":"p","type":"string","nullable":true,"metadata":{}}]}'
)

METADATA = Metadata(
    id="11111111-2222-3333-4444-555555555555",
    name="orders",
    schema_string=SCHEMA_STRING,
    partition_columns=("p",),
    created_time=1_700_000_000_000,
    configuration={"delta.appendOnly": "false"},
)

PROTOCOL_V2 = Protocol(3, 7, frozenset({"v2Checkpoint"}), frozenset({"v2Checkpoint"}))
"""A protocol that allows V2 checkpoints."""


def memory() -> MemoryStorage:
    """A storage of the test's own."""
    return MemoryStorage(f"memory://{uuid.uuid4()}")


def add_row(number: int, **fields: Any) -> dict[str, Any]:
    """An add as a row of the Arrow table."""
    return {
        "path": f"p=x/part-{number:05}.parquet",
        "partitionValues": [("p", "x")],
        "size": 100 + number,
        "modificationTime": 1_700_000_000_000 + number,
        "dataChange": True,
        "stats": f'{{"numRecords":{number}}}',
        **fields,
    }


def remove_row(number: int, **fields: Any) -> dict[str, Any]:
    """A remove as a row of the Arrow table."""
    return {
        "path": f"p=x/gone-{number:05}.parquet",
        "deletionTimestamp": 4_000_000_000_000 + number,
        "dataChange": True,
        "extendedFileMetadata": True,
        "partitionValues": [("p", "x")],
        "size": 100 + number,
        **fields,
    }


def add_table(rows: Sequence[dict[str, Any]]) -> pa.Table:
    """Adds as the engine passes them around."""
    return pa.Table.from_pylist(list(rows), schema=add_schema())


def remove_table(rows: Sequence[dict[str, Any]]) -> pa.Table:
    """Removes as the engine passes them around."""
    return pa.Table.from_pylist(list(rows), schema=remove_schema())


def content(
    *,
    adds: Iterable[pa.Table] | None = None,
    removes: Iterable[pa.Table] | None = None,
    **changes: Any,
) -> CheckpointContent:
    """The state of a small table."""
    added = [add_table([add_row(1), add_row(2), add_row(3)])] if adds is None else adds
    removed = [remove_table([remove_row(8), remove_row(9)])] if removes is None else removes
    plain = CheckpointContent(
        protocol=Protocol(1, 2),
        metadata=METADATA,
        transactions=(Txn("app", 5, 1_700_000_000_000), Txn("other", -1)),
        domains=(DomainMetadata("delta.clustering", "{}"),),
        files=chain(zip(repeat("add"), added), zip(repeat("remove"), removed)),
    )
    return replace(plain, **changes)
