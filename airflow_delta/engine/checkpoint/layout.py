"""The columns of the checkpoints that the engine writes, and the conversion of actions to rows.

PROTOCOL.md, "Checkpoint Schema": one struct column for each kind of action; each row sets one of
them. Fields that the protocol requires of an action are required inside its struct, so no reader
can meet an add without a path. The struct itself is null in the rows of other kinds.

Arrow needs a value even if a required field is below a null struct, so `null_structs` inserts an
empty value. Parquet doesn't store it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.action_schema import ADD_FIELDS, REMOVE_FIELDS, STRING_MAP
from airflow_delta.engine.arrow.numpy_arrays import bool_array
from airflow_delta.engine.arrow.python_arrays import array_of, scalar_of

__all__ = [
    "DICTIONARY_LEAVES",
    "STATISTICS_LEAVES",
    "action_structs",
    "checkpoint_schema",
    "file_structs",
    "null_structs",
]

_FEATURES = pa.list_(pa.field("element", pa.string()))

_PROTOCOL = pa.struct(
    [
        pa.field("minReaderVersion", pa.int32(), nullable=False),
        pa.field("minWriterVersion", pa.int32(), nullable=False),
        pa.field("readerFeatures", _FEATURES),
        pa.field("writerFeatures", _FEATURES),
    ]
)
_FORMAT = pa.struct(
    [pa.field("provider", pa.string(), nullable=False), pa.field("options", STRING_MAP)]
)
_METADATA = pa.struct(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("description", pa.string()),
        pa.field("format", _FORMAT, nullable=False),
        pa.field("schemaString", pa.string()),
        pa.field("partitionColumns", pa.list_(pa.field("element", pa.string())), nullable=False),
        pa.field("configuration", STRING_MAP, nullable=False),
        pa.field("createdTime", pa.int64()),
    ]
)
_TXN = pa.struct(
    [
        pa.field("appId", pa.string(), nullable=False),
        pa.field("version", pa.int64(), nullable=False),
        pa.field("lastUpdated", pa.int64()),
    ]
)
_DOMAIN_METADATA = pa.struct(
    [
        pa.field("domain", pa.string(), nullable=False),
        pa.field("configuration", pa.string(), nullable=False),
        pa.field("removed", pa.bool_(), nullable=False),
    ]
)

_WIDEST_VALUE = 16
"""Bytes of the widest value of a leaf, a decimal."""

_REQUIRED = {
    "add": ("path", "partitionValues", "size", "modificationTime", "dataChange"),
    "remove": ("path", "dataChange"),
}

# Tombstones serve VACUUM, which needs neither (PROTOCOL.md, "Checkpoints").
_NOT_IN_REMOVE = ("stats", "tags")

_FILE_DICTIONARY = (
    "partitionValues.key_value.key",
    "partitionValues.key_value.value",
    "deletionVector.storageType",
    "defaultRowCommitVersion",
)

DICTIONARY_LEAVES = (
    *(f"{kind}.{leaf}" for kind in _REQUIRED for leaf in _FILE_DICTIONARY),
    "add.tags.key_value.key",
    "add.tags.key_value.value",
    "add.clusteringProvider",
    "remove.deletionTimestamp",
    "remove.extendedFileMetadata",
)
"""The leaves with few distinct values. For paths and statistics a dictionary only costs time."""

STATISTICS_LEAVES = (
    "protocol.minReaderVersion",
    "metaData.id",
    "txn.appId",
    "domainMetadata.domain",
    *(
        f"{kind}.{leaf}"
        for kind in _REQUIRED
        for leaf in ("path", "deletionVector.storageType", "baseRowId", "defaultRowCommitVersion")
    ),
    "add.clusteringProvider",
    "remove.deletionTimestamp",
)
"""The leaves by which readers, including ours, skip row groups and columns."""


def checkpoint_schema(*, stats: bool = True, parsed: Sequence[pa.Field] = ()) -> pa.Schema:
    """The schema of a V1 checkpoint.

    Args:
        stats: whether adds carry their statistics as JSON.
        parsed: further columns of adds: ``partitionValues_parsed`` and ``stats_parsed``.
    """
    add = _file_struct("add", ADD_FIELDS, () if stats else ("stats",), parsed)
    remove = _file_struct("remove", REMOVE_FIELDS, _NOT_IN_REMOVE)
    return pa.schema(
        [
            ("protocol", _PROTOCOL),
            ("metaData", _METADATA),
            ("txn", _TXN),
            ("domainMetadata", _DOMAIN_METADATA),
            ("add", add),
            ("remove", remove),
        ]
    )


def _file_struct(
    kind: str,
    fields: Mapping[str, pa.DataType],
    left_out: Sequence[str],
    further: Sequence[pa.Field] = (),
) -> pa.StructType:
    required = _REQUIRED[kind]
    columns = [
        pa.field(name, type_, nullable=name not in required)
        for name, type_ in fields.items()
        if name not in left_out
    ]
    return pa.struct([*columns, *further])


def action_structs(actions: Sequence[Mapping[str, Any]], type_: pa.StructType) -> pa.StructArray:
    """Convert actions of one kind, given as JSON objects, to rows of their column."""
    return array_of(actions, type_)


def file_structs(files: pa.Table, type_: pa.StructType) -> pa.ChunkedArray:
    """Convert adds or removes to rows of their column, without copying; ``dataChange`` becomes false.

    Args:
        files: columns of `action_schema`.
        type_: the type of the column, of `checkpoint_schema`.

    Raises:
        ValueError: a required column has a null; the message begins with its name.
    """
    return pa.chunked_array([_structs(batch, type_) for batch in files.to_batches()], type_)


def _structs(files: pa.RecordBatch, type_: pa.StructType) -> pa.StructArray:
    rows = files.num_rows
    columns = []
    for field in type_:
        if field.name == "dataChange":
            # A checkpoint repeats what commits contain; it changes no data.
            column = bool_array(np.zeros(rows, np.bool_))
        elif field.name in files.schema.names:
            column = files[field.name]
        else:
            column = pa.nulls(rows, field.type)
        if field.name == "partitionValues" and not field.nullable and column.null_count:
            column = pc.coalesce(column, scalar_of({}, STRING_MAP))
        if not field.nullable and column.null_count:
            row = pc.index(column.is_null(), scalar_of(True, pa.bool_())).as_py()
            raise ValueError(f"{field.name} of {files['path'][row].as_py()!r}")
        columns.append(column)
    return pa.StructArray.from_arrays(columns, fields=list(type_))


def null_structs(rows: int, type_: pa.StructType) -> pa.StructArray:
    """A column for a kind of action without any action. It takes the memory of one leaf."""
    # Zero bytes represent nulls, the offsets of empty texts and maps, false and 0. So one buffer
    # serves all leaves. Separate buffers would be as large as the adds of the row group.
    zeros = pa.py_buffer(bytes(_WIDEST_VALUE * (rows + 1)))
    return _nothing(rows, type_, zeros, nullable=True)


def _nothing(rows: int, type_: pa.DataType, zeros: pa.Buffer, *, nullable: bool) -> pa.Array:
    """Nulls; or empty values and zeros where nulls aren't allowed."""
    nested = rows if pa.types.is_struct(type_) else 0
    fields = [type_.field(number) for number in range(type_.num_fields)]
    return pa.Array.from_buffers(
        type_,
        rows,
        [zeros if nullable else None, *[zeros] * (type_.num_buffers - 1)],
        null_count=rows if nullable else 0,
        children=[_nothing(nested, field.type, zeros, nullable=field.nullable) for field in fields],
    )
