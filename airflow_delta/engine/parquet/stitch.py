"""Put row groups together into one Parquet file, byte for byte, without decoding them.

The pages of a row group say nothing of where they lie; that is told by the footer alone. So a row group
can be moved by copying its bytes and telling its new place: from another file, which spares decoding
and encoding what didn't change, or from memory, where several were encoded at once.

What the footer says of a file as a whole holds for all its row groups: the schema, and the writer, whose
name tells readers which mistakes they must expect. So only row groups of files that agree in all of that
are put together, and only if their chunks are written in the same way: same codec, and statistics of the
same leaves. All else is refused with `NotReadHere`, and is for the caller to encode anew.

Page indexes and bloom filters lie outside of row groups; the new footer doesn't mention them. Nor does it
repeat counts of pages by encoding and histograms of levels. All of these are optional, and who reads the
actions of a checkpoint has no use for them, but must read all of its footer: half of it is saved.

Spec: parquet.thrift and README.md of Apache Parquet.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, BinaryIO, NamedTuple

from airflow_delta.engine.parquet.refusals import NotReadHere
from airflow_delta.engine.parquet.thrift import (
    BINARY,
    I32,
    I64,
    LIST,
    STRUCT,
    ThriftList,
    ThriftStruct,
    decode,
    encode,
)

__all__ = [
    "StitchedFile",
    "StoredFile",
    "StoredGroup",
    "check_pages",
    "read_stored_file",
    "stored_in",
    "with_columns",
]

_MAGIC = b"PAR1"
_END = 8
"""Bytes behind the footer: its length, and the magic number."""

# Fields by number. Of FileMetaData, beside the traits, which are all others:
_NUM_ROWS, _ROW_GROUPS = 3, 4
# Of RowGroup. The ordinal is optional, and for encryption.
_COLUMNS, _GROUP_SIZE, _GROUP_ROWS, _GROUP_OFFSET, _GROUP_COMPRESSED, _ORDINAL = 1, 2, 3, 5, 6, 7
# Of ColumnChunk. Its offset is deprecated, and 0 is what to write there.
_CHUNK_OFFSET, _METADATA = 2, 3
# Of ColumnMetaData:
_TYPE, _ENCODINGS, _PATH, _CODEC, _VALUES, _UNCOMPRESSED, _COMPRESSED = range(1, 8)
_DATA, _INDEX, _DICTIONARY, _STATISTICS = range(9, 13)
_OFFSETS = (_DATA, _INDEX, _DICTIONARY)

# Of PageHeader, by the type of the page: its part about such pages, and of this the encodings.
_DATA_PAGE, _DICTIONARY_PAGE = 0, 2
_PAGE_PARTS: Mapping[int | None, int] = {_DATA_PAGE: 5, _DICTIONARY_PAGE: 7}
_PAGE_ENCODINGS = {5: (2, 3, 4), 7: (2,)}

# What isn't told anew. Of a ColumnChunk: page indexes. Of a ColumnMetaData: counts of pages, bloom filters,
# histograms of levels.
_CHUNK_UNTOLD = (4, 5, 6, 7)
_METADATA_UNTOLD = (13, 14, 15, 16)

# Encryption, of a file and of a chunk, and chunks in other files.
_FILE_REFUSED = (8, 9)
_CHUNK_REFUSED = (1, 8, 9)


_LARGE_FOOTER = 256 * 1024
"""Footers up to this size, in bytes, are read however small the file is."""


class StoredGroup(NamedTuple):
    """A row group as it is stored in a file.

    Attributes:
        described: what the footer says of it, a Thrift struct ``RowGroup``.
        num_rows: how many rows it has.
        start: where its first page begins, in bytes.
        length: from there to the end of its last page, in bytes.
        size: how long it would be if its pages weren't compressed, in bytes.
    """

    described: ThriftStruct
    num_rows: int
    start: int
    length: int
    size: int


class StoredFile(NamedTuple):
    """A Parquet file whose row groups can be copied.

    Attributes:
        traits: what its footer says of the file as a whole: all but the rows.
        groups: its row groups.
    """

    traits: ThriftStruct
    groups: tuple[StoredGroup, ...]

    @classmethod
    def of(cls, footer: bytes, *, end: int) -> StoredFile:
        """What a footer tells.

        Args:
            footer: the bytes of the struct, without what follows it in a file.
            end: where it begins, which is where row groups end.

        Raises:
            NotReadHere: it is damaged, encrypted, or row groups aren't each in one place.
        """
        given, length = decode(footer)
        if length != len(footer) or any(number in given.fields for number in _FILE_REFUSED):
            raise NotReadHere("the footer is damaged, or the file is encrypted")
        described = given.list_of(_ROW_GROUPS, STRUCT)
        if described is None:
            raise NotReadHere("the footer has no row groups")
        groups = []
        position = len(_MAGIC)
        for item in described:
            group = _stored_group(item, position)
            position = group.start + group.length
            groups.append(group)
        if position > end:
            raise NotReadHere(f"row groups end at {position}, behind the footer's start at {end}")
        if given.i64(_NUM_ROWS) != sum(group.num_rows for group in groups):
            raise NotReadHere("the row groups don't have as many rows as the file")
        return cls(_without(given, (_NUM_ROWS, _ROW_GROUPS)), tuple(groups))


def read_stored_file(source: BinaryIO, *, size: int) -> StoredFile:
    """Read the footer of a file.

    Args:
        source: the file.
        size: its size in bytes.

    Raises:
        NotReadHere: see `StoredFile.of`; or it is no Parquet file, or of another size; or it has so many
            small row groups that to copy them takes longer than to write their rows anew.
    """
    start = _footer_start(_read(source, max(size - _END, 0), _END), size)
    if size - start > max(_LARGE_FOOTER, size // 4):
        raise NotReadHere(f"the footer takes {size - start} of {size} bytes")
    return StoredFile.of(_read(source, start, size - _END - start), end=start)


def stored_in(data: Any) -> StoredFile:
    """The footer of a file that is in memory.

    Args:
        data: the bytes of the file, in any buffer.

    Raises:
        NotReadHere: see `read_stored_file`.
    """
    content = memoryview(data)
    start = _footer_start(bytes(content[-_END:]), len(content))
    return StoredFile.of(bytes(content[start:-_END]), end=start)


class StitchedFile:
    """A Parquet file in the making: row groups in, and at the end the footer.

    Args:
        stream: where it goes; it must be empty.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        stream.write(_MAGIC)
        self._position = len(_MAGIC)
        self._traits: ThriftStruct | None = None
        self._manner: list[tuple[object, ...]] | None = None
        self._groups: list[ThriftStruct] = []
        self._num_rows = 0

    def check(self, file: StoredFile, groups: Iterable[StoredGroup]) -> None:
        """Make sure that row groups of a file can be appended.

        Raises:
            NotReadHere: the file differs from those before in what holds for all of a file, or the
                chunks of a row group are written in another manner.
        """
        if self._traits not in (None, file.traits):
            raise NotReadHere("the schema or the writer is another one")
        for group in groups:
            if self._manner not in (None, _manner(group)):
                raise NotReadHere("the row group is compressed otherwise, or has other statistics")

    def append(self, file: StoredFile, group: StoredGroup, data: Any) -> None:
        """Append a row group.

        Args:
            file: where it comes from.
            group: the row group, one of the file's.
            data: its bytes, as many as its length.

        Raises:
            NotReadHere: see `check`; or there are more or fewer bytes.
        """
        self.check(file, [group])
        if len(data) != group.length:
            raise NotReadHere(f"a row group has {len(data)} bytes, expected {group.length}")
        if self._traits is None:
            self._traits = file.traits
        if self._manner is None:
            self._manner = _manner(group)
        self._groups.append(_moved(group.described, self._position - group.start))
        self._num_rows += group.num_rows
        self._stream.write(data)
        self._position += group.length

    def append_file(self, data: Any) -> None:
        """Append all row groups of a file that is in memory.

        Raises:
            NotReadHere: see `append`; or it isn't such a file.
        """
        content, file = memoryview(data), stored_in(data)
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
            NotReadHere: no file has told the schema.
        """
        if self._traits is None:
            raise NotReadHere("a file without row groups has no schema")
        fields = {
            **self._traits.fields,
            _NUM_ROWS: (I64, self._num_rows),
            _ROW_GROUPS: (LIST, ThriftList(STRUCT, self._groups)),
        }
        footer = encode(ThriftStruct(dict(sorted(fields.items()))))
        end = footer + len(footer).to_bytes(4, "little") + _MAGIC
        self._stream.write(end)
        self._position += len(end)
        return end


def check_pages(group: StoredGroup, data: bytes) -> None:
    """Look for damage in a row group, so that it isn't copied.

    Each page is compared with its checksum. The header before it has none: what the headers of a chunk
    tell is compared with what the footer tells of the chunk, which leaves few bits that nothing tells
    of, the length of a dictionary for one. With these wrong, no reader takes the page.

    Args:
        group: the row group.
        data: its bytes.

    Raises:
        NotReadHere: a page is damaged, has no checksum, or is of a kind that isn't known here.
    """
    view = memoryview(data)
    for chunk in _chunks(group.described):
        about = _metadata(chunk)
        encodings = set(about.list_of(_ENCODINGS, I32) or ())
        position, end = (place - group.start for place in _extent(about))
        values = size = 0
        while position < end:
            header, body = decode(data, position)
            stored, checksum = header.i32(3), header.i32(4)
            if stored is None or stored < 0 or body + stored > end:
                raise NotReadHere("a page runs over the end of its chunk")
            values += _checked_values(header, encodings)
            size += body - position + (header.i32(2) or 0)
            position = body + stored
            if checksum is None or zlib.crc32(view[body:position]) != checksum & 0xFFFFFFFF:
                raise NotReadHere("a page doesn't have the checksum that it should")
        if (values, size) != (about.i64(_VALUES), about.i64(_UNCOMPRESSED)):
            raise NotReadHere(f"a chunk has pages of {values} values and {size} bytes")


def with_columns(
    group: StoredGroup, data: Any, *, taken: StoredGroup, taken_data: Any
) -> tuple[StoredGroup, bytes]:
    """A row group some columns of which are replaced by those of another one.

    Args:
        group: the row group.
        data: its bytes.
        taken: what has columns of the same paths, for as many rows, and no other columns.
        taken_data: its bytes.

    Returns:
        The row group as it would be at the start of a file, and its bytes.

    Raises:
        NotReadHere: there are more or fewer rows, or a column that the row group doesn't have.
    """
    others = {_path(chunk): chunk for chunk in _chunks(taken.described)}
    if taken.num_rows != group.num_rows:
        raise NotReadHere(f"columns of {taken.num_rows} rows don't fit to {group.num_rows}")
    views = memoryview(data), memoryview(taken_data)
    pieces, chunks = [], []
    size, start = 0, len(_MAGIC)
    position = start
    for mine in _chunks(group.described):
        other = others.pop(_path(mine), None)
        chunk, view, origin = (
            (mine, views[0], group.start) if other is None else (other, views[1], taken.start)
        )
        first, end = _extent(_metadata(chunk))
        pieces.append(view[first - origin : end - origin])
        chunks.append(_moved_chunk(chunk, position - first))
        position += end - first
        size += _metadata(chunk).i64(_UNCOMPRESSED) or 0
    if others:
        raise NotReadHere("there are columns that the row group doesn't have")
    described = _without(group.described, (_ORDINAL,))
    described.fields[_COLUMNS] = (LIST, ThriftList(STRUCT, chunks))
    for number, value in (
        (_GROUP_SIZE, size),
        (_GROUP_OFFSET, start),
        (_GROUP_COMPRESSED, position - start),
    ):
        if number in described.fields:
            described.fields[number] = (I64, value)
    return StoredGroup(described, group.num_rows, start, position - start, size), b"".join(pieces)


def _path(chunk: ThriftStruct) -> tuple[bytes, ...]:
    """The names that lead to the leaf of a chunk."""
    return tuple(_metadata(chunk).list_of(_PATH, BINARY) or ())


def _checked_values(header: ThriftStruct, known: set[int]) -> int:
    """How many values of a chunk there are in a page; those of a dictionary aren't values of it."""
    kind = header.i32(1)
    part = _PAGE_PARTS.get(kind)
    if part is None or header.fields.keys() != {1, 2, 3, 4, part}:
        raise NotReadHere(f"the header of a page of the type {kind} has other parts")
    about = header.struct(part) or ThriftStruct()
    values = about.i32(1)
    encodings = [about.i32(number) for number in _PAGE_ENCODINGS[part]]
    if values is None or values < 0 or not known.issuperset(encodings):
        raise NotReadHere(f"a page of {values} values has the encodings {encodings}")
    return values if kind == _DATA_PAGE else 0


