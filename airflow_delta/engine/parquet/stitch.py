"""Build a Parquet file from encoded row groups, by copying their bytes and writing a new footer.

The pages of a row group don't record their position in the file; only the footer does. So
`StitchedFile` moves a row group by copying its bytes and changing the offsets in the footer. That
spares decoding and encoding rows that didn't change, and joins row groups that several threads encoded.
`replace_columns` makes a row group of the columns of two.

Row groups are only copied between files that agree in their traits and in the layout of their chunks.
All else raises `PyarrowFallback`, and the caller encodes the rows again.

Spec: parquet.thrift and README.md of Apache Parquet.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from airflow_delta.engine.parquet.fallback import PyarrowFallback
from airflow_delta.engine.parquet.footer_fields import (
    CHUNK_METADATA,
    CHUNK_OFFSET,
    CODEC,
    COLUMNS,
    GROUP_COMPRESSED,
    GROUP_OFFSET,
    GROUP_SIZE,
    MAGIC,
    NUM_ROWS,
    OFFSETS,
    ORDINAL,
    PATH,
    ROW_GROUPS,
    STATISTICS,
    TYPE,
    UNCOMPRESSED,
    chunk_extent,
    chunk_metadata,
    chunk_path,
    column_chunks,
    drop_fields,
)
from airflow_delta.engine.parquet.stored_file import StoredFile, StoredGroup, parse_stored_file
from airflow_delta.engine.parquet.thrift import I64, LIST, STRUCT, ThriftList, ThriftStruct, encode

__all__ = ["StitchedFile", "replace_columns"]

# The new footer leaves out optional fields. Page indexes and bloom filters lie outside of row groups,
# so they aren't copied, and references to them must go. Counts of pages by encoding and histograms of
# levels go because each reader of a checkpoint parses all of its footer: this saves half of it.
_DROPPED_FROM_CHUNK = (4, 5, 6, 7)
_DROPPED_FROM_METADATA = (13, 14, 15, 16)


class StitchedFile:
    """A Parquet file in the making: append row groups, then `close` it.

    Args:
        stream: where the file is written; it must be empty.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        stream.write(MAGIC)
        self._position = len(MAGIC)
        self._traits: ThriftStruct | None = None
        self._layout: list[tuple[object, ...]] | None = None
        self._groups: list[ThriftStruct] = []
        self._num_rows = 0

    def check(self, file: StoredFile, groups: Iterable[StoredGroup]) -> None:
        """Check that row groups of a file can be appended.

        Raises:
            PyarrowFallback: the file has other traits than those before, or the chunks of a row group
                have another layout.
        """
        # The traits include the name of the writer, by which readers know which mistakes to expect.
        if self._traits not in (None, file.traits):
            raise PyarrowFallback("the file has another schema or another writer")
        for group in groups:
            if self._layout not in (None, _layout(group)):
                raise PyarrowFallback("the row group has another compression or other statistics")

    def expect(self, file: StoredFile) -> None:
        """Check that all row groups of a file can be appended, and expect no others from now on.

        Raises:
            PyarrowFallback: see `check`.
        """
        for group in file.groups:
            self.check(file, [group])
            self._traits, self._layout = file.traits, _layout(group)

    def append(self, file: StoredFile, group: StoredGroup, data: Any) -> None:
        """Append a row group.

        Args:
            file: the file that the row group is from.
            group: the row group, one of the file's.
            data: its bytes, as many as its length.

        Raises:
            PyarrowFallback: see `check`; or there are more or fewer bytes.
        """
        self.check(file, [group])
        if len(data) != group.length:
            raise PyarrowFallback(f"a row group has {len(data)} bytes, expected {group.length}")
        if self._traits is None:
            self._traits = file.traits
        if self._layout is None:
            self._layout = _layout(group)
        self._groups.append(_move_group(group.description, self._position - group.start))
        self._num_rows += group.num_rows
        self._stream.write(data)
        self._position += group.length

    def append_file(self, data: Any) -> None:
        """Append all row groups of a file that is in memory.

        Raises:
            PyarrowFallback: see `append`; or it is no such file.
        """
        content, file = memoryview(data), parse_stored_file(data)
        self.check(file, file.groups)
        self._traits = file.traits
        for group in file.groups:
            self.append(file, group, content[group.start : group.start + group.length])

    def close(self) -> bytes:
        """Write the footer.

        Returns:
            All that was written after the row groups: the footer's bytes, its length and the magic
            number.

        Raises:
            PyarrowFallback: no file was appended, so there is no schema.
        """
        if self._traits is None:
            raise PyarrowFallback("a file without row groups has no schema")
        fields = {
            **self._traits.fields,
            NUM_ROWS: (I64, self._num_rows),
            ROW_GROUPS: (LIST, ThriftList(STRUCT, self._groups)),
        }
        footer = encode(ThriftStruct(dict(sorted(fields.items()))))
        end = footer + len(footer).to_bytes(4, "little") + MAGIC
        self._stream.write(end)
        self._position += len(end)
        return end


