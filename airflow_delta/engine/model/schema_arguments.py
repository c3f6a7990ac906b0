"""Schemas that callers have put together: types where types belong, and metadata that JSON has.

The classes of `schema` take what they are given. So do the writers of JSON, in part: a key that is a
number becomes a text, and a number that is none a word that isn't JSON.
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

_JSON = "what JSON has, such as a text, a finite number, or a list or dict of these"
_TYPES = "a type of airflow_delta.engine.model.schema, such as LONG"


def check_data_type(argument: str, data_type: object, *, table: str | None = None) -> None:
    """Make sure that an argument is a type, through and through.

    Args:
        argument: its name.
        data_type: what was given.
        table: the table's location, where it is known.

    Raises:
        InvalidArgumentError: it isn't, or a type inside it isn't; see `check_fields`.
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
    """Make sure that an argument is a list of columns.

    Args:
        argument: its name.
        fields: what was given.
        table: the table's location, where it is known.

    Returns:
        The columns.

    Raises:
        InvalidArgumentError: it isn't; a name is no text, a type no type, the nullability neither true
            nor false; or the metadata of one have a key that is no text, or a value that JSON doesn't
            have.
    """
    check_list(argument, fields, "a list of StructFields", table=table)
    columns = tuple(fields)
    for number, field in enumerate(columns):
        check_type(f"{argument}[{number}]", field, StructField, "a StructField", table=table)
        check_text(f"{argument}[{number}].name", field.name, table=table)
        place = f"{argument}.{field.name}"
        check_type(f"{place}.nullable", field.nullable, bool, "True or False", table=table)
        check_mapping(f"{place}.metadata", field.metadata, "a mapping of texts", table=table)
        for key, value in field.metadata.items():
            if not _is_json(value):
                entry = f"{place}.metadata[{key!r}]"
                raise wrong_argument(entry, _JSON, value, table=table)
        check_data_type(place, field.data_type, table=table)
    return columns


def _is_json(value: Any) -> bool:
    """Whether JSON has a value, and gives it back as it was."""
    match value:
        case dict():
            return all(type(key) is str and _is_json(item) for key, item in value.items())
        case list() | tuple():
            return all(map(_is_json, value))
        case float():
            return math.isfinite(value)
        case _:
            return value is None or isinstance(value, str | bool | int)
