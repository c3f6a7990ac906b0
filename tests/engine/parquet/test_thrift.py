from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_delta.engine.parquet import PyarrowFallback
from airflow_delta.engine.parquet.thrift import (
    BINARY,
    DOUBLE,
    FALSE,
    I8,
    I16,
    I32,
    I64,
    LIST,
    MAP,
    SET,
    STRUCT,
    TRUE,
    UUID,
    ThriftList,
    ThriftMap,
    ThriftStruct,
    decode,
    encode,
    read_varint,
)
from tests.engine.parquet.files import footer_of, many_rows, stored


def integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


PLAIN = {
    I8: integers(8),
    I16: integers(16),
    I32: integers(32),
    I64: integers(64),
    DOUBLE: st.binary(min_size=8, max_size=8),
    BINARY: st.binary(max_size=200),
    UUID: st.binary(min_size=16, max_size=16),
}


def items_of(type_: int, depth: int) -> st.SearchStrategy[Any]:
    if type_ in PLAIN:
        return PLAIN[type_]
    if type_ == TRUE:
        return st.booleans()
    if type_ == STRUCT:
        return structs(depth - 1)
    types = st.sampled_from([*PLAIN, TRUE, *([STRUCT, LIST] if depth else [])])
    if type_ == MAP:
        return st.tuples(types, types).flatmap(
            lambda pair: st.lists(
                st.tuples(items_of(pair[0], depth - 1), items_of(pair[1], depth - 1)),
                min_size=1,
                max_size=3,
            ).map(lambda items: ThriftMap(*pair, items))
        ) | st.just(ThriftMap(0, 0, []))
    return types.flatmap(
        lambda item: st.lists(items_of(item, depth - 1), max_size=20).map(
            lambda items: ThriftList(item, items)
        )
    )


@st.composite
def structs(draw: st.DrawFn, depth: int = 2) -> ThriftStruct:
    numbers = sorted(draw(st.sets(st.integers(1, 40) | st.integers(1, 32767), max_size=6)))
    fields = {}
    for number in numbers:
        type_ = draw(
            st.sampled_from([TRUE, FALSE, *PLAIN, *([LIST, SET, MAP, STRUCT] if depth > 0 else [])])
        )
        value = type_ == TRUE if type_ in (TRUE, FALSE) else draw(items_of(type_, depth))
        fields[number] = (type_, value)
    return ThriftStruct(fields)


@given(structs(), st.binary(max_size=3), st.binary(max_size=3))
@settings(max_examples=50)
def test_what_is_encoded_is_decoded(struct: ThriftStruct, before: bytes, after: bytes) -> None:
    data = before + encode(struct) + after
    assert decode(data, len(before)) == (struct, len(data) - len(after))


@given(structs())
@settings(max_examples=30)
def test_what_is_cut_off_is_refused(struct: ThriftStruct) -> None:
    data = encode(struct)
    for length in range(len(data)):
        with pytest.raises(PyarrowFallback, match="cut off"):
            decode(data[:length])


def test_the_bytes_are_those_of_the_specification() -> None:
    # A field header of a step of 1 and type I32, 150 in zigzag; 16 fields on, a long header; a list
    # of 16 booleans; the end.
    struct = ThriftStruct(
        {1: (I32, 150), 17: (I64, -1), 18: (LIST, ThriftList(TRUE, [True, False] * 8))}
    )
    data = bytes([0x15, 0xAC, 0x02, 0x06, 0x22, 0x01, 0x19, 0xF1, 16, *[1, 2] * 8, 0])
    assert encode(struct) == data
    assert decode(data) == (struct, len(data))


def test_a_footer_that_is_decoded_is_encoded_to_its_bytes() -> None:
    data = stored(many_rows(), row_group_size=20, write_page_index=True)
    length = int.from_bytes(data[-8:-4], "little")
    assert encode(footer_of(data)) == data[-8 - length : -8]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x15\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00", "more than 64 bits"),
        (b"\x15\x80\x80\x80\x80\x80\x20\x00", "doesn't fit 32 bits"),
        (b"\x19\xf5\xff\xff\xff\xff\x0f", "collection of 4294967295 is cut off"),
        (b"\x1b\xff\xff\xff\xff\x0f\x55", "collection of 4294967295 is cut off"),
        (b"\x18\xff\xff\xff\xff\x0f", "cut off"),
        (b"\x15\x02\x05\x02\x02\x00", "field 1 comes after field 1"),
        (b"\x1e\x00", "no wire type 14"),
        (b"\x10\x00", "no wire type 0"),
        (b"\x19\x11\x00\x00", "boolean is 0"),
        (b"\x1c" * 100, "nested"),
        (b"\x19" + b"\x19" * 100, "nested"),
    ],
)
def test_damage_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(PyarrowFallback, match=message):
        decode(data)


def test_fields_are_of_the_type_asked_for_or_refused() -> None:
    inner = ThriftStruct({1: (FALSE, False)})
    struct = ThriftStruct(
        {
            1: (I32, 5),
            2: (I64, 6),
            3: (BINARY, b"\xc3\xa9"),
            4: (BINARY, b"\xff"),
            5: (STRUCT, inner),
            6: (LIST, ThriftList(I32, [1])),
            7: (LIST, ThriftList(I32, [])),
        }
    )
    assert (struct.i32(1), struct.i64(2), struct.text(3)) == (5, 6, "é")
    assert struct.struct(5) is inner
    assert inner.flag(1) is False
    assert (struct.list_of(6, I32), struct.list_of(7, STRUCT)) == ([1], [])
    assert (struct.i32(9), struct.flag(9), struct.text(9), struct.list_of(9, I32)) == (None,) * 4
    with pytest.raises(PyarrowFallback, match="isn't UTF-8"):
        struct.text(4)
    with pytest.raises(PyarrowFallback, match="field 1 has wire type 5, expected 6"):
        struct.i64(1)
    with pytest.raises(PyarrowFallback, match="field 1 has wire type 5, expected a boolean"):
        struct.flag(1)
    with pytest.raises(PyarrowFallback, match="field 6 lists wire type 5, not 6"):
        struct.list_of(6, I64)


@given(st.integers(0, 2**64 - 1))
@settings(max_examples=50)
def test_varints_hold_64_bits(number: int) -> None:
    septets = []
    rest = number
    while rest > 127:
        septets.append(rest & 127 | 128)
        rest >>= 7
    data = bytes([*septets, rest])
    assert read_varint(b"x" + data, 1) == (number, 1 + len(data))
