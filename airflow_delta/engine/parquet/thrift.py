"""Decode and encode Thrift's compact protocol, in which Parquet stores footers and page headers.

`decode` needs no definition of the struct. It keeps each field by its number, with its type on the
wire, in the order of the bytes. So fields that a later version of the format adds aren't lost, and
`encode` returns the bytes that `decode` read. (That holds for writers that encode each number in the
shortest way, which all do.)

Damaged bytes raise `PyarrowFallback`; they never make the decoder allocate more than they hold.

Spec: thrift-compact-protocol.md of Apache Thrift.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from airflow_delta.engine.parquet.fallback import PyarrowFallback

__all__ = [
    "BINARY",
    "DOUBLE",
    "FALSE",
    "I8",
    "I16",
    "I32",
    "I64",
    "LIST",
    "MAP",
    "SET",
    "STRUCT",
    "TRUE",
    "UUID",
    "ThriftList",
    "ThriftMap",
    "ThriftStruct",
    "decode",
    "encode",
    "read_varint",
]

TRUE, FALSE, I8, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT, UUID = range(1, 14)
"""The types. Values of ``DOUBLE``, ``BINARY`` and ``UUID`` are bytes, which aren't interpreted."""

_BITS = {I16: 16, I32: 32, I64: 64}
_FIXED = {DOUBLE: 8, UUID: 16}

# The structs of a footer are nested six deep.
_DEEPEST = 24


class ThriftList(NamedTuple):
    """A list or a set; the field that holds it has the wire type.

    Attributes:
        item_type: the wire type of every item.
        items: the items.
    """

    item_type: int
    items: list[Any]


class ThriftMap(NamedTuple):
    """A map, as its pairs of keys and values; the types of an empty one are 0."""

    key_type: int
    value_type: int
    items: list[tuple[Any, Any]]


@dataclass(slots=True)
class ThriftStruct:
    """A struct, as the wire type and value of each field.

    The methods return the value of a field, or None if the struct lacks it. They raise
    `PyarrowFallback` if the field has another type.

    Attributes:
        fields: wire type and value by field number, in the order of the bytes.
    """

    fields: dict[int, tuple[int, Any]] = field(default_factory=dict)

    def i32(self, number: int) -> int | None:
        """The value of an I32 field."""
        value: int | None = self._value(number, I32)
        return value

    def i64(self, number: int) -> int | None:
        """The value of an I64 field."""
        value: int | None = self._value(number, I64)
        return value

    def binary(self, number: int) -> bytes | None:
        """The value of a BINARY field."""
        value: bytes | None = self._value(number, BINARY)
        return value

    def text(self, number: int) -> str | None:
        """The value of a BINARY field that holds UTF-8."""
        value = self.binary(number)
        try:
            return None if value is None else value.decode()
        except UnicodeDecodeError as error:
            raise PyarrowFallback(f"field {number} isn't UTF-8") from error

    def flag(self, number: int) -> bool | None:
        """The value of a boolean field."""
        type_, value = self.fields.get(number, (TRUE, None))
        if type_ not in (TRUE, FALSE):
            raise PyarrowFallback(f"field {number} has wire type {type_}, expected a boolean")
        flag: bool | None = value
        return flag

    def struct(self, number: int) -> ThriftStruct | None:
        """The value of a STRUCT field."""
        value: ThriftStruct | None = self._value(number, STRUCT)
        return value

    def list_of(self, number: int, item_type: int) -> list[Any] | None:
        """The items of a LIST field, which must be of a type unless the list is empty."""
        value: ThriftList | None = self._value(number, LIST)
        if value is None:
            return None
        if value.items and value.item_type != item_type:
            raise PyarrowFallback(
                f"field {number} lists wire type {value.item_type}, not {item_type}"
            )
        return value.items

    def _value(self, number: int, expected: int) -> Any:
        type_, value = self.fields.get(number, (expected, None))
        if type_ != expected:
            raise PyarrowFallback(f"field {number} has wire type {type_}, expected {expected}")
        return value


def decode(data: bytes, start: int = 0) -> tuple[ThriftStruct, int]:
    """Read a struct.

    Args:
        data: bytes that contain it, and perhaps more.
        start: the position of its first byte.

    Returns:
        The struct, and the position after its last byte.

    Raises:
        PyarrowFallback: it is damaged or cut off.
    """
    try:
        # Values that are cut off raise IndexError as well: the zero after the last field is missing.
        return _struct(data, start, _DEEPEST)
    except IndexError as error:
        raise PyarrowFallback("a Thrift struct is cut off") from error


