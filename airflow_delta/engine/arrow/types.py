"""Convert the schema of a table to an Arrow schema.

`_TO_ARROW` has the types without parameters. A type without counterpart (``variant``) is an error that
names the column.

Arrow's column metadata is text. Strings stay as they are, unless they could be taken for JSON; these,
and other JSON values, are written as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
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

__all__ = ["to_arrow_schema"]

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


def to_arrow_schema(schema: StructType) -> pa.Schema:
    """Convert a schema, with nullability and metadata of columns at every depth.

    Raises:
        InvalidTableError: a type has no counterpart in Arrow. Facts: column.
    """
    return pa.schema([_to_field(field, field.name) for field in schema])


def _to_field(field: StructField, column: str) -> pa.Field:
    metadata = {key: _to_text(value) for key, value in field.metadata.items()}
    arrow = _of_values(field.name, field.data_type, column, nullable=field.nullable)
    return arrow.with_metadata(metadata) if metadata else arrow


def _of_values(name: str, data_type: DataType, column: str, *, nullable: bool) -> pa.Field:
    if data_type == VOID and not nullable:
        raise _no_counterpart(column, "type void, but not nullable")
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
    raise _no_counterpart(column, f"type {data_type}")


def _no_counterpart(column: str, type_: str) -> InvalidTableError:
    return InvalidTableError(
        f"the column {column!r} is of the {type_}, which has no counterpart in Arrow; leave it out",
        column=column,
    )


def _to_text(value: Any) -> str:
    """A JSON value as text, different for different values."""
    if isinstance(value, str) and not _could_be_json(value):
        return value
    return json.dumps(value, separators=(",", ":"))


def _could_be_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    except RecursionError:
        return True  # It is JSON as far as it was parsed.
    return True
