"""Decode the values of a page: texts, integers and booleans.

Pages store only the values that aren't null: as they are (``PLAIN``), or as indexes into a dictionary at
the start of the chunk. Newer pages store booleans as runs. Writers don't use the other encodings of
Parquet for non-file actions.

Spec: Encodings.md of Apache Parquet.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TypeAlias

from airflow_delta.engine.parquet.fallback import PyarrowFallback
from airflow_delta.engine.parquet.footer import BOOLEAN, BYTE_ARRAY, INT32, INT64, SchemaNode
from airflow_delta.engine.parquet.runs import read_runs

__all__ = ["RLE", "Value", "check_type", "decode_boolean_runs", "decode_dictionary", "decode_plain"]

Value: TypeAlias = str | int | bool

RLE = 3
"""The number of the encoding as runs, which levels use as well."""

_SUPPORTED = {
    BOOLEAN: ("",),
    INT32: ("", "int32"),
    INT64: ("", "int64"),
    # Bytes without an annotation aren't texts.
    BYTE_ARRAY: ("string",),
}


def check_type(leaf: SchemaNode) -> None:
    """Check that this module can decode the values of a leaf.

    Raises:
        PyarrowFallback: it can't.
    """
    if leaf.physical is None or leaf.annotation not in _SUPPORTED.get(leaf.physical, ()):
        raise PyarrowFallback(
            f"{'.'.join(leaf.path)} is of the type {leaf.physical}, {leaf.annotation}"
        )


def decode_plain(data: bytes, *, physical: int | None, count: int) -> Sequence[Value]:
    """Decode values that are stored as they are (``PLAIN``).

    Args:
        data: the values, and nothing else.
        physical: their physical type, one that `check_type` accepts.
        count: the number of values.

    Raises:
        PyarrowFallback: there are fewer or more values, or a text isn't UTF-8.
    """
    if physical == BYTE_ARRAY:
        return _texts(data, count)
    size = (count + 7) // 8 if physical == BOOLEAN else count * (4 if physical == INT32 else 8)
    if len(data) != size:
        raise PyarrowFallback(f"{count} values take {size} bytes, found {len(data)}")
    if physical == BOOLEAN:
        return [bool(data[number >> 3] >> (number & 7) & 1) for number in range(count)]
    return struct.unpack(f"<{count}{'i' if physical == INT32 else 'q'}", data)


def decode_dictionary(data: bytes, dictionary: Sequence[Value], *, count: int) -> list[Value]:
    """Decode values that are stored as indexes into a dictionary.

    Args:
        data: a byte with the bit width, then the runs of indexes.
        dictionary: the values of the dictionary.
        count: the number of indexes.

    Raises:
        PyarrowFallback: there are fewer or more indexes, or the dictionary has no such index.
    """
    if not data:
        raise PyarrowFallback("the indexes into a dictionary are missing")
    values: list[Value] = []
    for times, index in read_runs(data[1:], bit_width=data[0], count=count):
        if index >= len(dictionary):
            raise PyarrowFallback(f"index {index} of a dictionary of {len(dictionary)}")
        values.extend([dictionary[index]] * times)
    return values


def decode_boolean_runs(data: bytes, *, count: int) -> list[Value]:
    """Decode booleans that are stored as runs, after the size of the runs in four bytes.

    Raises:
        PyarrowFallback: there are fewer or more booleans.
    """
    if len(data) < 4 or int.from_bytes(data[:4], "little") != len(data) - 4:
        raise PyarrowFallback(f"booleans don't take the {len(data)} bytes of their page")
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
            raise PyarrowFallback("a text is cut off")
        try:
            values.append(data[start:position].decode())
        except UnicodeDecodeError as error:
            raise PyarrowFallback("a text isn't UTF-8") from error
    if position != end:
        raise PyarrowFallback(f"{end - position} bytes follow {count} texts")
    return values