def encode(struct: ThriftStruct) -> bytes:
    """Encode a struct, with each number in its shortest form."""
    out = bytearray()
    _put_struct(out, struct)
    return bytes(out)


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Read an unsigned number of up to 64 bits, stored as seven bits a byte, the lowest first.

    Returns:
        The number, and the position after its last byte.

    Raises:
        IndexError: the number is cut off.
        PyarrowFallback: it has more than 64 bits.
    """
    byte = data[position]
    position += 1
    if byte < 0x80:
        return byte, position
    value, shift = byte & 0x7F, 7
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 64:
                raise PyarrowFallback("a number has more than 64 bits")
            return value, position
        shift += 7
        if shift > 63:
            raise PyarrowFallback("a number has more than 64 bits")


def _struct(data: bytes, position: int, levels: int) -> tuple[ThriftStruct, int]:
    # A footer of a thousand column chunks has thirty thousand fields. Most of them are numbers of one
    # byte and short texts, so these two are read without calling a function.
    fields: dict[int, tuple[int, Any]] = {}
    number = 0
    while header := data[position]:
        position += 1
        type_ = header & 0x0F
        if header > 0x0F:
            number += header >> 4
        else:
            number, position = _field_number(data, position, number)
        value: Any
        if type_ in (I64, I32):
            byte = data[position]
            if byte < 0x80:
                value = (byte >> 1) ^ -(byte & 1)
                position += 1
            else:
                value, position = _number(data, position, type_)
        elif type_ == BINARY:
            length = data[position]
            position += 1
            if length > 0x7F:
                length, position = read_varint(data, position - 1)
            value = data[position : position + length]
            position += length
        elif type_ in (TRUE, FALSE):
            value = type_ == TRUE
        else:
            value, position = _value(data, position, type_, levels)
        fields[number] = (type_, value)
    return ThriftStruct(fields), position + 1


def _field_number(data: bytes, position: int, before: int) -> tuple[int, int]:
    """Read a field number that is stored whole, not as the distance from the one before."""
    number, position = _number(data, position, I16)
    if number <= before:
        raise PyarrowFallback(f"field {number} comes after field {before} in a struct")
    return number, position


def _value(data: bytes, position: int, type_: int, levels: int) -> tuple[Any, int]:
    """Read a value that isn't a boolean field of a struct."""
    if type_ in _BITS:
        return _number(data, position, type_)
    if type_ == BINARY:
        length, position = read_varint(data, position)
        return _bytes(data, position, length)
    if not levels:
        raise PyarrowFallback(f"Thrift structs are nested more than {_DEEPEST} deep")
    if type_ == STRUCT:
        return _struct(data, position, levels - 1)
    if type_ in (LIST, SET):
        return _list(data, position, levels - 1)
    if type_ == MAP:
        return _map(data, position, levels - 1)
    if type_ in _FIXED:
        return _bytes(data, position, _FIXED[type_])
    if type_ == I8:
        byte = data[position]
        return byte - 256 if byte > 127 else byte, position + 1
    if type_ in (TRUE, FALSE):
        # Only items of lists come here; a field of a struct has its value in the wire type.
        if data[position] not in (TRUE, FALSE):
            raise PyarrowFallback(f"a boolean is {data[position]}, expected 1 or 2")
        return data[position] == TRUE, position + 1
    raise PyarrowFallback(f"there is no wire type {type_}")


def _number(data: bytes, position: int, type_: int) -> tuple[int, int]:
    value, position = read_varint(data, position)
    if value >> _BITS[type_]:
        raise PyarrowFallback(f"a number doesn't fit {_BITS[type_]} bits")
    return (value >> 1) ^ -(value & 1), position


def _bytes(data: bytes, position: int, length: int) -> tuple[bytes, int]:
    return data[position : position + length], position + length


def _list(data: bytes, position: int, levels: int) -> tuple[ThriftList, int]:
    header = data[position]
    position += 1
    size, type_ = header >> 4, header & 0x0F
    if size == 15:
        size, position = read_varint(data, position)
    _check_size(data, position, size)
    items = []
    for _ in range(size):
        item, position = _value(data, position, type_, levels)
        items.append(item)
    return ThriftList(type_, items), position


def _map(data: bytes, position: int, levels: int) -> tuple[ThriftMap, int]:
    size, position = read_varint(data, position)
    if not size:
        return ThriftMap(0, 0, []), position
    types = data[position]
    position += 1
    key_type, value_type = types >> 4, types & 0x0F
    _check_size(data, position, size)
    items = []
    for _ in range(size):
        key, position = _value(data, position, key_type, levels)
        value, position = _value(data, position, value_type, levels)
        items.append((key, value))
    return ThriftMap(key_type, value_type, items), position


def _check_size(data: bytes, position: int, size: int) -> None:
    # Every item takes at least one byte.
    if size > len(data) - position:
        raise PyarrowFallback(f"a Thrift collection of {size} is cut off")


def _put_struct(out: bytearray, struct: ThriftStruct) -> None:
    before = 0
    for number, (type_, value) in struct.fields.items():
        if 0 < number - before < 16:
            out.append((number - before) << 4 | type_)
        else:
            out.append(type_)
            _put_varint(out, (number << 1) ^ (number >> 15))
        before = number
        if type_ not in (TRUE, FALSE):
            _put_value(out, type_, value)
    out.append(0)


def _put_value(out: bytearray, type_: int, value: Any) -> None:
    if type_ in _BITS:
        _put_varint(out, (value << 1) ^ (value >> 63))
    elif type_ == BINARY:
        _put_varint(out, len(value))
        out += value
    elif type_ == STRUCT:
        _put_struct(out, value)
    elif type_ in (LIST, SET):
        _put_list(out, value)
    elif type_ == MAP:
        _put_map(out, value)
    elif type_ in _FIXED:
        out += value
    elif type_ == I8:
        out.append(value & 0xFF)
    else:
        out.append(TRUE if value else FALSE)


def _put_list(out: bytearray, value: ThriftList) -> None:
    if len(value.items) < 15:
        out.append(len(value.items) << 4 | value.item_type)
    else:
        out.append(0xF0 | value.item_type)
        _put_varint(out, len(value.items))
    for item in value.items:
        _put_value(out, value.item_type, item)


def _put_map(out: bytearray, value: ThriftMap) -> None:
    _put_varint(out, len(value.items))
    if value.items:
        out.append(value.key_type << 4 | value.value_type)
    for key, item in value.items:
        _put_value(out, value.key_type, key)
        _put_value(out, value.value_type, item)


def _put_varint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
