"""Read and write the JSON form of a schema: `parse_schema` and its inverse `schema_to_json`.

``metaData.schemaString`` is JSON text. A type in it is a name (``"long"``, ``"decimal(10,2)"``) or an
object (``struct``, ``array``, ``map``). The metadata of columns stay unchanged. These other names of types
are read too, and written back as the usual ones:

==============================  =================
 ``null`` (early Spark)          ``void``
 ``timestamp without time zone`` ``timestamp_ntz``
 ``timestamp_ltz``               ``timestamp``
 ``decimal``                     ``decimal(10,0)``
==============================  =================

A column may lack ``metadata``, as in the reference implementation. Anything else that is missing, or of the
wrong type, is an error.

PROTOCOL.md, "Schema Serialization Format".
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NoReturn

from airflow_delta.engine.errors import InvalidTableError
from airflow_delta.engine.model.json_fields import is_text
from airflow_delta.engine.model.schema import (
    PRIMITIVE_TYPES,
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

__all__ = [
    "data_type_from_json",
    "data_type_to_json",
    "parse_schema",
    "schema_to_json",
    "struct_to_json",
]

_ALIASES: Mapping[str, DataType] = {
    "null": VOID,
    "timestamp without time zone": TIMESTAMP_NTZ,
    "timestamp_ltz": TIMESTAMP,
    "decimal": DecimalType(10, 0),
}
_MAX_CHARACTERS = 80
_DEEPEST = 200
"""The maximum depth of JSON, to which a struct in a struct adds three. Functions over schemas are
recursive, and must not overflow the stack."""
_DECIMAL = re.compile(r"decimal\(\s*(\d{1,9})\s*,\s*(-?\d{1,9})\s*\)", re.ASCII)


def parse_schema(text: str | None, where: str) -> StructType:
    """Parse a ``schemaString``.

    Args:
        text: the JSON text; None, if the ``metaData`` has none, for a schema without columns.
        where: a name of the object with the text, for messages.

    Raises:
        InvalidTableError: the text is no JSON, or no schema. The message names the column. Facts: where.
    """
    if text is None:
        return StructType()
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
        if text.count("{") + text.count("[") > _DEEPEST:
            _check_depth(value)
        schema = data_type_from_json(value)
    except ValueError as error:
        raise InvalidTableError(f"{where}: the schema is no JSON: {error}", where=where) from error
    except RecursionError as error:
        raise InvalidTableError(
            f"{where}: the schema is nested too deeply to be read", where=where
        ) from error
    except InvalidTableError as error:
        raise InvalidTableError(f"{where}: {error.message}", where=where) from error
    if not isinstance(schema, StructType):
        raise InvalidTableError(
            f"{where}: a table's schema must be a struct, found {schema}", where=where
        )
    return schema


def schema_to_json(schema: StructType) -> str:
    """Write the ``schemaString`` of a schema: compact JSON, with keys in the order of the specification."""
    return json.dumps(data_type_to_json(schema), separators=(",", ":"), ensure_ascii=False)


def data_type_from_json(value: Any, *, path: str = "schema") -> DataType:
    """Convert a parsed JSON value, such as a field's ``type``, to a type.

    Args:
        value: a type's name, or the object of a struct, array or map.
        path: the position of the value in the schema, for messages.

    Raises:
        InvalidTableError: the value describes no type of the protocol.
    """
    if isinstance(value, str):
        return _named_type(value, path)
    if isinstance(value, Mapping):
        match value.get("type"):
            case "struct":
                return _struct(value, path)
            case "array":
                return ArrayType(
                    data_type_from_json(_key(value, "elementType", path), path=f"{path}.element"),
                    _flag(value, "containsNull", path),
                )
            case "map":
                return MapType(
                    data_type_from_json(_key(value, "keyType", path), path=f"{path}.key"),
                    data_type_from_json(_key(value, "valueType", path), path=f"{path}.value"),
                    _flag(value, "valueContainsNull", path),
                )
    raise InvalidTableError(
        f"{path}: expected a type's name, or an object of type struct, array or map, "
        f"found {_excerpt(value)}"
    )


def struct_to_json(struct: StructType) -> dict[str, Any]:
    """Convert a struct to its JSON value."""
    return {"type": "struct", "fields": [_field_to_json(column) for column in struct.fields]}


def data_type_to_json(data_type: DataType) -> str | dict[str, Any]:
    """Convert a type to its JSON value: the inverse of `data_type_from_json`."""
    match data_type:
        case StructType():
            return struct_to_json(data_type)
        case ArrayType(element_type, contains_null):
            return {
                "type": "array",
                "elementType": data_type_to_json(element_type),
                "containsNull": contains_null,
            }
        case MapType(key_type, value_type, value_contains_null):
            return {
                "type": "map",
                "keyType": data_type_to_json(key_type),
                "valueType": data_type_to_json(value_type),
                "valueContainsNull": value_contains_null,
            }
        case PrimitiveType() | DecimalType():
            return str(data_type)


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(_DEEPEST):
        level = [
            child
            for each in level
            for child in (each.values() if isinstance(each, dict) else each)
            if isinstance(child, dict | list)
        ]
        if not level:
            return
    raise RecursionError


def _named_type(name: str, path: str) -> DataType:
    known = PRIMITIVE_TYPES.get(name) or _ALIASES.get(name)
    if known is not None:
        return known
    decimal = _DECIMAL.fullmatch(name)
    if decimal is None:
        raise InvalidTableError(
            f"{path}: {_excerpt(name)} is no type of the Delta protocol; it knows "
            f"{', '.join(PRIMITIVE_TYPES)} and decimal(precision,scale)"
        )
    try:
        return DecimalType(int(decimal[1]), int(decimal[2]))
    except InvalidTableError as error:
        raise InvalidTableError(f"{path}: {error.message}") from error


def _struct(value: Mapping[str, Any], path: str) -> StructType:
    fields = _key(value, "fields", path)
    if not isinstance(fields, list):
        raise InvalidTableError(f"{path}.fields: expected an array, found {_excerpt(fields)}")
    columns = tuple(_field(item, f"{path}.fields[{index}]") for index, item in enumerate(fields))
    try:
        return StructType(columns)
    except InvalidTableError as error:
        raise InvalidTableError(f"{path}: {error.message}", **error.facts) from error


def _field(value: Any, path: str) -> StructField:
    if not isinstance(value, Mapping):
        raise InvalidTableError(f"{path}: expected an object, found {_excerpt(value)}")
    name = _key(value, "name", path)
    if not isinstance(name, str):
        raise InvalidTableError(f"{path}.name: expected a string, found {_excerpt(name)}")
    if not is_text(name):
        raise InvalidTableError(
            f"{path}.name: {name!r} has half a surrogate pair, which is no character"
        )
    path = f"{path} {name!r}"
    metadata = value.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        raise InvalidTableError(f"{path}.metadata: expected an object, found {_excerpt(metadata)}")
    return StructField(
        name=name,
        data_type=data_type_from_json(_key(value, "type", path), path=path),
        nullable=_flag(value, "nullable", path),
        metadata=metadata or {},
    )


def _field_to_json(column: StructField) -> dict[str, Any]:
    return {
        "name": column.name,
        "type": data_type_to_json(column.data_type),
        "nullable": column.nullable,
        "metadata": dict(column.metadata),
    }


def _key(value: Mapping[str, Any], key: str, path: str) -> Any:
    if key not in value:
        raise InvalidTableError(f"{path}: {key!r} is missing")
    return value[key]


def _flag(value: Mapping[str, Any], key: str, path: str) -> bool:
    flag = _key(value, key, path)
    if not isinstance(flag, bool):
        raise InvalidTableError(f"{path}.{key}: expected true or false, found {_excerpt(flag)}")
    return flag


def _excerpt(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}…"


def _refuse_constant(name: str) -> NoReturn:
    # Python reads NaN and Infinity, which aren't JSON.
    raise ValueError(f"{name} is no JSON value")
