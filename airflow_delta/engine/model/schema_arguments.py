"""Check schemas from users: their types, and that JSON can hold their metadata.

The classes of `schema` don't check the types of their fields. Nor does Python's JSON writer: it writes
numeric keys as texts, and NaN as a word that isn't JSON.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from airflow_delta.engine.model.arguments import (
    check_list,
    check_mapping,
    check_text,
    check_type,
    wrong_argument,
)
from airflow_delta.engine.model.schema import (
    ArrayType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)

__all__ = ["check_data_type", "check_fields"]

_JSON = "a JSON value, such as a text, a finite number, or a list or dict of these"
_TYPES = "a type of airflow_delta.engine.model.schema, such as LONG"


def check_data_type(argument: str, data_type: object, *, table: str | None = None) -> None:
    """Check that an argument, and everything inside it, is a type.

    Args:
        argument: its name.
        data_type: its value.
        table: the table's location, if known.

    Raises:
        InvalidArgumentError: it isn't, or something inside it isn't; see `check_fields`.
    """
    match data_type:
        case PrimitiveType() | DecimalType():
            pass
        case StructType():
            check_fields(argument, data_type.fields, table=table)
        case ArrayType():
            check_data_type(f"{argument}.element", data_type.element_type, table=table)
        case MapType():
            check_data_type(f"{argument}.key", data_type.key_type, table=table)
            check_data_type(f"{argument}.value", data_type.value_type, table=table)
        case _:
            raise wrong_argument(argument, _TYPES, data_type, table=table)


def check_fields(
    argument: str, fields: Iterable[StructField], *, table: str | None = None
) -> tuple[StructField, ...]:
    """Check that an argument is a list of columns.

    Args:
        argument: its name.
        fields: its value.
        table: the table's location, if known.

    Returns:
        The columns.

    Raises:
        InvalidArgumentError: it isn't; a name isn't a text, a type isn't a type, or the nullability isn't a
            bool; or the metadata of a column have a key that isn't a text, or a value that JSON can't hold.
    """
    check_list(argument, fields, "a list of StructFields", table=table)
    columns = tuple(fields)
    for number, field in enumerate(columns):
        check_type(f"{argument}[{number}]", field, StructField, "a StructField", table=table)
        check_text(f"{argument}[{number}].name", field.name, table=table)
        column = f"{argument}.{field.name}"
        check_type(f"{column}.nullable", field.nullable, bool, "True or False", table=table)
        check_mapping(f"{column}.metadata", field.metadata, "a mapping of texts", table=table)
        for key, value in field.metadata.items():
            if not _is_json(value):
                entry = f"{column}.metadata[{key!r}]"
                raise wrong_argument(entry, _JSON, value, table=table)
        check_data_type(column, field.data_type, table=table)
    return columns


def _is_json(value: Any) -> bool:
    """Whether JSON can hold a value, so that it is read back unchanged."""
    match value:
        case dict():
            return all(type(key) is str and _is_json(item) for key, item in value.items())
        case list() | tuple():
            return all(map(_is_json, value))
        case float():
            return math.isfinite(value)
        case _:
            return value is None or isinstance(value, str | bool | int)
