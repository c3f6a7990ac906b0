"""Read the page index of a Parquet file, and make a small file of some pages of a column.

A page index has the position and the first row of each page (``OffsetIndex``), and the bounds of its values
(``ColumnIndex``). Only columns at the top of the schema that are no lists, maps or structs are read: each
of their values is a row.

What the index says of positions is checked: the pages must fill the column chunk without a gap, and the
header of each page that is read must have the length and the number of rows of the index. The bounds are
relied on, like other statistics.

Spec: parquet.thrift and PageIndex.md of Apache Parquet.
"""

from __future__ import annotations

import itertools
import struct
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from airflow_delta.engine.parquet.fallback import PyarrowFallback
from airflow_delta.engine.parquet.footer_fields import (
    CHUNK_METADATA,
    CHUNK_OFFSET,
    COLUMNS,
    COMPRESSED,
    DATA_OFFSET,
    DICTIONARY_OFFSET,
    GROUP_COMPRESSED,
    GROUP_OFFSET,
    GROUP_ROWS,
    GROUP_SIZE,
    INDEX_OFFSET,
    KEY_VALUES,
    MAGIC,
    NUM_ROWS,
    NUM_VALUES,
    ORDINAL,
    ROW_GROUPS,
    STATISTICS,
    TYPE,
    UNCOMPRESSED,
    chunk_extent,
    chunk_metadata,
    column_chunks,
    drop_fields,
)
from airflow_delta.engine.parquet.thrift import (
    BINARY,
    I32,
    I64,
    LIST,
    STRUCT,
    TRUE,
    ThriftList,
    ThriftStruct,
    decode,
    encode,
)

__all__ = [
    "ChunkPages",
    "IndexedFooter",
    "PageBounds",
    "column_file",
    "index_range",
    "read_page_bounds",
    "read_pages",
]

# FileMetaData and SchemaElement
_SCHEMA, _COLUMN_ORDERS = 2, 7
_TYPE_ORDER = 1
_REPETITION, _NAME, _NUM_CHILDREN = 3, 4, 5
_REPEATED = 2

# ColumnChunk
_OFFSET_INDEX, _OFFSET_INDEX_LENGTH, _COLUMN_INDEX, _COLUMN_INDEX_LENGTH = 4, 5, 6, 7
_ENCRYPTED = (1, 8, 9)  # The first one is the path of another file.
_DROPPED_FROM_CHUNK = (_OFFSET_INDEX, _OFFSET_INDEX_LENGTH, _COLUMN_INDEX, _COLUMN_INDEX_LENGTH)
_DROPPED_FROM_METADATA = (INDEX_OFFSET, DICTIONARY_OFFSET, STATISTICS, 13, 14, 15, 16)

# PageHeader
_PAGE_TYPE, _PAGE_UNCOMPRESSED, _PAGE_COMPRESSED = 1, 2, 3
_DATA_PAGE, _DICTIONARY_PAGE, _DATA_PAGE_V2 = 0, 2, 3
_HEADERS = {_DATA_PAGE: 5, _DATA_PAGE_V2: 8}

_UNPACK: dict[int, Callable[[bytes], Any]] = {
    0: lambda data: struct.unpack("<?", data)[0],
    1: lambda data: struct.unpack("<i", data)[0],
    2: lambda data: struct.unpack("<q", data)[0],
    4: lambda data: _number(struct.unpack("<f", data)[0]),
    5: lambda data: _number(struct.unpack("<d", data)[0]),
    6: bytes,
    7: bytes,
}
"""How to read a bound by the physical type. INT96 isn't here, because it has no order."""


class PageBounds(NamedTuple):
    """The bounds of the pages of a column chunk.

    Attributes:
        bounds: the least and the greatest value of each page, as physical values; None where unknown.
        is_null: whether a page has only nulls.
        null_counts: the number of nulls in each page; None if unknown.
    """

    bounds: list[tuple[Any, Any]]
    is_null: list[bool]
    null_counts: list[int] | None


