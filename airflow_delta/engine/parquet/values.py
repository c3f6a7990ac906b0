"""Decode the values of a page: texts, integers and booleans.

Only what is not null is stored. A value is stored as it is (``PLAIN``), or as its place in a
dictionary that the chunk begins with; booleans of newer pages are stored as runs. What other
encodings there are, statistics and data need, but not the few values that are wanted here.

Spec: Encodings.md of Apache Parquet.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TypeAlias

from airflow_delta.engine.parquet.footer import BOOLEAN, BYTE_ARRAY, INT32, INT64, SchemaNode
from airflow_delta.engine.parquet.refusals import NotReadHere
from airflow_delta.engine.parquet.runs import read_runs

__all__ = ["RLE", "Value", "check_type", "dictionary_values", "plain_values", "run_values"]

Value: TypeAlias = str | int | bool

RLE = 3
"""The number of the encoding as runs, which levels have too."""

_MEANINGS = {
    BOOLEAN: ("",),
    INT32: ("", "int32"),
    INT64: ("", "int64"),
    # Bytes that nobody calls a text aren't one.
    BYTE_ARRAY: ("string",),
}


def check_type(leaf: SchemaNode) -> None:
    """Check that the values of a leaf can be decoded here.

    Raises:
        NotReadHere: they can't.
    """
    if leaf.physical is None or leaf.meaning not in _MEANINGS.get(leaf.physical, ()):
        raise NotReadHere(f"{'.'.join(leaf.path)} is of the type {leaf.physical}, {leaf.meaning}")


def plain_values(data: bytes, *, physical: int | None, count: int) -> Sequence[Value]:
    """Values that are stored as they are.

    Args:
        data: these values, and nothing else.
        physical: their type, of those that `check_type` lets pass.
        count: how many there are.

    Raises:
        NotReadHere: there are fewer or more, or a text isn't UTF-8.
    """
    if physical == BYTE_ARRAY:
        return _texts(data, count)
    size = (count + 7) // 8 if physical == BOOLEAN else count * (4 if physical == INT32 else 8)
    if len(data) != size:
        raise NotReadHere(f"{count} values take {size} bytes, found {len(data)}")
    if physical == BOOLEAN:
        return [bool(data[number >> 3] >> (number & 7) & 1) for number in range(count)]
    return struct.unpack(f"<{count}{'i' if physical == INT32 else 'q'}", data)


def dictionary_values(data: bytes, dictionary: Sequence[Value], *, count: int) -> list[Value]:
    """Values that are stored as places in a dictionary.

    Args:
        data: a byte with the bit width, then the runs of places.
        dictionary: the values that there are.
        count: how many places there are.

    Raises:
        NotReadHere: there are fewer or more, or the dictionary has no such place.
    """
    if not data:
        raise NotReadHere("places in a dictionary are missing")
    values: list[Value] = []
    for times, place in read_runs(data[1:], bit_width=data[0], count=count):
        if place >= len(dictionary):
            raise NotReadHere(f"place {place} of a dictionary of {len(dictionary)}")
        values.extend([dictionary[place]] * times)
    return values


def run_values(data: bytes, *, count: int) -> list[Value]:
    """Booleans that are stored as runs, behind the size of these in four bytes.

    Raises:
        NotReadHere: there are fewer or more.
    """
    if len(data) < 4 or int.from_bytes(data[:4], "little") != len(data) - 4:
        raise NotReadHere(f"booleans don't take the {len(data)} bytes that are there")
    values: list[Value] = []
    for times, value in read_runs(data[4:], bit_width=1, count=count):
        values.extend([bool(value)] * times)
    return values


def _texts(data: bytes, count: int) -> list[Value]:
    values: list[Value] = []
    position, end = 0, len(data)
    for _ in range(count):
        start = position + 4
        position = start + int.from_bytes(data[position:start], "little")
        if start > end or position > end:
            raise NotReadHere("a text is cut off")
        try:
            values.append(data[start:position].decode())
        except UnicodeDecodeError as error:
            raise NotReadHere("a text isn't UTF-8") from error
    if position != end:
        raise NotReadHere(f"{end - position} bytes follow {count} texts")
    return values
