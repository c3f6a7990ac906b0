from __future__ import annotations

import zlib
from typing import Any

import pyarrow as pa
import pytest

from airflow_delta.engine.parquet import PyarrowFallback
from airflow_delta.engine.parquet.footer import BYTE_ARRAY, SchemaNode
from airflow_delta.engine.parquet.pages import DataPage, DictionaryPage, read_page
from airflow_delta.engine.parquet.thrift import FALSE, I32, STRUCT, TRUE, ThriftStruct, encode

LEAF = SchemaNode("x", 1, BYTE_ARRAY, "string", 2, 1, 0, ("x",), ())
SCALAR = SchemaNode("x", 1, BYTE_ARRAY, "string", 1, 0, 0, ("x",), ())
REQUIRED = SchemaNode("x", 0, BYTE_ARRAY, "string", 0, 0, 0, ("x",), ())

TEXTS = b"\x01\0\0\0a\x02\0\0\0bc"
REPETITIONS = b"\x03\x04"  # one group of eight: 0, 0, 1
DEFINITIONS = b"\x02\x00\x04\x02"  # a 0, and twice 2


def sized(levels: bytes) -> bytes:
    return len(levels).to_bytes(4, "little") + levels


def page(type_: int, about: dict[int, int], body: bytes, **header: Any) -> bytes:
    """A page whose header has some I32 fields, others replaced by ``header``."""
    number = {0: 5, 2: 7, 3: 8}.get(type_, 5)
    flags = header.get("flags", {})
    fields = {
        1: (I32, type_),
        2: (I32, header.get("size", len(body))),
        3: (I32, header.get("stored", len(body))),
        **({4: (I32, header["checksum"])} if "checksum" in header else {}),
        number: (STRUCT, ThriftStruct({**{n: (I32, v) for n, v in about.items()}, **flags})),
    }  # fmt: skip
    return encode(ThriftStruct(fields)) + body


V1 = {1: 3, 2: 0, 3: 3, 4: 3}
V2 = {1: 3, 2: 1, 3: 2, 4: 0, 5: len(DEFINITIONS), 6: len(REPETITIONS)}
BODY_V1 = sized(REPETITIONS) + sized(DEFINITIONS) + TEXTS
BODY_V2 = REPETITIONS + DEFINITIONS + TEXTS


def read(data: bytes, leaf: SchemaNode = LEAF, codec: int = 0) -> DataPage:
    found, end = read_page(b"before" + data, 6, leaf=leaf, codec=codec)
    assert end == 6 + len(data)
    assert isinstance(found, DataPage)
    return found


def test_both_versions_of_data_pages() -> None:
    for data in (page(0, V1, BODY_V1), page(3, V2, BODY_V2)):
        found = read(data)
        assert found.repetitions == [(2, 0), (1, 1)]
        assert found.definitions == [(1, 0), (2, 2)]
        assert found.values(2, None) == ["a", "bc"]


def test_levels_that_can_only_be_0_are_not_stored() -> None:
    # Old writers name another encoding for them.
    found = read(page(0, {1: 2, 2: 0, 3: 4, 4: 4}, TEXTS), REQUIRED)
    assert found.repetitions == found.definitions == [(2, 0)]
    assert found.values(2, None) == ["a", "bc"]


@pytest.mark.parametrize(("codec", "name"), [(1, "snappy"), (2, "gzip")])
def test_compressed_pages(codec: int, name: str) -> None:
    def packed(data: bytes) -> bytes:
        compressed: bytes = pa.compress(data, codec=name, asbytes=True)
        return compressed

    first = read(page(0, V1, packed(BODY_V1), size=len(BODY_V1)), codec=codec)
    body = REPETITIONS + DEFINITIONS + packed(TEXTS)
    second = read(page(3, V2, body, size=len(BODY_V2)), codec=codec)
    plain = read(page(3, V2, BODY_V2, flags={7: (FALSE, False)}), codec=codec)
    for found in (first, second, plain):
        assert found.values(2, None) == ["a", "bc"]
    bad = page(3, V2, body, size=len(BODY_V2) + 1, flags={7: (TRUE, True)})
    with pytest.raises(PyarrowFallback, match=r"expected \d+"):
        read(bad, codec=codec).values(2, None)


