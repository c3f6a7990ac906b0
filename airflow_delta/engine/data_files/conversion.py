"""Convert the values of a data file to the types of the table.

The types differ where a column was widened after the file was written (PROTOCOL.md, "Type Widening"), where
a writer uses another form of the same type, such as large strings, and inside structs, whose fields are
found by name or id. `converter` compares the types once; the result converts the arrays of all batches.

==================  =====================================================================================
table               file
==================  =====================================================================================
integers            integers; a value that doesn't fit is an error
double, float       narrower floats; integers of up to 32 bits for a double
decimal             integers and decimals; a value that doesn't fit is an error
timestamp, _ntz     timestamps of any unit and zone: the same number. Nanoseconds are rounded down to
                    microseconds. INT96 counts as UTC. Also dates
string, binary      strings and bytes of all forms; a string must be UTF-8
struct              structs, field by field; a missing field is null
array, map          lists of all forms; maps
void                anything; the values are null
==================  =====================================================================================

Any other type is an error, because null would hide the values of the file. Dates and times of the hybrid
calendar are converted first (`hybrid_calendar`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.numpy_arrays import int64_array, int64_view
from airflow_delta.engine.arrow.python_arrays import scalar_of
from airflow_delta.engine.data_files.hybrid_calendar import HybridCalendar

__all__ = ["Conversion", "MismatchError", "StructFields", "converter", "without_metadata"]

Conversion: TypeAlias = "Callable[[pa.Array], pa.Array] | None"
"""Converts an array of the file's type; None if nothing has to be done."""

StructFields: TypeAlias = "Callable[[pa.StructType, pa.StructType], Mapping[str, int]]"
"""Finds the fields of a struct of the table in a struct of a file: their indexes there, by their names."""

_MICROS = {"s": 1_000_000, "ms": 1_000, "us": 1}


class MismatchError(Exception):
    """The file's type can't be converted to the table's. The text says which ones."""


def converter(
    stored: pa.DataType,
    wanted: pa.DataType,
    find: StructFields,
    calendar: HybridCalendar | None = None,
) -> Conversion:
    """How to convert the arrays of a column.

    The conversion raises `OldTimeError` for a time that is too old for the calendar of the file.

    Args:
        stored: the type in the file.
        wanted: the type in the table, as `to_arrow_schema` makes it of a nullable schema.
        find: finds the fields of structs.
        calendar: what the file counts in the hybrid calendar.

    Raises:
        MismatchError: see the class.
    """
    if isinstance(stored, pa.BaseExtensionType):
        inner = converter(stored.storage_type, wanted, find, calendar)
        return lambda array: _apply(inner, array.storage)
    if pa.types.is_null(wanted):
        return None if stored == wanted else lambda array: pa.nulls(len(array))
    if pa.types.is_null(stored):
        plain = without_metadata(wanted)
        return lambda array: pa.nulls(len(array), plain)
    if pa.types.is_nested(wanted):
        return _nested(stored, wanted, find, calendar)
    conversion = None if stored == wanted else _leaf(stored, wanted)
    if calendar is None or not calendar.affects(stored, wanted):
        return conversion
    return lambda array: _apply(conversion, calendar.convert(array))


def without_metadata(type_: pa.DataType) -> pa.DataType:
    """A type without the metadata of its fields at any depth."""
    types = pa.types
    if types.is_struct(type_):
        return pa.struct([_plain_field(field) for field in type_])
    if types.is_map(type_):
        return pa.map_(_plain_field(type_.key_field), _plain_field(type_.item_field))
    return pa.list_(_plain_field(type_.value_field)) if types.is_list(type_) else type_


def _plain_field(field: pa.Field) -> pa.Field:
    return pa.field(field.name, without_metadata(field.type), field.nullable)


def _apply(conversion: Conversion, array: pa.Array) -> pa.Array:
    return array if conversion is None else conversion(array)


def _leaf(stored: pa.DataType, wanted: pa.DataType) -> Conversion:
    types = pa.types
    if types.is_timestamp(wanted):
        if types.is_timestamp(stored):
            return _timestamps(stored.unit, wanted)
        allowed = types.is_date(stored)
    elif types.is_integer(wanted):
        allowed = types.is_integer(stored)
    elif types.is_floating(wanted):
        allowed = _is_narrower_number(stored, wanted)
    elif types.is_decimal(wanted):
        allowed = types.is_integer(stored) or types.is_decimal(stored)
    elif types.is_date(wanted):
        allowed = types.is_date(stored)
    else:
        allowed = (types.is_string(wanted) or types.is_binary(wanted)) and _is_bytes(stored)
    if not allowed:
        raise _mismatch(stored, wanted)
    return lambda array: array.cast(wanted)


def _is_narrower_number(stored: pa.DataType, wanted: pa.DataType) -> bool:
    if pa.types.is_floating(stored):
        return bool(stored.bit_width < wanted.bit_width)
    return bool(pa.types.is_integer(stored) and stored.bit_width <= 32 and wanted == pa.float64())


