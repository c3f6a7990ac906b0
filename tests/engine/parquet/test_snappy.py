from __future__ import annotations

import random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_delta.engine.parquet import PyarrowFallback
from airflow_delta.engine.parquet.snappy import decompress


def block(data: bytes) -> bytes:
    packed: bytes = pa.compress(data, codec="snappy", asbytes=True)
    return packed


@given(st.lists(st.sampled_from([b"a", b"ab" * 40, b"some words", b"\0" * 70, b"x" * 5000])))
@settings(max_examples=50)
def test_what_the_library_compresses_is_decompressed(parts: list[bytes]) -> None:
    data = b"".join(parts)
    assert decompress(block(data), size=len(data)) == data


@pytest.mark.parametrize("length", [0, 1, 60, 61, 256, 257, 65536, 65537, 200_000])
def test_literals_of_any_length(length: int) -> None:
    data = random.Random(length).randbytes(length)
    assert decompress(block(data), size=length) == data


def test_all_copies_of_the_format() -> None:
    literal = bytes([3 << 2]) + b"abcd"
    one_byte = bytes([1 | (5 - 4) << 2, 3])  # five bytes from three before: it overlaps
    two_bytes = bytes([2 | (6 - 1) << 2, 9, 0])
    four_bytes = bytes([3 | (2 - 1) << 2, 15, 0, 0, 0])
    expected = b"abcd" + b"bcdbc" + b"abcdbc" + b"ab"
    data = bytes([len(expected)]) + literal + one_byte + two_bytes + four_bytes
    assert pa.decompress(data, len(expected), codec="snappy", asbytes=True) == expected
    assert decompress(data, size=len(expected)) == expected


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "cut off"),
        (b"\x04\x0cabcd", "holds 4 bytes, expected 5"),
        (b"\x05\x0cabcd", "doesn't hold"),
        (b"\x05\x10abcd", "doesn't hold"),
        (b"\x05\x0cabcde", "cut off"),
        (b"\x05\x01\x00", "copies from 0 bytes before"),
        (b"\x05\x00a\x01\x02", "copies from 2 bytes before"),
        (b"\x05\x00a\x01", "cut off"),
        (b"\x05\xfc\xff\xff\xff\xff", "doesn't hold"),
    ],
)
def test_damage_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(PyarrowFallback, match=message):
        decompress(data, size=5)


def test_damaged_blocks_are_decompressed_as_the_library_does_or_not_at_all() -> None:
    content = b"".join(b'{"name":"column%d","type":"long"},' % n for n in range(30))
    good, chance = block(content), random.Random(7)
    read = 0
    for _ in range(300):
        bad = bytearray(good)
        bad[chance.randrange(len(bad))] ^= 1 << chance.randrange(8)
        try:
            found = decompress(bytes(bad), size=len(content))
        except PyarrowFallback:
            continue
        read += 1
        assert found == pa.decompress(bytes(bad), len(content), codec="snappy", asbytes=True)
    assert read