def test_a_dictionary_is_decoded_when_asked_for() -> None:
    found, _ = read_page(page(2, {1: 2, 2: 2}, TEXTS), 0, leaf=LEAF, codec=0)
    assert isinstance(found, DictionaryPage)
    words = found.values()
    assert words == ["a", "bc"]
    indexes = page(0, {**V1, 2: 8}, BODY_V1[: -len(TEXTS)] + b"\x01\x04\x01")
    assert read(indexes).values(2, words) == ["bc", "bc"]
    with pytest.raises(PyarrowFallback, match="encoding 8"):
        read(indexes).values(2, None)


def test_a_checksum_is_checked() -> None:
    # It is stored as a signed number.
    checksum = zlib.crc32(BODY_V1)
    signed = checksum - (1 << 32) if checksum >> 31 else checksum
    assert read(page(0, V1, BODY_V1, checksum=signed)).values(2, None) == ["a", "bc"]
    with pytest.raises(PyarrowFallback, match="checksum"):
        read(page(0, V1, BODY_V1, checksum=signed ^ 1))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (page(1, V1, BODY_V1), "page of the type 1"),
        (page(0, V1, BODY_V1, stored=len(BODY_V1) + 1), "over the end of its chunk"),
        (page(0, V1, BODY_V1, stored=-1), "in -1"),
        (page(0, V1, BODY_V1, size=len(BODY_V1) + 1), "expected"),
        (page(0, V1, BODY_V1, size=1 << 30), "a page of 1073741824 bytes"),
        (page(0, {**V1, 1: -1}, BODY_V1), "a page of -1 values"),
        (page(0, {**V1, 1: 4}, BODY_V1), "cut off, 1 are missing"),
        (page(0, {**V1, 3: 4}, BODY_V1), "stored as runs"),
        (page(0, {**V1, 4: 4}, BODY_V1), "stored as runs"),
        (page(0, V1, sized(REPETITIONS) + b"\x64\0\0\0" + DEFINITIONS), "levels of a page run over"),
        (page(0, V1, sized(REPETITIONS) + sized(b"\x06\x03")), "levels above 2"),
        (page(3, {**V2, 1: -1}, BODY_V2), "a page of -1 values"),
        (page(3, {**V2, 2: 0}, BODY_V2), "doesn't have 0 nulls"),
        (page(3, {**V2, 3: 3}, BODY_V2), "doesn't have 3 rows"),
        (page(3, {**V2, 5: 99}, BODY_V2), "levels of a page run over"),
        (page(3, {**V2, 6: -1}, BODY_V2), "levels of -1 and 4 bytes"),
        (page(2, {1: 10**6, 2: 0}, TEXTS), "a dictionary of 1000000 values"),
        (page(2, {1: 2, 2: 3}, TEXTS), "with the encoding 3"),
    ],
)  # fmt: skip
def test_pages_that_do_not_fit_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(PyarrowFallback, match=message):
        read(data)


def test_levels_where_there_cannot_be_any_are_refused() -> None:
    with pytest.raises(PyarrowFallback, match="levels of a leaf"):
        read(page(3, {1: 3, 2: 1, 3: 3, 4: 0, 5: 4, 6: 2}, BODY_V2), SCALAR)


@pytest.mark.parametrize("bad", [b"", b"no gzip", b"extra", b"cut"])
def test_what_is_no_gzip_member_is_refused(bad: bytes) -> None:
    good: bytes = pa.compress(BODY_V1, codec="gzip", asbytes=True)
    bad = {b"extra": good + b"x", b"cut": good[:-3]}.get(bad, bad)
    with pytest.raises(PyarrowFallback, match=r"gzip member|can't be unzipped"):
        read(page(0, V1, bad, size=len(BODY_V1)), codec=2)