def _footer_start(end: bytes, size: int) -> int:
    """Where the footer of a file begins, by the last bytes of the file and its size."""
    length = int.from_bytes(end[:4], "little")
    start = size - _END - length
    if end[4:] != _MAGIC or start < len(_MAGIC):
        raise NotReadHere(f"a file of {size} bytes doesn't end as Parquet does")
    return start


def _stored_group(described: ThriftStruct, behind: int) -> StoredGroup:
    """A row group, whose chunks must follow each other behind a position."""
    start = position = None
    for chunk in _chunks(described):
        if any(number in chunk.fields for number in _CHUNK_REFUSED):
            raise NotReadHere("a chunk is encrypted, or in another file")
        first, end = _extent(_metadata(chunk))
        if first < (behind if position is None else position) or end < first:
            raise NotReadHere("chunks lie over each other, or in another order than the leaves")
        start = first if start is None else start
        position = end
    num_rows, size = described.i64(_GROUP_ROWS), described.i64(_GROUP_SIZE)
    if start is None or position is None or num_rows is None or size is None or num_rows < 0:
        raise NotReadHere("a row group has no chunks, no size, or no number of rows")
    return StoredGroup(described, num_rows, start, position - start, size)


def _chunks(described: ThriftStruct) -> list[ThriftStruct]:
    return described.list_of(_COLUMNS, STRUCT) or []


