"""The columns of the checkpoints we write, and how actions become rows of them.

PROTOCOL.md, "Checkpoint Schema": one struct column for each kind of action, of which a row sets
one. Columns that the protocol requires of an action are required inside its struct, so that no
reader can meet an add without a path; the struct itself is null in the rows of other kinds.

Arrow wants a value even where a required field lies below a null struct, so `null_structs` puts an
empty one there. Parquet doesn't store it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.action_schema import ADD_FIELDS, REMOVE_FIELDS, STRING_MAP
from airflow_delta.engine.arrow.python_arrays import scalar_of

__all__ = [
    "DICTIONARY_LEAVES",
    "STATISTICS_LEAVES",
    "checkpoint_schema",
    "file_structs",
    "null_structs",
    "small_structs",
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
"""The leaves with few distinct values; for paths and statistics a dictionary only costs time."""

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
"""The leaves by which readers, ours among them, leave out row groups and columns."""


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


def small_structs(actions: Sequence[Mapping[str, Any]], type_: pa.StructType) -> pa.StructArray:
    """Actions of one kind, given as JSON objects, as rows of their column."""
    return pa.array([_row(action, type_) for action in actions], type_)


def _row(value: Mapping[str, Any], type_: pa.StructType) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for field in type_:
        item = value.get(field.name)
        if item is not None and pa.types.is_struct(field.type):
            item = _row(item, field.type)
        elif item is not None and pa.types.is_map(field.type):
            item = list(item.items())
        row[field.name] = item
    return row


def file_structs(files: pa.Table, type_: pa.StructType) -> pa.StructArray:
    """Adds or removes as rows of their column; ``dataChange`` becomes false.

    Args:
        files: columns of `action_schema`, in one chunk each.
        type_: the type of the column, of `checkpoint_schema`.

    Raises:
        ValueError: a required column has a null; the message begins with its name.
    """
    rows = files.num_rows
    columns = []
    for field in type_:
        if field.name == "dataChange":
            # A checkpoint repeats what commits have told; it changes no data.
            column = pa.repeat(_EMPTY[pa.bool_()], rows)
        elif field.name in files.column_names:
            column = files[field.name].combine_chunks()
            column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
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
    """A column of a kind of action without one."""
    mask = pa.repeat(scalar_of(True, pa.bool_()), rows)
    return pa.StructArray.from_arrays(_no_values(rows, type_), fields=list(type_), mask=mask)


def _no_values(rows: int, type_: pa.StructType) -> list[pa.Array]:
    return [
        pa.nulls(rows, field.type) if field.nullable else _empty_values(rows, field.type)
        for field in type_
    ]


def _empty_values(rows: int, type_: pa.DataType) -> pa.Array:
    if pa.types.is_struct(type_):
        return pa.StructArray.from_arrays(_no_values(rows, type_), fields=list(type_))
    if pa.types.is_map(type_) or pa.types.is_list(type_):
        # Offsets that are all 0, and nothing behind them. Copying an empty list is much slower.
        offsets = pa.py_buffer(bytes(4 * (rows + 1)))
        entries = type_.field(0).type if pa.types.is_map(type_) else type_.value_type
        return pa.Array.from_buffers(type_, rows, [None, offsets], children=[pa.nulls(0, entries)])
    return pa.repeat(_EMPTY[type_], rows)


_EMPTY = {
    pa.string(): scalar_of("", pa.string()),
    pa.bool_(): scalar_of(False, pa.bool_()),
    pa.int32(): scalar_of(0, pa.int32()),
    pa.int64(): scalar_of(0, pa.int64()),
}