class ChunkPages(NamedTuple):
    """The pages of a column chunk.

    Attributes:
        first_rows: the first row of each page in the row group, and the number of rows of the row group.
        positions: the position of each page in the file, and the position after the last one.
        start: the position of the dictionary page, or of the first page if there is none.
    """

    first_rows: list[int]
    positions: list[int]
    start: int

    def among(self, first: int, end: int) -> tuple[int, int]:
        """The pages with some rows: the first one, and the one after the last."""
        return bisect_right(self.first_rows, first) - 1, bisect_right(self.first_rows, end - 1)

    def ranges(self, first: int, end: int) -> list[tuple[int, int]]:
        """The start and the length of the bytes of some pages, after those of the dictionary page."""
        start, stop = self.positions[first], self.positions[end]
        return [(self.start, self.positions[0] - self.start), (start, stop - start)]


class IndexedFooter:
    """A footer, for finding the page indexes and for making files of single columns.

    Args:
        data: the bytes of the footer.

    Raises:
        PyarrowFallback: the footer is damaged.
    """

    def __init__(self, data: bytes) -> None:
        self._footer, _ = decode(data)
        self._groups = self._footer.list_of(ROW_GROUPS, STRUCT) or []
        elements = self._footer.list_of(_SCHEMA, STRUCT) or []
        if not elements:
            raise PyarrowFallback("the footer has no schema")
        self._root = elements[0]
        self._leaves = _flat_columns(elements)

    def has_order(self, column: str) -> bool:
        """Whether the footer says that bounds of a column are in the order of its type."""
        orders = self._footer.list_of(_COLUMN_ORDERS, STRUCT) or []
        index = self._leaves[column][0] if column in self._leaves else len(orders)
        return index < len(orders) and _TYPE_ORDER in orders[index].fields

    def chunk(self, group: int, column: str) -> ThriftStruct | None:
        """The ``ColumnChunk`` of a column in a row group; None if it has no page index."""
        if column not in self._leaves or group >= len(self._groups):
            return None
        chunks = column_chunks(self._groups[group])
        index, _ = self._leaves[column]
        if index >= len(chunks) or any(number in chunks[index].fields for number in _ENCRYPTED):
            return None
        return chunks[index] if chunks[index].i64(_OFFSET_INDEX) is not None else None

    def describe(
        self, group: int, column: str, pages: Sequence[int], key_values: Mapping[bytes, bytes]
    ) -> bytes:
        """The footer of a file of one column.

        Args:
            group: the row group that the pages are from.
            column: the column.
            pages: the number of rows, the lengths of the dictionary page and of the other pages, and the
                length of all of them when they aren't compressed.
            key_values: the metadata.
        """
        num_rows, dictionary, data, uncompressed = pages
        index, element = self._leaves[column]
        chunk = column_chunks(self._groups[group])[index]
        metadata = drop_fields(chunk_metadata(chunk), _DROPPED_FROM_METADATA)
        start = len(MAGIC)
        metadata.fields[NUM_VALUES] = (I64, num_rows)
        metadata.fields[UNCOMPRESSED] = (I64, uncompressed)
        metadata.fields[COMPRESSED] = (I64, dictionary + data)
        metadata.fields[DATA_OFFSET] = (I64, start + dictionary)
        if dictionary:
            metadata.fields[DICTIONARY_OFFSET] = (I64, start)
        moved = drop_fields(chunk, _DROPPED_FROM_CHUNK)
        moved.fields[CHUNK_OFFSET] = (I64, 0)
        moved.fields[CHUNK_METADATA] = (STRUCT, _sorted(metadata))
        row_group = drop_fields(self._groups[group], (GROUP_OFFSET, GROUP_COMPRESSED, ORDINAL, 4))
        row_group.fields[COLUMNS] = (LIST, ThriftList(STRUCT, [_sorted(moved)]))
        row_group.fields[GROUP_SIZE] = (I64, uncompressed)
        row_group.fields[GROUP_ROWS] = (I64, num_rows)
        footer = drop_fields(self._footer, (KEY_VALUES, _COLUMN_ORDERS))
        root = ThriftStruct({**self._root.fields, _NUM_CHILDREN: (I32, 1)})
        footer.fields[_SCHEMA] = (LIST, ThriftList(STRUCT, [_sorted(root), element]))
        footer.fields[NUM_ROWS] = (I64, num_rows)
        footer.fields[ROW_GROUPS] = (LIST, ThriftList(STRUCT, [row_group]))
        if key_values:
            pairs = [
                ThriftStruct({1: (BINARY, key), 2: (BINARY, value)})
                for key, value in key_values.items()
            ]
            footer.fields[KEY_VALUES] = (LIST, ThriftList(STRUCT, pairs))
        return encode(_sorted(footer))