def _metadata(chunk: ThriftStruct) -> ThriftStruct:
    found = chunk.struct(_METADATA)
    if found is None:
        raise NotReadHere("a chunk has no metadata")
    return found


def _extent(metadata: ThriftStruct) -> tuple[int, int]:
    """Where a chunk begins, and where it ends."""
    # Some writers put 0 where there is no dictionary, or no index.
    places = [place for number in _OFFSETS if (place := metadata.i64(number))]
    length = metadata.i64(_COMPRESSED)
    if not places or length is None:
        raise NotReadHere("a chunk has no place, or no length")
    return min(places), min(places) + length


def _manner(group: StoredGroup) -> list[tuple[object, ...]]:
    """How the chunks of a row group are written, as far as it matters that all are alike."""
    chunks = map(_metadata, _chunks(group.described))
    return [
        (c.i32(_TYPE), c.fields.get(_PATH), c.i32(_CODEC), _STATISTICS in c.fields) for c in chunks
    ]


def _moved(described: ThriftStruct, distance: int) -> ThriftStruct:
    """What to say of a row group in another place."""
    moved = _without(described, (_ORDINAL,))
    chunks = [_moved_chunk(chunk, distance) for chunk in _chunks(described)]
    moved.fields[_COLUMNS] = (LIST, ThriftList(STRUCT, chunks))
    place = described.i64(_GROUP_OFFSET)
    if place is not None:
        moved.fields[_GROUP_OFFSET] = (I64, place + distance)
    return moved


def _moved_chunk(chunk: ThriftStruct, distance: int) -> ThriftStruct:
    metadata = _without(_metadata(chunk), _METADATA_UNTOLD)
    for number in _OFFSETS:
        if place := metadata.i64(number):
            metadata.fields[number] = (I64, place + distance)
    moved = _without(chunk, _CHUNK_UNTOLD)
    if _CHUNK_OFFSET in moved.fields:
        moved.fields[_CHUNK_OFFSET] = (I64, 0)
    moved.fields[_METADATA] = (STRUCT, metadata)
    return moved


def _without(struct: ThriftStruct, numbers: tuple[int, ...]) -> ThriftStruct:
    return ThriftStruct({n: field for n, field in struct.fields.items() if n not in numbers})


def _read(source: BinaryIO, start: int, length: int) -> bytes:
    source.seek(start, os.SEEK_SET)
    data = source.read(length)
    if len(data) != length:
        raise NotReadHere(f"the file has {start + len(data)} bytes, expected more")
    return data
