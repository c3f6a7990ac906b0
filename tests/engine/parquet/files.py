"""Parquet files of non-file actions for the tests of this folder, and what pyarrow reads in them."""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_delta.engine.arrow.parquet.action_file import ActionFile
from airflow_delta.engine.model.checkpoint_kinds import CHECKPOINT_KINDS
from airflow_delta.engine.parquet import read_non_file_rows
from airflow_delta.engine.parquet.thrift import ThriftStruct, decode, encode
from airflow_delta.engine.storage.base import FileInfo
from airflow_delta.engine.storage.memory import MemoryStorage

Rows = list[tuple[str, dict[str, Any]]]

TEXTS = pa.list_(pa.string())
TEXT_MAP = pa.map_(pa.string(), pa.string())

SCHEMA = pa.schema(
    [
        (
            "protocol",
            pa.struct(
                [
                    ("minReaderVersion", pa.int32()),
                    ("minWriterVersion", pa.int32()),
                    ("readerFeatures", TEXTS),
                ]
            ),
        ),
        (
            "metaData",
            pa.struct(
                [
                    pa.field("id", pa.string(), nullable=False),
                    ("name", pa.string()),
                    ("format", pa.struct([("provider", pa.string()), ("options", TEXT_MAP)])),
                    ("partitionColumns", TEXTS),
                    ("configuration", TEXT_MAP),
                    ("createdTime", pa.int64()),
                ]
            ),
        ),
        ("add", pa.struct([("path", pa.string()), ("score", pa.float64())])),
        (
            "domainMetadata",
            pa.struct(
                [("domain", pa.string()), ("configuration", pa.string()), ("removed", pa.bool_())]
            ),
        ),
        (
            "txn",
            pa.struct(
                [("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())]
            ),
        ),
    ]
)
"""A mix of all shapes that occur; the order of the columns isn't that of the kinds."""

PROTOCOL = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["a", "é", "a"]}
METADATA = {
    "id": "i",
    "name": None,
    "format": {"provider": "parquet", "options": []},
    "partitionColumns": [],
    "configuration": [("k", "v"), ("n", None), ("", "")],
    "createdTime": -(2**63),
}


def action_rows(kind: str, *values: Any) -> list[dict[str, Any]]:
    """Rows that each hold one action."""
    return [{kind: value} for value in values]


def many_rows() -> list[dict[str, Any]]:
    """Rows of all kinds, with nulls between them."""
    return [
        *action_rows("add", *({"path": f"{n}", "score": n / 2} for n in range(20))),
        *action_rows("protocol", PROTOCOL),
        *action_rows("add", {"path": "x", "score": None}),
        *action_rows("metaData", METADATA),
        *action_rows(
            "txn",
            *(
                {"appId": f"app{n % 7}", "version": n, "lastUpdated": n or None}
                for n in range(-5, 30)
            ),
        ),
        {},
        *action_rows(
            "domainMetadata",
            {"domain": "d", "configuration": "{}" * 100, "removed": False},
            {"domain": "e", "configuration": None, "removed": True},
        ),
        *action_rows("metaData", {"id": "", "partitionColumns": ["p", None, "q"]}),
        *action_rows("protocol", {"minReaderVersion": 1, "minWriterVersion": None}),
    ]


def stored(rows: Sequence[dict[str, Any]], schema: pa.Schema = SCHEMA, **options: Any) -> bytes:
    """The rows in a file that pyarrow writes with some options; uncompressed if none."""
    full = [{**dict.fromkeys(schema.names), **row} for row in rows]
    buffer = io.BytesIO()
    table = pa.Table.from_pylist(full, schema=schema)
    pq.write_table(table, buffer, **{"compression": "none", **options})
    return buffer.getvalue()


def here(data: bytes) -> Rows:
    """What this package reads."""
    return read_non_file_rows(io.BytesIO(data), size=len(data), kinds=CHECKPOINT_KINDS)


def by_pyarrow(data: bytes) -> Rows:
    """What the engine reads with pyarrow."""
    storage = MemoryStorage(f"memory://{uuid.uuid4()}")
    storage.create("file.parquet", data)
    return ActionFile(storage, FileInfo("file.parquet", len(data), 0)).non_file_actions()


def footer_of(data: bytes) -> ThriftStruct:
    """The footer of a file."""
    length = int.from_bytes(data[-8:-4], "little")
    footer, end = decode(data[-8 - length : -8])
    assert end == length
    return footer


def with_footer(data: bytes, change: Callable[[ThriftStruct], None]) -> bytes:
    """A file with another footer, made from its own."""
    footer = footer_of(data)
    length = len(encode(footer))
    change(footer)
    changed = encode(footer)
    return data[: -8 - length] + changed + len(changed).to_bytes(4, "little") + b"PAR1"