def index_range(chunk: ThriftStruct, *, of_bounds: bool) -> tuple[int, int] | None:
    """The start and the length of an index of a ``ColumnChunk``; None without one.

    Args:
        chunk: the chunk.
        of_bounds: whether to find the ``ColumnIndex``, and not the ``OffsetIndex``.
    """
    offset, length = (
        (_COLUMN_INDEX, _COLUMN_INDEX_LENGTH)
        if of_bounds
        else (_OFFSET_INDEX, _OFFSET_INDEX_LENGTH)
    )
    start, size = chunk.i64(offset), chunk.i32(length)
    return (start, size) if start and size and start > 0 and size > 0 else None


def read_pages(chunk: ThriftStruct, data: bytes, *, num_rows: int) -> ChunkPages:
    """Read an ``OffsetIndex``.

    Args:
        chunk: the ``ColumnChunk``.
        data: the bytes of the index.
        num_rows: the number of rows of the row group.

    Raises:
        PyarrowFallback: the index is damaged, or doesn't fit the chunk.
    """
    start, end = chunk_extent(chunk_metadata(chunk))
    locations = decode(data)[0].list_of(1, STRUCT) or []
    pages = [(page.i64(1), page.i32(2), page.i64(3)) for page in locations]
    if not pages or any(None in page for page in pages):
        raise PyarrowFallback("an OffsetIndex lacks a field")
    if chunk_metadata(chunk).i64(NUM_VALUES) != num_rows:
        raise PyarrowFallback("a column chunk has another number of values than rows")
    first_rows = [int(page[2] or 0) for page in pages] + [num_rows]
    positions = [int(page[0] or 0) for page in pages]
    ends = [int(page[0] or 0) + int(page[1] or 0) for page in pages]
    if (
        first_rows[0]
        or any(a >= b for a, b in itertools.pairwise(first_rows))
        or positions[0] < start
        or any(a >= b for a, b in itertools.pairwise([*positions, end]))
        or ends != [*positions[1:], end]
    ):
        raise PyarrowFallback("an OffsetIndex doesn't fit its column chunk")
    return ChunkPages(first_rows, [*positions, end], start)


def read_page_bounds(chunk: ThriftStruct, data: bytes, *, num_pages: int) -> PageBounds:
    """Read a ``ColumnIndex``.

    Args:
        chunk: the ``ColumnChunk``.
        data: the bytes of the index.
        num_pages: the number of pages by the ``OffsetIndex``.

    Raises:
        PyarrowFallback: the index is damaged, has another number of pages, or bounds of a type that has no
            order.
    """
    index, _ = decode(data)
    unpack = _UNPACK.get(chunk_metadata(chunk).i32(TYPE) or 0)
    is_null = _flags(index, 1)
    low, high = index.list_of(2, BINARY) or [], index.list_of(3, BINARY) or []
    null_counts = index.list_of(5, I64)
    lists = [is_null, low, high] + ([null_counts] if null_counts is not None else [])
    if unpack is None or any(len(each) != num_pages for each in lists):
        raise PyarrowFallback("a ColumnIndex doesn't fit its column chunk")
    try:
        bounds = [
            (None, None) if null else (unpack(least), unpack(greatest))
            for null, least, greatest in zip(is_null, low, high, strict=True)
        ]
    except struct.error as error:
        raise PyarrowFallback(f"a ColumnIndex has a bound of another type: {error}") from error
    return PageBounds(bounds, is_null, null_counts)


