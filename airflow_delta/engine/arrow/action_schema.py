"""The Arrow types of file actions, and `FileActions`, a batch of them.

Columns have the names of the protocol's ``add`` and ``remove`` (PROTOCOL.md, "Add File and Remove
File"; "Checkpoint Schema"). A million files are a few Arrow columns, never a million objects.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

__all__ = [
    "ADD_FIELDS",
    "DELETION_VECTOR_TYPE",
    "FILE_KEY_COLUMNS",
    "POSITION",
    "REMOVE_FIELDS",
    "STRING_MAP",
    "VERSION",
    "FileActions",
    "add_schema",
    "remove_schema",
]

STRING_MAP = pa.map_(pa.string(), pa.string())
"""``partitionValues`` and ``tags``."""

DELETION_VECTOR_TYPE = pa.struct(
    [
        ("storageType", pa.string()),
        ("pathOrInlineDv", pa.string()),
        ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()),
        ("cardinality", pa.int64()),
        ("maxRowIndex", pa.int64()),
    ]
)
"""The deletion vector descriptor (PROTOCOL.md, "Deletion Vector Descriptor Schema")."""

ADD_FIELDS = {
    "path": pa.string(),
    "partitionValues": STRING_MAP,
    "size": pa.int64(),
    "modificationTime": pa.int64(),
    "dataChange": pa.bool_(),
    "stats": pa.string(),
    "tags": STRING_MAP,
    "deletionVector": DELETION_VECTOR_TYPE,
    "baseRowId": pa.int64(),
    "defaultRowCommitVersion": pa.int64(),
    "clusteringProvider": pa.string(),
}
"""The columns of an ``add`` and their types, in the protocol's order."""

REMOVE_FIELDS = {
    "path": pa.string(),
    "deletionTimestamp": pa.int64(),
    "dataChange": pa.bool_(),
    "extendedFileMetadata": pa.bool_(),
    "partitionValues": STRING_MAP,
    "size": pa.int64(),
    "stats": pa.string(),
    "tags": STRING_MAP,
    "deletionVector": DELETION_VECTOR_TYPE,
    "baseRowId": pa.int64(),
    "defaultRowCommitVersion": pa.int64(),
}
"""The columns of a ``remove`` and their types, in the protocol's order."""

FILE_KEY_COLUMNS = ("path", "deletionVector")
"""The columns that identify a file action; every projection keeps them."""

VERSION = "version"
"""An additional column of actions from commits: the version of the commit, int64."""

POSITION = "position"
"""An additional column of actions from commits: the position in the log, int64. It ascends over adds and
removes together."""


def add_schema(columns: tuple[str, ...] | None = None) -> pa.Schema:
    """The Arrow schema of adds with some of their columns (None: all), in the protocol's order."""
    return _schema(ADD_FIELDS, columns)


def remove_schema(columns: tuple[str, ...] | None = None) -> pa.Schema:
    """The Arrow schema of removes with some columns (None: all), in the protocol's order."""
    return _schema(REMOVE_FIELDS, columns)


def _schema(fields: dict[str, pa.DataType], columns: tuple[str, ...] | None) -> pa.Schema:
    wanted = fields if columns is None else {*columns, *FILE_KEY_COLUMNS}
    return pa.schema([(name, type_) for name, type_ in fields.items() if name in wanted])


@dataclass(frozen=True, slots=True)
class FileActions:
    """File actions of one part of the log: one row per action.

    Attributes:
        adds: `add_schema` columns; from commits also `VERSION` and `POSITION`.
        removes: `remove_schema` columns; from commits also `VERSION` and `POSITION`.
    """

    adds: pa.Table
    removes: pa.Table
