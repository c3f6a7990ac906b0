"""Read the pages of a column chunk: verify them, decompress them, and separate levels from values.

A chunk is a sequence of pages: optionally a dictionary, then data. Each page follows a Thrift struct
``PageHeader`` with its sizes and, from some writers, a checksum. A data page holds repetition levels,
definition levels and values, in one of two versions:

=======  =========================================  ======================================
version  levels                                     compressed
=======  =========================================  ======================================
1        each after its size in four bytes          levels and values together
2        sizes in the header                        only the values
=======  =========================================  ======================================

Spec: parquet.thrift and README.md of Apache Parquet.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from airflow_delta.engine.parquet import snappy
from airflow_delta.engine.parquet.fallback import PyarrowFallback
from airflow_delta.engine.parquet.footer import BOOLEAN, SchemaNode
from airflow_delta.engine.parquet.runs import Run, read_runs
from airflow_delta.engine.parquet.thrift import ThriftStruct, decode
from airflow_delta.engine.parquet.values import (
    RLE,
    Value,
    decode_boolean_runs,
    decode_dictionary,
    decode_plain,
)

__all__ = ["DataPage", "DictionaryPage", "read_page"]

_UNCOMPRESSED, _SNAPPY, _GZIP = range(3)
_PLAIN, _PLAIN_DICTIONARY, _RLE_DICTIONARY = 0, 2, 8

# Non-file actions are small. A damaged or hostile page must not make us decompress gigabytes.
_LARGEST_PAGE = 8 << 20
_LONGEST_DICTIONARY = 50_000


class DictionaryPage(NamedTuple):
    """A dictionary page: the values that the data pages after it refer to by index.

    Attributes:
        physical: the physical type of the values.
        num_values: the number of values.
        codec: the codec that compresses them, by its number in the format.
        size: their size after decompression, in bytes.
        stored: the bytes as they are stored.
    """

    physical: int | None
    num_values: int
    codec: int
    size: int
    stored: bytes

    def values(self) -> Sequence[Value]:
        """Decode the values.

        Raises:
            PyarrowFallback: they are damaged.
        """
        data = _decompressed(self.stored, self.codec, self.size)
        return decode_plain(data, physical=self.physical, count=self.num_values)


class DataPage(NamedTuple):
    """A data page: some values of a leaf.

    Attributes:
        repetitions: the repetition levels.
        definitions: the definition levels, as many as the repetition levels.
        physical: the physical type of the values.
        encoding: the encoding of the values, by its number in the format.
        codec: the codec that compresses the encoded values, by its number in the format.
        size: the size of the encoded values after decompression, in bytes.
        stored: the encoded values as they are stored.
    """

    repetitions: list[Run]
    definitions: list[Run]
    physical: int | None
    encoding: int | None
    codec: int
    size: int
    stored: bytes

    def values(self, count: int, dictionary: Sequence[Value] | None) -> Sequence[Value]:
        """Decode the values that aren't null.

        Args:
            count: the number of these values.
            dictionary: the values of the chunk's dictionary, if it has one.

        Raises:
            PyarrowFallback: they are damaged, or have an unsupported encoding.
        """
        data = _decompressed(self.stored, self.codec, self.size)
        if self.encoding == _PLAIN:
            return decode_plain(data, physical=self.physical, count=count)
        if self.encoding == RLE and self.physical == BOOLEAN:
            return decode_boolean_runs(data, count=count)
        if self.encoding in (_PLAIN_DICTIONARY, _RLE_DICTIONARY) and dictionary is not None:
            return decode_dictionary(data, dictionary, count=count)
        raise PyarrowFallback(f"a page has the encoding {self.encoding}")


def read_page(
    data: bytes, start: int, *, leaf: SchemaNode, codec: int
) -> tuple[DictionaryPage | DataPage, int]:
    """Read a page.

    Args:
        data: a column chunk.
        start: the position of the page's first byte.
        leaf: the leaf whose values the chunk holds.
        codec: the codec that compresses its pages.

    Returns:
        The page, and the position after its last byte.

    Raises:
        PyarrowFallback: the page is damaged, or of an unsupported type.
    """
    header, body = decode(data, start)
    size, stored_size = header.i32(2), header.i32(3)
    if size is None or stored_size is None or not 0 <= size <= _LARGEST_PAGE or stored_size < 0:
        raise PyarrowFallback(f"a page of {size} bytes in {stored_size}")
    end = body + stored_size
    if end > len(data):
        raise PyarrowFallback("a page runs over the end of its chunk")
    stored = data[body:end]
    checksum = header.i32(4)
    if checksum is not None and zlib.crc32(stored) != checksum & 0xFFFFFFFF:
        raise PyarrowFallback("a page doesn't have the checksum that it should")
    read_as = _READERS.get(header.i32(1))
    if read_as is None:
        raise PyarrowFallback(f"a page of the type {header.i32(1)}")
    return read_as(header, leaf, codec, size, stored), end


def _dictionary_page(
    header: ThriftStruct, leaf: SchemaNode, codec: int, size: int, stored: bytes
) -> DictionaryPage:
    details = header.struct(7) or ThriftStruct()
    count = details.i32(1)
    encodings = (_PLAIN, _PLAIN_DICTIONARY)
    if count is None or not 0 <= count <= _LONGEST_DICTIONARY or details.i32(2) not in encodings:
        raise PyarrowFallback(f"a dictionary of {count} values with the encoding {details.i32(2)}")
    return DictionaryPage(leaf.physical, count, codec, size, stored)


def _data_page(
    header: ThriftStruct, leaf: SchemaNode, codec: int, size: int, stored: bytes
) -> DataPage:
    details = header.struct(5) or ThriftStruct()
    count = details.i32(1)
    if count is None or count < 0:
        raise PyarrowFallback(f"a page of {count} values")
    # Spark writes another encoding into the header for levels that aren't stored.
    if (leaf.definition and details.i32(3) != RLE) or (leaf.repetitions and details.i32(4) != RLE):
        raise PyarrowFallback("a page has levels that aren't stored as runs")
    data = _decompressed(stored, codec, size)
    repetitions, position = _sized_levels(data, 0, leaf.repetitions, count)
    definitions, position = _sized_levels(data, position, leaf.definition, count)
    values = data[position:]
    return DataPage(
        repetitions,
        definitions,
        leaf.physical,
        details.i32(2),
        _UNCOMPRESSED,
        len(values),
        values,
    )


def _data_page_v2(
    header: ThriftStruct, leaf: SchemaNode, codec: int, size: int, stored: bytes
) -> DataPage:
    details = header.struct(8) or ThriftStruct()
    count, nulls, rows = details.i32(1), details.i32(2), details.i32(3)
    first, second = details.i32(6), details.i32(5)
    if count is None or count < 0 or first is None or second is None or min(first, second) < 0:
        raise PyarrowFallback(
            f"a page of {count} values, with levels of {first} and {second} bytes"
        )
    split, start = first, first + second
    if start > min(len(stored), size):
        raise PyarrowFallback("the levels of a page run over its end")
    repetitions = _levels(stored[:split], leaf.repetitions, count)
    definitions = _levels(stored[split:start], leaf.definition, count)
    if nulls != sum(times for times, level in definitions if level != leaf.definition):
        raise PyarrowFallback(f"a page doesn't have {nulls} nulls, as it says")
    if rows != sum(times for times, level in repetitions if level == 0):
        raise PyarrowFallback(f"a page doesn't have {rows} rows, as it says")
    compressed = details.flag(7)
    return DataPage(
        repetitions,
        definitions,
        leaf.physical,
        details.i32(4),
        _UNCOMPRESSED if compressed is False else codec,
        size - start,
        stored[start:],
    )


_READERS: Mapping[int | None, Callable[..., DictionaryPage | DataPage]] = {
    0: _data_page,
    2: _dictionary_page,
    3: _data_page_v2,
}


def _sized_levels(data: bytes, position: int, highest: int, count: int) -> tuple[list[Run], int]:
    """Read levels that follow their size. For a leaf with a single possible level none are stored."""
    if not highest:
        return _levels(b"", highest, count), position
    start = position + 4
    end = start + int.from_bytes(data[position:start], "little")
    if end > len(data):
        raise PyarrowFallback("the levels of a page run over its end")
    return _levels(data[start:end], highest, count), end


def _levels(data: bytes, highest: int, count: int) -> list[Run]:
    if not highest:
        if data:
            raise PyarrowFallback("a page has levels of a leaf that can't have any")
        return [(count, 0)] if count else []
    runs = read_runs(data, bit_width=highest.bit_length(), count=count)
    if any(level > highest for _, level in runs):
        raise PyarrowFallback(f"a page has levels above {highest}")
    return runs


def _decompressed(stored: bytes, codec: int, size: int) -> bytes:
    if codec == _SNAPPY:
        return snappy.decompress(stored, size=size)
    if codec == _GZIP:
        stored = _gunzipped(stored, size)
    elif codec != _UNCOMPRESSED:
        raise PyarrowFallback(f"pages are compressed with the codec {codec}")
    if len(stored) != size:
        raise PyarrowFallback(f"a page holds {len(stored)} bytes, expected {size}")
    return stored


def _gunzipped(stored: bytes, size: int) -> bytes:
    unzip = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    try:
        # One byte more than expected, so that a longer content is noticed.
        data = unzip.decompress(stored, size + 1)
    except zlib.error as error:
        raise PyarrowFallback(f"a page can't be unzipped: {error}") from error
    if not unzip.eof or unzip.unused_data:
        raise PyarrowFallback("a page is not one whole gzip member")
    return data