def replace_columns(
    group: StoredGroup, data: Any, *, replacement: StoredGroup, replacement_data: Any
) -> tuple[StoredGroup, bytes]:
    """Replace some columns of a row group by those of another one.

    Args:
        group: the row group.
        data: its bytes.
        replacement: a row group of as many rows, all of whose columns the first one has.
        replacement_data: its bytes.

    Returns:
        The new row group, as it would be at the start of a file, and its bytes.

    Raises:
        PyarrowFallback: the numbers of rows differ, or the first row group lacks a column.
    """
    others = {chunk_path(chunk): chunk for chunk in column_chunks(replacement.description)}
    if replacement.num_rows != group.num_rows:
        raise PyarrowFallback(
            f"columns of {replacement.num_rows} rows don't fit to {group.num_rows}"
        )
    views = memoryview(data), memoryview(replacement_data)
    pieces, chunks = [], []
    size, start = 0, len(MAGIC)
    position = start
    for own in column_chunks(group.description):
        other = others.pop(chunk_path(own), None)
        chunk, view, origin = (
            (own, views[0], group.start) if other is None else (other, views[1], replacement.start)
        )
        first, end = chunk_extent(chunk_metadata(chunk))
        pieces.append(view[first - origin : end - origin])
        chunks.append(_move_chunk(chunk, position - first))
        position += end - first
        size += chunk_metadata(chunk).i64(UNCOMPRESSED) or 0
    if others:
        raise PyarrowFallback("there are columns that the row group doesn't have")
    description = drop_fields(group.description, (ORDINAL,))
    description.fields[COLUMNS] = (LIST, ThriftList(STRUCT, chunks))
    for number, value in (
        (GROUP_SIZE, size),
        (GROUP_OFFSET, start),
        (GROUP_COMPRESSED, position - start),
    ):
        if number in description.fields:
            description.fields[number] = (I64, value)
    return StoredGroup(description, group.num_rows, start, position - start, size), b"".join(pieces)


def _layout(group: StoredGroup) -> list[tuple[object, ...]]:
    """The properties that the chunks of all row groups must share: types, paths, codecs, statistics."""
    chunks = map(chunk_metadata, column_chunks(group.description))
    return [(c.i32(TYPE), c.fields.get(PATH), c.i32(CODEC), STATISTICS in c.fields) for c in chunks]


def _move_group(description: ThriftStruct, distance: int) -> ThriftStruct:
    """The description of a row group after its bytes moved by a distance."""
    moved = drop_fields(description, (ORDINAL,))
    chunks = [_move_chunk(chunk, distance) for chunk in column_chunks(description)]
    moved.fields[COLUMNS] = (LIST, ThriftList(STRUCT, chunks))
    offset = description.i64(GROUP_OFFSET)
    if offset is not None:
        moved.fields[GROUP_OFFSET] = (I64, offset + distance)
    return moved


def _move_chunk(chunk: ThriftStruct, distance: int) -> ThriftStruct:
    metadata = drop_fields(chunk_metadata(chunk), _DROPPED_FROM_METADATA)
    for number in OFFSETS:
        if offset := metadata.i64(number):
            metadata.fields[number] = (I64, offset + distance)
    moved = drop_fields(chunk, _DROPPED_FROM_CHUNK)
    if CHUNK_OFFSET in moved.fields:
        moved.fields[CHUNK_OFFSET] = (I64, 0)
    moved.fields[CHUNK_METADATA] = (STRUCT, metadata)
    return moved
