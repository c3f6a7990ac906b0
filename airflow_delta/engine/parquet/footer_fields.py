"""The fields of a Parquet footer that copying row groups reads and changes, by their Thrift numbers.

Spec: parquet.thrift of Apache Parquet.
"""

from __future__ import annotations

from airflow_delta.engine.parquet.fallback import PyarrowFallback
from airflow_delta.engine.parquet.thrift import BINARY, STRUCT, ThriftStruct

__all__ = [
    "CHUNK_METADATA",
    "CHUNK_OFFSET",
    "CODEC",
    "COLUMNS",
    "COMPRESSED",
    "DATA_OFFSET",
    "DICTIONARY_OFFSET",
    "ENCODINGS",
    "GROUP_COMPRESSED",
    "GROUP_OFFSET",
    "GROUP_ROWS",
    "GROUP_SIZE",
    "INDEX_OFFSET",
    "KEY_VALUES",
    "MAGIC",
    "NUM_ROWS",
    "NUM_VALUES",
    "OFFSETS",
    "ORDINAL",
    "PATH",
    "ROW_GROUPS",
    "STATISTICS",
    "TYPE",
    "UNCOMPRESSED",
    "chunk_extent",
    "chunk_metadata",
    "chunk_path",
    "column_chunks",
    "drop_fields",
]

MAGIC = b"PAR1"
"""The first and the last four bytes of a Parquet file."""

# FileMetaData
NUM_ROWS, ROW_GROUPS, KEY_VALUES = 3, 4, 5

# RowGroup. The ordinal is optional, and only encryption uses it.
COLUMNS, GROUP_SIZE, GROUP_ROWS, GROUP_OFFSET, GROUP_COMPRESSED, ORDINAL = 1, 2, 3, 5, 6, 7

# ColumnChunk. The offset is deprecated, and writers must store 0.
CHUNK_OFFSET, CHUNK_METADATA = 2, 3

# ColumnMetaData
TYPE, ENCODINGS, PATH, CODEC, NUM_VALUES, UNCOMPRESSED, COMPRESSED = range(1, 8)
DATA_OFFSET, INDEX_OFFSET, DICTIONARY_OFFSET, STATISTICS = range(9, 13)
OFFSETS = (DATA_OFFSET, INDEX_OFFSET, DICTIONARY_OFFSET)


def column_chunks(row_group: ThriftStruct) -> list[ThriftStruct]:
    """The ``ColumnChunk`` structs of a ``RowGroup``."""
    return row_group.list_of(COLUMNS, STRUCT) or []


def chunk_metadata(chunk: ThriftStruct) -> ThriftStruct:
    """The ``ColumnMetaData`` of a ``ColumnChunk``.

    Raises:
        PyarrowFallback: it has none.
    """
    found = chunk.struct(CHUNK_METADATA)
    if found is None:
        raise PyarrowFallback("a chunk has no metadata")
    return found


def chunk_path(chunk: ThriftStruct) -> tuple[bytes, ...]:
    """The names from the top of the schema down to the leaf of a ``ColumnChunk``."""
    return tuple(chunk_metadata(chunk).list_of(PATH, BINARY) or ())


def chunk_extent(metadata: ThriftStruct) -> tuple[int, int]:
    """The first position of a chunk in its file, and the position after its last byte.

    Args:
        metadata: the ``ColumnMetaData`` of the chunk.

    Raises:
        PyarrowFallback: an offset or the length is missing.
    """
    # Some writers store 0 where there is no dictionary, or no index.
    offsets = [offset for number in OFFSETS if (offset := metadata.i64(number))]
    length = metadata.i64(COMPRESSED)
    if not offsets or length is None:
        raise PyarrowFallback("a chunk has no offset, or no length")
    return min(offsets), min(offsets) + length


def drop_fields(struct: ThriftStruct, numbers: tuple[int, ...]) -> ThriftStruct:
    """A copy of a struct without the fields of some numbers."""
    return ThriftStruct({n: field for n, field in struct.fields.items() if n not in numbers})
