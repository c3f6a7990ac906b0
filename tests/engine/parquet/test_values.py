from __future__ import annotations

import struct

import pytest

from airflow_delta.engine.parquet import PyarrowFallback
from airflow_delta.engine.parquet.footer import BOOLEAN, BYTE_ARRAY, INT32, INT64, SchemaNode
from airflow_delta.engine.parquet.values import (
    check_type,
    decode_boolean_runs,
    decode_dictionary,
    decode_plain,
)


def leaf(physical: int, annotation: str | None) -> SchemaNode:
    return SchemaNode("x", 1, physical, annotation, 1, 0, 0, ("x",), ())


@pytest.mark.parametrize(
    ("physical", "annotation"),
    [(BOOLEAN, ""), (INT32, ""), (INT32, "int32"), (INT64, "int64"), (BYTE_ARRAY, "string")],
)
def test_types_of_actions_are_known(physical: int, annotation: str) -> None:
    check_type(leaf(physical, annotation))


@pytest.mark.parametrize(
    ("physical", "annotation"),
    [(BYTE_ARRAY, ""), (INT32, None), (INT64, "int32"), (3, ""), (5, ""), (INT32, "string")],
)
def test_other_types_are_refused(physical: int, annotation: str | None) -> None:
    with pytest.raises(PyarrowFallback, match="x is of the type"):
        check_type(leaf(physical, annotation))


def test_plain_values_are_little_endian() -> None:
    assert list(decode_plain(struct.pack("<2i", -1, 7), physical=INT32, count=2)) == [-1, 7]
    assert list(decode_plain(struct.pack("<q", -(2**63)), physical=INT64, count=1)) == [-(2**63)]
    flags = [True, False, False, True, False, False, False, True, True]
    assert decode_plain(b"\x89\x01", physical=BOOLEAN, count=9) == flags
    texts = b"\x02\0\0\0\xc3\xa9\0\0\0\0\x01\0\0\0a"
    assert decode_plain(texts, physical=BYTE_ARRAY, count=3) == ["é", "", "a"]


@pytest.mark.parametrize(
    ("data", "physical", "count", "message"),
    [
        (b"\0" * 5, INT32, 1, "take 4 bytes, found 5"),
        (b"\0" * 7, INT64, 1, "take 8 bytes, found 7"),
        (b"\0", BOOLEAN, 9, "take 2 bytes, found 1"),
        (b"\x02\0\0\0a", BYTE_ARRAY, 1, "cut off"),
        (b"\x01\0\0", BYTE_ARRAY, 1, "cut off"),
        (b"\xff\xff\xff\xff" + b"a" * 10, BYTE_ARRAY, 2, "cut off"),
        (b"\0\0\0\0\0", BYTE_ARRAY, 1, "1 bytes follow 1 texts"),
        (b"\x01\0\0\0\xff", BYTE_ARRAY, 1, "isn't UTF-8"),
    ],
)
def test_values_that_do_not_fit_are_refused(
    data: bytes, physical: int, count: int, message: str
) -> None:
    with pytest.raises(PyarrowFallback, match=message):
        decode_plain(data, physical=physical, count=count)


def test_indexes_into_a_dictionary() -> None:
    # The example of the specification packs 0 to 7 with three bits.
    packed = bytes([0x03, 0b10001000, 0b11000110, 0b11111010])
    words = [*"abcdefgh"]
    assert decode_dictionary(b"\x03" + packed, words, count=8) == words
    assert decode_dictionary(b"\0\x06", ["only"], count=3) == ["only"] * 3


@pytest.mark.parametrize(
    ("data", "message"),
    [(b"", "missing"), (b"\x01\x06\x01", "index 1 of a dictionary of 1"), (b"\x21", "33 bits")],
)
def test_indexes_beyond_the_dictionary_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(PyarrowFallback, match=message):
        decode_dictionary(data, ["a"], count=3)


def test_booleans_in_runs() -> None:
    assert decode_boolean_runs(b"\x02\0\0\0\x06\x01", count=3) == [True] * 3
    for bad in (b"\x02\0\0", b"\x03\0\0\0\x06\x01", b"\x01\0\0\0\x06\x01"):
        with pytest.raises(PyarrowFallback, match="booleans don't take"):
            decode_boolean_runs(bad, count=3)
