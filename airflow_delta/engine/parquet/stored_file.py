"""Describe the row groups of a Parquet file, so that they can be copied without decoding them.

`read_stored_file` reads the footer of a file in the log, `parse_stored_file` that of a file in memory.
`check_pages` verifies the bytes of a row group before they are copied. `stitch` does the copying.

Spec: parquet.thrift and README.md of Apache Parquet.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping
from typing import Any, BinaryIO, NamedTuple

from airflow_delta.engine.parquet.fallback import PyarrowFallback
from airflow_delta.engine.parquet.footer_fields import (
    ENCODINGS,
    GROUP_ROWS,
    GROUP_SIZE,
    MAGIC,
    NUM_ROWS,
    NUM_VALUES,
    ROW_GROUPS,
    UNCOMPRESSED,
    chunk_extent,
    chunk_metadata,
    column_chunks,
    drop_fields,
)
from airflow_delta.engine.parquet.thrift import I32, STRUCT, ThriftStruct, decode

__all__ = [
    "StoredFile",
    "StoredGroup",
    "check_pages",
    "footer_start",
    "parse_stored_file",
    "read_stored_file",
]

_END = 8
"""The bytes after the footer: its length, and the magic number."""

# Of PageHeader, by the type of the page: the number of its type-specific header, and in that the
# numbers of the encodings.
_DATA_PAGE, _DICTIONARY_PAGE = 0, 2
_PAGE_HEADERS: Mapping[int | None, int] = {_DATA_PAGE: 5, _DICTIONARY_PAGE: 7}
_PAGE_ENCODINGS = {5: (2, 3, 4), 7: (2,)}

# Encryption of a file and of a chunk, and chunks in other files.
_UNSUPPORTED_IN_FILE = (8, 9)
_UNSUPPORTED_IN_CHUNK = (1, 8, 9)

_LARGE_FOOTER = 256 * 1024
"""A footer up to this size, in bytes, is read however small the file is."""


class StoredGroup(NamedTuple):
    """A row group as a file stores it.

    Attributes:
        description: its Thrift struct ``RowGroup`` in the footer.
        num_rows: the number of its rows.
        start: the position of its first page, in bytes.
        length: the number of bytes from there to the end of its last page.
        size: its length if its pages weren't compressed, in bytes.
    """

    description: ThriftStruct
    num_rows: int
    start: int
    length: int
    size: int


class StoredFile(NamedTuple):
    """A Parquet file whose row groups can be copied.

    Attributes:
        traits: the fields of the footer that hold for all of the file: all but the rows.
        groups: its row groups.
        footer_start: the position of the footer, in bytes.
        footer_length: its length.
        footer_checksum: the CRC-32 of its bytes, by which a file that was replaced is noticed.
    """

    traits: ThriftStruct
    groups: tuple[StoredGroup, ...]
    footer_start: int
    footer_length: int
    footer_checksum: int

    @classmethod
    def from_footer(cls, footer: bytes, *, end: int) -> StoredFile:
        """Describe the file of a footer.

        Args:
            footer: the bytes of the struct, without what follows it in a file.
            end: the position of the footer, before which row groups must end.

        Raises:
            PyarrowFallback: the footer is damaged or encrypted, or the bytes of a row group don't lie
                together.
        """
        metadata, length = decode(footer)
        if length != len(footer) or any(n in metadata.fields for n in _UNSUPPORTED_IN_FILE):
            raise PyarrowFallback("the footer is damaged, or the file is encrypted")
        descriptions = metadata.list_of(ROW_GROUPS, STRUCT)
        if descriptions is None:
            raise PyarrowFallback("the footer has no row groups")
        groups = []
        position = len(MAGIC)
        for description in descriptions:
            group = _stored_group(description, position)
            position = group.start + group.length
            groups.append(group)
        if position > end:
            raise PyarrowFallback(
                f"row groups end at {position}, after the start of the footer at {end}"
            )
        if metadata.i64(NUM_ROWS) != sum(group.num_rows for group in groups):
            raise PyarrowFallback("the row groups don't have as many rows as the file")
        traits = drop_fields(metadata, (NUM_ROWS, ROW_GROUPS))
        return cls(traits, tuple(groups), end, len(footer), zlib.crc32(footer))


def read_stored_file(source: BinaryIO, *, size: int) -> StoredFile:
    """Read the footer of a file.

    Args:
        source: the file.
        size: its size in bytes.

    Raises:
        PyarrowFallback: see `StoredFile.from_footer`. Or it is no Parquet file, or has another size.
            Or it has so many small row groups that copying them takes longer than encoding their rows.
    """
    start = footer_start(_read(source, max(size - _END, 0), _END), size)
    if size - start > max(_LARGE_FOOTER, size // 4):
        raise PyarrowFallback(f"the footer takes {size - start} of {size} bytes")
    return StoredFile.from_footer(_read(source, start, size - _END - start), end=start)


def parse_stored_file(data: Any) -> StoredFile:
    """Read the footer of a file that is in memory.

    Args:
        data: the bytes of the file, in any buffer.

    Raises:
        PyarrowFallback: see `read_stored_file`.
    """
    content = memoryview(data)
    start = footer_start(bytes(content[-_END:]), len(content))
    return StoredFile.from_footer(bytes(content[start:-_END]), end=start)


def check_pages(group: StoredGroup, data: bytes) -> None:
    """Verify the pages of a row group, so that no damage is copied.

    Each page is compared with its checksum. Page headers have no checksum: their numbers of values,
    sizes and encodings are compared with the footer instead. That leaves a few bits unverified, such
    as the number of values in a dictionary. With those wrong, no reader accepts the page.

    Args:
        group: the row group.
        data: its bytes.

    Raises:
        PyarrowFallback: a page is damaged, has no checksum, or is of an unsupported type.
    """
    view = memoryview(data)
    for chunk in column_chunks(group.description):
        metadata = chunk_metadata(chunk)
        encodings = set(metadata.list_of(ENCODINGS, I32) or ())
        position, end = (offset - group.start for offset in chunk_extent(metadata))
        values = size = 0
        while position < end:
            header, body = decode(data, position)
            stored, checksum = header.i32(3), header.i32(4)
            if stored is None or stored < 0 or body + stored > end:
                raise PyarrowFallback("a page runs over the end of its chunk")
            values += _check_page_header(header, encodings)
            size += body - position + (header.i32(2) or 0)
            position = body + stored
            if checksum is None or zlib.crc32(view[body:position]) != checksum & 0xFFFFFFFF:
                raise PyarrowFallback("a page doesn't have the checksum that it should")
        if (values, size) != (metadata.i64(NUM_VALUES), metadata.i64(UNCOMPRESSED)):
            raise PyarrowFallback(f"a chunk has pages of {values} values and {size} bytes")


def _check_page_header(header: ThriftStruct, known_encodings: set[int]) -> int:
    """Check a page header, and return how many values of the chunk its page holds."""
    type_ = header.i32(1)
    number = _PAGE_HEADERS.get(type_)
    if number is None or header.fields.keys() != {1, 2, 3, 4, number}:
        raise PyarrowFallback(f"the header of a page of the type {type_} has other fields")
    details = header.struct(number) or ThriftStruct()
    values = details.i32(1)
    encodings = [details.i32(field) for field in _PAGE_ENCODINGS[number]]
    if values is None or values < 0 or not known_encodings.issuperset(encodings):
        raise PyarrowFallback(f"a page of {values} values has the encodings {encodings}")
    # The values of a dictionary don't count as values of the chunk.
    return values if type_ == _DATA_PAGE else 0


def footer_start(end: bytes, size: int) -> int:
    """The position of a file's footer.

    Args:
        end: the last eight bytes of the file.
        size: the size of the file in bytes.

    Raises:
        PyarrowFallback: it is no Parquet file.
    """
    length = int.from_bytes(end[:4], "little")
    start = size - _END - length
    if end[4:] != MAGIC or start < len(MAGIC):
        raise PyarrowFallback(f"a file of {size} bytes doesn't end as Parquet does")
    return start


def _stored_group(description: ThriftStruct, first_position: int) -> StoredGroup:
    """Describe a row group, whose chunks must follow each other from a position on."""
    start = position = None
    for chunk in column_chunks(description):
        if any(number in chunk.fields for number in _UNSUPPORTED_IN_CHUNK):
            raise PyarrowFallback("a chunk is encrypted, or in another file")
        first, end = chunk_extent(chunk_metadata(chunk))
        if first < (first_position if position is None else position) or end < first:
            raise PyarrowFallback("chunks overlap, or lie in another order than the leaves")
        start = first if start is None else start
        position = end
    num_rows, size = description.i64(GROUP_ROWS), description.i64(GROUP_SIZE)
    if start is None or position is None or num_rows is None or size is None or num_rows < 0:
        raise PyarrowFallback("a row group has no chunks, no size, or no number of rows")
    return StoredGroup(description, num_rows, start, position - start, size)


def _read(source: BinaryIO, start: int, length: int) -> bytes:
    source.seek(start, os.SEEK_SET)
    data = source.read(length)
    if len(data) != length:
        raise PyarrowFallback(f"the file has {start + len(data)} bytes, expected more")
    return data
