"""Take the pages of a column chunk apart: check them, decompress them, split levels from values.

A chunk is a row of pages: perhaps a dictionary, then data. Before each stands a Thrift struct
``PageHeader`` with its sizes and, from careful writers, a checksum. A data page holds repetition
levels, definition levels and values, in one of two forms:

=======  =========================================  ======================================
version  levels                                     compressed
=======  =========================================  ======================================
1        each behind its size in four bytes         levels and values together
2        sizes in the header                        the values alone
=======  =========================================  ======================================

Spec: parquet.thrift and README.md of Apache Parquet.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from airflow_delta.engine.parquet import snappy
from airflow_delta.engine.parquet.footer import BOOLEAN, SchemaNode
from airflow_delta.engine.parquet.refusals import NotReadHere
from airflow_delta.engine.parquet.runs import Run, read_runs
from airflow_delta.engine.parquet.thrift import ThriftStruct, decode
from airflow_delta.engine.parquet.values import (
    RLE,
    Value,
    dictionary_values,
    plain_values,
    run_values,
)

__all__ = ["DataPage", "DictionaryPage", "read_page"]

_UNCOMPRESSED, _SNAPPY, _GZIP = range(3)
_PLAIN, _PLAIN_DICTIONARY, _RLE_DICTIONARY = 0, 2, 8

# What is wanted here is small, and nothing may make us decompress gigabytes.
_LARGEST_PAGE = 8 << 20
_LONGEST_DICTIONARY = 50_000


class DictionaryPage(NamedTuple):
    """The values that pages after it refer to, by their places.

    Attributes:
        physical: the physical type of the values.
        num_values: how many there are.
        codec: how they are compressed, as the format numbers codecs.
        size: their size in bytes when they are decompressed.
        stored: what is stored of them.
    """

    physical: int | None
    num_values: int
    codec: int
    size: int
    stored: bytes

    def values(self) -> Sequence[Value]:
        """The values.

        Raises:
            NotReadHere: they are damaged.
        """
        data = _decompressed(self.stored, self.codec, self.size)
        return plain_values(data, physical=self.physical, count=self.num_values)


class DataPage(NamedTuple):
    """Some values of a leaf.

    Attributes:
        repetitions: the repetition levels.
        definitions: the definition levels, as many as the repetition levels.
        physical: the physical type of the values.
        encoding: how they are encoded, as the format numbers encodings.
        codec: how what is stored of them is compressed, as the format numbers codecs.
        size: their size in bytes when it is decompressed.
        stored: what is stored of them.
    """

    repetitions: list[Run]
    definitions: list[Run]
    physical: int | None
    encoding: int | None
    codec: int
    size: int
    stored: bytes

    def values(self, count: int, dictionary: Sequence[Value] | None) -> Sequence[Value]:
        """The values that are not null.

        Args:
            count: how many there are.
            dictionary: the values of the chunk's dictionary, if it has one.

        Raises:
            NotReadHere: they are damaged, or of an encoding that isn't known here.
        """
        data = _decompressed(self.stored, self.codec, self.size)
        if self.encoding == _PLAIN:
            return plain_values(data, physical=self.physical, count=count)
        if self.encoding == RLE and self.physical == BOOLEAN:
            return run_values(data, count=count)
        if self.encoding in (_PLAIN_DICTIONARY, _RLE_DICTIONARY) and dictionary is not None:
            return dictionary_values(data, dictionary, count=count)
        raise NotReadHere(f"a page has the encoding {self.encoding}")


def read_page(
    data: bytes, start: int, *, leaf: SchemaNode, codec: int
) -> tuple[DictionaryPage | DataPage, int]:
    """Read a page.

    Args:
        data: a column chunk.
        start: where the page begins.
        leaf: the leaf that the chunk is of.
        codec: how its pages are compressed.

    Returns:
        The page, and where it ends.

    Raises:
        NotReadHere: it is damaged, or of a kind that isn't known here.
    """
    header, body = decode(data, start)
    size, stored_size = header.i32(2), header.i32(3)
    if size is None or stored_size is None or not 0 <= size <= _LARGEST_PAGE or stored_size < 0:
        raise NotReadHere(f"a page of {size} bytes in {stored_size}")
    end = body + stored_size
    if end > len(data):
        raise NotReadHere("a page runs over the end of its chunk")
    stored = data[body:end]
    checksum = header.i32(4)
    if checksum is not None and zlib.crc32(stored) != checksum & 0xFFFFFFFF:
        raise NotReadHere("a page doesn't have the checksum that it should")
    form = _FORMS.get(header.i32(1))
    if form is None:
        raise NotReadHere(f"a page of the type {header.i32(1)}")
    return form(header, leaf, codec, size, stored), end


def _dictionary_page(
    header: ThriftStruct, leaf: SchemaNode, codec: int, size: int, stored: bytes
) -> DictionaryPage:
    about = header.struct(7) or ThriftStruct()
    count = about.i32(1)
    encodings = (_PLAIN, _PLAIN_DICTIONARY)
    if count is None or not 0 <= count <= _LONGEST_DICTIONARY or about.i32(2) not in encodings:
        raise NotReadHere(f"a dictionary of {count} values with the encoding {about.i32(2)}")
    return DictionaryPage(leaf.physical, count, codec, size, stored)


def _data_page(
    header: ThriftStruct, leaf: SchemaNode, codec: int, size: int, stored: bytes
) -> DataPage:
    about = header.struct(5) or ThriftStruct()
    count = about.i32(1)
    if count is None or count < 0:
        raise NotReadHere(f"a page of {count} values")
    # Spark names another encoding for levels that aren't stored.
    if (leaf.definition and about.i32(3) != RLE) or (leaf.repetitions and about.i32(4) != RLE):
        raise NotReadHere("a page has levels that aren't stored as runs")
    data = _decompressed(stored, codec, size)
    repetitions, position = _sized_levels(data, 0, leaf.repetitions, count)
    definitions, position = _sized_levels(data, position, leaf.definition, count)
    values = data[position:]
    return DataPage(
        repetitions,
        definitions,
        leaf.physical,
        about.i32(2),
        _UNCOMPRESSED,
        len(values),
        values,
    )


def _data_page_v2(
    header: ThriftStruct, leaf: SchemaNode, codec: int, size: int, stored: bytes
) -> DataPage:
    about = header.struct(8) or ThriftStruct()
    count, nulls, rows = about.i32(1), about.i32(2), about.i32(3)
    first, second = about.i32(6), about.i32(5)
    if count is None or count < 0 or first is None or second is None or min(first, second) < 0:
        raise NotReadHere(f"a page of {count} values, with levels of {first} and {second} bytes")
    split, start = first, first + second
    if start > min(len(stored), size):
        raise NotReadHere("the levels of a page run over its end")
    repetitions = _levels(stored[:split], leaf.repetitions, count)
    definitions = _levels(stored[split:start], leaf.definition, count)
    if nulls != sum(times for times, level in definitions if level != leaf.definition):
        raise NotReadHere(f"a page doesn't have {nulls} nulls, as it says")
    if rows != sum(times for times, level in repetitions if level == 0):
        raise NotReadHere(f"a page doesn't have {rows} rows, as it says")
    compressed = about.flag(7)
    return DataPage(
        repetitions,
        definitions,
        leaf.physical,
        about.i32(4),
        _UNCOMPRESSED if compressed is False else codec,
        size - start,
        stored[start:],
    )


_FORMS: Mapping[int | None, Callable[..., DictionaryPage | DataPage]] = {
    0: _data_page,
    2: _dictionary_page,
    3: _data_page_v2,
}


def _sized_levels(data: bytes, position: int, highest: int, count: int) -> tuple[list[Run], int]:
    """Levels behind their size; a leaf that can have only one level has none stored."""
    if not highest:
        return _levels(b"", highest, count), position
    start = position + 4
    end = start + int.from_bytes(data[position:start], "little")
    if end > len(data):
        raise NotReadHere("the levels of a page run over its end")
    return _levels(data[start:end], highest, count), end


def _levels(data: bytes, highest: int, count: int) -> list[Run]:
    if not highest:
        if data:
            raise NotReadHere("a page has levels where there can't be any")
        return [(count, 0)] if count else []
    runs = read_runs(data, bit_width=highest.bit_length(), count=count)
    if any(level > highest for _, level in runs):
        raise NotReadHere(f"a page has levels above {highest}")
    return runs


def _decompressed(stored: bytes, codec: int, size: int) -> bytes:
    if codec == _SNAPPY:
        return snappy.decompress(stored, size=size)
    if codec == _GZIP:
        stored = _gunzipped(stored, size)
    elif codec != _UNCOMPRESSED:
        raise NotReadHere(f"pages are compressed with the codec {codec}")
    if len(stored) != size:
        raise NotReadHere(f"a page holds {len(stored)} bytes, expected {size}")
    return stored


def _gunzipped(stored: bytes, size: int) -> bytes:
    unzip = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    try:
        # A byte more than there should be, so that more of them show.
        data = unzip.decompress(stored, size + 1)
    except zlib.error as error:
        raise NotReadHere(f"a page can't be unzipped: {error}") from error
    if not unzip.eof or unzip.unused_data:
        raise NotReadHere("a page is not one whole gzip member")
    return data
