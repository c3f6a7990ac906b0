"""A table's schema as Arrow's, and back.

=====================  =========================  ===============================================
Delta                  to Arrow                   also taken from Arrow
=====================  =========================  ===============================================
``byte`` … ``long``    ``int8`` … ``int64``
``float``, ``double``  ``float32``, ``float64``
``decimal(p,s)``       ``decimal128(p, s)``       the other widths, up to 38 digits
``string``             ``string``                 ``large_string``, ``string_view``
``binary``             ``binary``                 large, fixed size and view forms
``date``               ``date32``                 ``date64``
``timestamp``          ``timestamp[us, tz=UTC]``  other zones, seconds and milliseconds
``timestamp_ntz``      ``timestamp[us]``          seconds and milliseconds
``void``               ``null``
``array``              ``list``                   large, fixed size and view forms
``map``, ``struct``    ``map``, ``struct``
=====================  =========================  ===============================================

A dictionary counts as its values. What has no counterpart (``variant``; unsigned numbers, nanoseconds,
times of day, …) is an error that names the column: a cast that loses nothing today may lose something
tomorrow, so it's the caller's to make.

Column metadata survives both ways. In Arrow it is text: strings stay as they are, other JSON values,
and strings that could be taken for such, are written as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from airflow_delta.engine.errors import InvalidTableError
from airflow_delta.engine.model.schema import (
    BINARY,
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    MAX_DECIMAL_PRECISION,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)

__all__ = ["from_arrow_schema", "to_arrow_schema"]

_TO_ARROW: Mapping[PrimitiveType, pa.DataType] = {
    BYTE: pa.int8(),
    SHORT: pa.int16(),
    INTEGER: pa.int32(),
    LONG: pa.int64(),
    FLOAT: pa.float32(),
    DOUBLE: pa.float64(),
    STRING: pa.string(),
    BINARY: pa.binary(),
    BOOLEAN: pa.bool_(),
    DATE: pa.date32(),
    TIMESTAMP: pa.timestamp("us", "UTC"),
    TIMESTAMP_NTZ: pa.timestamp("us"),
    VOID: pa.null(),
}
_FROM_ARROW: Mapping[pa.DataType, PrimitiveType] = {
    **{arrow: delta for delta, arrow in _TO_ARROW.items()},
    pa.large_string(): STRING,
    pa.string_view(): STRING,
    pa.large_binary(): BINARY,
    pa.binary_view(): BINARY,
    pa.date64(): DATE,
}
_TIME_UNITS = ("s", "ms", "us")
_LISTS: tuple[Callable[[pa.DataType], bool], ...] = (
    pa.types.is_list,
    pa.types.is_large_list,
    pa.types.is_fixed_size_list,
    pa.types.is_list_view,
    pa.types.is_large_list_view,
)


def to_arrow_schema(schema: StructType) -> pa.Schema:
    """A table's schema as Arrow's, with nullability and metadata of columns at every depth.

    Raises:
        InvalidTableError: a type has no counterpart in Arrow. Facts: column.
    """
    return pa.schema([_to_field(field, field.name) for field in schema])


def from_arrow_schema(schema: pa.Schema) -> StructType:
    """An Arrow schema as a table's. The metadata of the schema as a whole has no place there.

    Raises:
        InvalidTableError: a type has no counterpart in Delta, or names of columns differ in case
            alone. Facts: column, or names.
    """
    return StructType(tuple(_from_field(field, field.name) for field in schema))


def _to_field(field: StructField, column: str) -> pa.Field:
    metadata = {key: _to_text(value) for key, value in field.metadata.items()}
    arrow = _of_values(field.name, field.data_type, column, nullable=field.nullable)
    return arrow.with_metadata(metadata) if metadata else arrow


def _of_values(name: str, data_type: DataType, column: str, *, nullable: bool) -> pa.Field:
    if data_type == VOID and not nullable:
        raise _no_counterpart(column, "type void, but not nullable", "Arrow", "leave it out")
    return pa.field(name, _to_type(data_type, column), nullable)


def _to_type(data_type: DataType, column: str) -> pa.DataType:
    match data_type:
        case DecimalType(precision, scale):
            return pa.decimal128(precision, scale)
        case StructType(fields):
            return pa.struct([_to_field(field, f"{column}.{field.name}") for field in fields])
        case ArrayType(element, contains_null):
            where = f"{column}.element"
            return pa.list_(_of_values("element", element, where, nullable=contains_null))
        case MapType(key, value, value_contains_null):
            return pa.map_(
                _of_values("key", key, f"{column}.key", nullable=False),
                _of_values("value", value, f"{column}.value", nullable=value_contains_null),
            )
        case PrimitiveType() if data_type in _TO_ARROW:
            return _TO_ARROW[data_type]
    raise _no_counterpart(column, f"type {data_type}", "Arrow", "leave it out")


def _from_field(field: pa.Field, column: str) -> StructField:
    metadata = {
        key.decode(): _from_text(value.decode()) for key, value in (field.metadata or {}).items()
    }
    return StructField(field.name, _from_type(field.type, column), field.nullable, metadata)


def _from_type(type_: pa.DataType, column: str) -> DataType:
    if type_ in _FROM_ARROW:
        return _FROM_ARROW[type_]
    if pa.types.is_dictionary(type_):
        return _from_type(type_.value_type, column)
    if pa.types.is_fixed_size_binary(type_):
        return BINARY
    if pa.types.is_timestamp(type_) and type_.unit in _TIME_UNITS:
        return TIMESTAMP_NTZ if type_.tz is None else TIMESTAMP
    if pa.types.is_decimal(type_) and 0 <= type_.scale <= type_.precision <= MAX_DECIMAL_PRECISION:
        return DecimalType(type_.precision, type_.scale)
    if pa.types.is_struct(type_):
        return StructType(tuple(_from_field(field, f"{column}.{field.name}") for field in type_))
    if any(is_list(type_) for is_list in _LISTS):
        element = _from_type(type_.value_type, f"{column}.element")
        return ArrayType(element, type_.value_field.nullable)
    if pa.types.is_map(type_):
        key = _from_type(type_.key_type, f"{column}.key")
        value = _from_type(type_.item_type, f"{column}.value")
        return MapType(key, value, type_.item_field.nullable)
    raise _no_counterpart(column, f"Arrow type {type_}", "Delta", "cast it to a type that has one")


def _no_counterpart(column: str, type_: str, where: str, remedy: str) -> InvalidTableError:
    return InvalidTableError(
        f"the column {column!r} is of the {type_}, which has no counterpart in {where}; {remedy}",
        column=column,
    )


def _to_text(value: Any) -> str:
    """A JSON value as text that `_from_text` reads back."""
    if isinstance(value, str) and _from_text(value) == value:
        return value
    return json.dumps(value)


def _from_text(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