def _is_bytes(stored: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_string(stored)
        or types.is_large_string(stored)
        or types.is_binary(stored)
        or types.is_large_binary(stored)
        or types.is_fixed_size_binary(stored)
    )


def _timestamps(unit: str, wanted: pa.DataType) -> Conversion:
    if unit == "ns":
        # Arrow's cast fails on lost digits, or rounds towards zero.
        return lambda array: _floor_to_micros(array).cast(wanted)
    if unit == "us":
        return lambda array: array.view(wanted)
    factor = scalar_of(_MICROS[unit], pa.int64())
    return lambda array: pc.multiply_checked(array.view(pa.int64()), factor).cast(wanted)


def _floor_to_micros(array: pa.Array) -> pa.Array:
    numbers = int64_array(np.floor_divide(int64_view(array), 1000))
    if not array.null_count:
        return numbers
    return pc.if_else(array.is_valid(), numbers, scalar_of(None, pa.int64()))


def _nested(
    stored: pa.DataType,
    wanted: pa.DataType,
    find: StructFields,
    calendar: HybridCalendar | None,
) -> Conversion:
    types = pa.types
    if types.is_struct(wanted) and types.is_struct(stored):
        return _structs(stored, wanted, find, calendar)
    if types.is_map(wanted) and types.is_map(stored):
        return _maps(stored, wanted, find, calendar)
    if types.is_list(wanted):
        if types.is_list(stored) or types.is_large_list(stored):
            return _lists(stored, wanted, find, calendar)
        if types.is_fixed_size_list(stored):
            plain = pa.list_(stored.value_field)
            inner = _lists(plain, wanted, find, calendar)
            return lambda array: _apply(inner, array.cast(plain))
    raise _mismatch(stored, wanted)


def _structs(
    stored: pa.StructType,
    wanted: pa.StructType,
    find: StructFields,
    calendar: HybridCalendar | None,
) -> Conversion:
    found = find(stored, wanted)
    sources = [found.get(field.name) for field in wanted]
    inner = [
        None if index is None else converter(stored[index].type, field.type, find, calendar)
        for index, field in zip(sources, wanted, strict=True)
    ]
    if stored == wanted and sources == [*range(stored.num_fields)] and not any(inner):
        return None
    plain = without_metadata(wanted)

    def _convert(array: pa.StructArray) -> pa.Array:
        children = [
            pa.nulls(len(array), field.type) if index is None else _apply(each, array.field(index))
            for index, each, field in zip(sources, inner, plain, strict=True)
        ]
        return _struct_array(children, plain, array)

    return _convert


def _struct_array(
    children: list[pa.Array], wanted: pa.StructType, array: pa.StructArray
) -> pa.Array:
    """A struct array of new children, null where another one is."""
    present = None
    if array.null_count:
        # Concatenating copies the bits to the start of a buffer; the children have no offset either.
        present = pa.concat_arrays([array.is_valid(), pa.nulls(1, pa.bool_())]).buffers()[1]
    return pa.Array.from_buffers(wanted, len(array), [present], children=children)


def _lists(
    stored: pa.DataType, wanted: pa.ListType, find: StructFields, calendar: HybridCalendar | None
) -> Conversion:
    inner = converter(stored.value_type, wanted.value_type, find, calendar)
    if stored == wanted and inner is None:
        return None
    plain = without_metadata(wanted)

    def _convert(array: pa.ListArray) -> pa.Array:
        offsets, first, end = _from_zero(array.offsets)
        values = _apply(inner, array.values.slice(first, end - first))
        return pa.ListArray.from_arrays(offsets, values, plain, mask=_null_mask(array))

    return _convert


def _maps(
    stored: pa.MapType, wanted: pa.MapType, find: StructFields, calendar: HybridCalendar | None
) -> Conversion:
    keys = converter(stored.key_type, wanted.key_type, find, calendar)
    items = converter(stored.item_type, wanted.item_type, find, calendar)
    if stored == wanted and keys is None and items is None:
        return None
    plain = without_metadata(wanted)

    def _convert(array: pa.MapArray) -> pa.Array:
        offsets, first, end = _from_zero(array.offsets)
        return pa.MapArray.from_arrays(
            offsets,
            _apply(keys, array.keys.slice(first, end - first)),
            _apply(items, array.items.slice(first, end - first)),
            plain,
            mask=_null_mask(array),
        )

    return _convert


def _from_zero(offsets: pa.Array) -> tuple[pa.Array, int, int]:
    """Offsets that start at 0, and the part of the values to which they refer."""
    first, end = offsets[0].as_py(), offsets[-1].as_py()
    return (
        pc.subtract(offsets.cast(pa.int64()), scalar_of(first, pa.int64())).cast(pa.int32()),
        first,
        end,
    )


def _null_mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _mismatch(stored: pa.DataType, wanted: pa.DataType) -> MismatchError:
    return MismatchError(f"it has the type {stored} there, and {wanted} in the table")