def column_file(
    footer: IndexedFooter,
    group: int,
    column: str,
    rows: Sequence[int],
    contents: Sequence[bytes],
    key_values: Mapping[bytes, bytes],
) -> bytes:
    """Make a Parquet file of some neighbouring pages of a column.

    Args:
        footer: the footer of the file that they are from.
        group: their row group.
        column: the column.
        rows: the first row of each page, and the one after the last.
        contents: the bytes of the dictionary page, which may be none, and those of the pages.
        key_values: the metadata of the new file.

    Raises:
        PyarrowFallback: the pages aren't as in the index.
    """
    dictionary, data = contents
    uncompressed = 0
    if dictionary:
        length, size, values = _page(dictionary, 0, is_dictionary=True)
        uncompressed += size
        if length != len(dictionary):
            raise PyarrowFallback("a dictionary page has another length than by the index")
    position = 0
    for first, end in itertools.pairwise(rows):
        length, size, values = _page(data, position, is_dictionary=False)
        position += length
        uncompressed += size
        if values != end - first:
            raise PyarrowFallback(f"a page has {values} rows, and {end - first} by the index")
    if position != len(data):
        raise PyarrowFallback("the pages have another length than by the index")
    described = footer.describe(
        group,
        column,
        (rows[-1] - rows[0], len(dictionary), len(data), uncompressed),
        key_values,
    )
    return b"".join(
        (MAGIC, dictionary, data, described, len(described).to_bytes(4, "little"), MAGIC)
    )


def _page(data: bytes, start: int, *, is_dictionary: bool) -> tuple[int, int, int]:
    """The length of a page, its length when it isn't compressed, both with the header, and its values."""
    header, position = decode(data, start)
    compressed, uncompressed = header.i32(_PAGE_COMPRESSED), header.i32(_PAGE_UNCOMPRESSED)
    if compressed is None or uncompressed is None or compressed < 0 or uncompressed < 0:
        raise PyarrowFallback("a page has no length")
    length = position - start + compressed
    size = position - start + uncompressed
    type_ = header.i32(_PAGE_TYPE)
    if is_dictionary:
        if type_ != _DICTIONARY_PAGE:
            raise PyarrowFallback("there is no dictionary page before the first page")
        return length, size, 0
    number = _HEADERS.get(-1 if type_ is None else type_)
    values = None if number is None else header.struct(number)
    count = None if values is None else values.i32(1)
    if count is None:
        raise PyarrowFallback("there is no data page where the index has one")
    return length, size, count


def _flat_columns(elements: Sequence[ThriftStruct]) -> dict[str, tuple[int, ThriftStruct]]:
    """The index and the schema element of each leaf at the top, by name; without those that repeat."""
    found: list[tuple[str, int, ThriftStruct]] = []
    leaf, depth = 0, 0
    for element in elements[1:]:
        children = element.i32(_NUM_CHILDREN) or 0
        if not depth and not children and element.i32(_REPETITION) != _REPEATED:
            found.append((element.text(_NAME) or "", leaf, element))
        depth = max(depth - 1, 0) + children
        leaf += not children
    counts = Counter(name for name, _, _ in found)
    return {name: (index, element) for name, index, element in found if counts[name] == 1}


def _flags(index: ThriftStruct, number: int) -> list[bool]:
    found = index.fields.get(number, (0, None))
    if found[0] != LIST or found[1].item_type not in (TRUE, 2):
        raise PyarrowFallback("a ColumnIndex lacks its null pages")
    flags: list[bool] = found[1].items
    return flags


def _number(value: float) -> float | None:
    """A bound, which says nothing if it is NaN."""
    return None if value != value else value


def _sorted(struct_: ThriftStruct) -> ThriftStruct:
    return ThriftStruct(dict(sorted(struct_.fields.items())))
