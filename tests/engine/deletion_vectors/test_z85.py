from __future__ import annotations

import base64
import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_delta.engine.deletion_vectors import z85
from airflow_delta.engine.errors import DeletionVectorError


def test_the_example_of_rfc_32() -> None:
    data = bytes.fromhex("864FD26FB559F75B")
    assert z85.encode(data) == "HelloWorld"
    assert z85.decode("HelloWorld") == data


def test_the_uuid_of_the_specification() -> None:
    expected = uuid.UUID("d2c639aa-8816-431a-aaf6-d3fe2512ff61")
    assert uuid.UUID(bytes=z85.decode("^-aqEH.-t@S}K{vb[*k^")) == expected
    assert z85.encode(expected.bytes) == "^-aqEH.-t@S}K{vb[*k^"


def test_the_empty_text_is_no_bytes() -> None:
    assert z85.decode("") == b""
    assert z85.encode(b"") == ""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Hell", "found 4 characters, expected a multiple of 5"),
        ("HelloW", "found 6 characters"),
        ("Hell~", r"character '~' at index 4"),
        ("HelloHel,o", r"character ',' at index 8"),
        ("Hell\N{LATIN SMALL LETTER O WITH DIAERESIS}", "at index 4"),
        ("Hell ", "character ' ' at index 4"),
        ("%nSc1", r"the group '%nSc1' at index 0"),
        ("#####", "at index 0"),
        ("####0", "at index 0"),
        ("###96", "stands for no 1 bytes"),
        ("#####Hello", r"the group '#####' at index 0"),
    ],
)
def test_what_is_not_z85_is_refused(text: str, message: str) -> None:
    with pytest.raises(DeletionVectorError, match=message):
        z85.decode(text)


def test_the_largest_group_is_read() -> None:
    assert z85.decode("%nSc0") == b"\xff\xff\xff\xff"


def test_the_shortened_last_group_of_rust_writers_is_read() -> None:
    # From the peer's own table "cdf-table-with-dv": the last two bytes are the array element 3.
    data = z85.decode("^Bg9^0rr910000000000iXQKl0rr91000005c8Xg##093")
    assert len(data) == 34
    assert data[-2:] == b"\x03\x00"


@pytest.mark.parametrize("size", [1, 2, 3])
def test_every_shortened_group_is_read(size: int) -> None:
    for value in (0, 1, 255, (1 << 8 * size) - 1):
        digits = ""
        rest = value
        for _ in range(size + 1):
            rest, digit = divmod(rest, 85)
            digits = z85._ALPHABET[digit] + digits
        assert z85.decode("Hello" + "#" * (4 - size) + digits)[4:] == value.to_bytes(size, "big")


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_bytes_that_fill_no_group_are_not_encoded(size: int) -> None:
    with pytest.raises(DeletionVectorError, match=f"can't encode {size} bytes"):
        z85.encode(b"x" * size)


@settings(max_examples=50)
@given(st.binary(max_size=64).map(lambda data: data[: len(data) // 4 * 4]))
def test_it_is_base_85_with_another_alphabet(data: bytes) -> None:
    rfc1924 = (
        b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
    )
    translated = base64.b85encode(data).translate(
        bytes.maketrans(rfc1924, z85._ALPHABET.encode("ascii"))
    )
    assert z85.encode(data) == translated.decode("ascii")
    assert z85.decode(z85.encode(data)) == data
