"""Find entries of column metadata that readers can't read.

A schema is JSON, so an entry may have any type. But engines expect a text or a number, and fail to open the
table if the entry has another type; a comment that is a number is enough.

PROTOCOL.md, "Column Metadata" and the sections of the features.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from airflow_delta.engine.features.column_mapping import ID, PHYSICAL_NAME
from airflow_delta.engine.features.identity import (
    ALLOW_EXPLICIT_INSERT,
    HIGH_WATER_MARK,
    START,
    STEP,
)
from airflow_delta.engine.features.nested_ids import NESTED_IDS
from airflow_delta.engine.features.schema_walk import all_fields
from airflow_delta.engine.model.schema import StructType

__all__ = ["unreadable_entries"]

_Check: TypeAlias = Callable[[Any], bool]

_LONG = range(-(1 << 63), 1 << 63)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_long(value: Any) -> bool:
    return type(value) is int and value in _LONG


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_ids(value: Any) -> bool:
    return isinstance(value, Mapping) and all(map(_is_long, value.values()))


_TEXT: tuple[_Check, str] = (_is_text, "a text")
_NUMBER: tuple[_Check, str] = (_is_long, "a 64-bit integer")

_KEYS: Mapping[str, tuple[_Check, str]] = {
    "comment": _TEXT,
    "CURRENT_DEFAULT": _TEXT,
    "EXISTS_DEFAULT": _TEXT,
    "__CHAR_VARCHAR_TYPE_STRING": _TEXT,
    "delta.generationExpression": _TEXT,
    "delta.invariants": _TEXT,
    PHYSICAL_NAME: _TEXT,
    ID: _NUMBER,
    NESTED_IDS: (_is_ids, "an object of 64-bit integers"),
    START: _NUMBER,
    STEP: _NUMBER,
    HIGH_WATER_MARK: _NUMBER,
    ALLOW_EXPLICIT_INSERT: (_is_flag, "true or false"),
}
"""By the key of an entry: a check of its value, and what is expected, for messages."""


def unreadable_entries(schema: StructType) -> tuple[str, ...]:
    """Describe the entries that readers can't read, of columns at any depth, in one sentence each.

    Args:
        schema: the schema.
    """
    return tuple(
        f"the column {'.'.join(path)} has {key!r}: {field.metadata[key]!r} in its metadata, where "
        f"readers expect {expected}"
        for path, field in all_fields(schema)
        for key, (is_sound, expected) in _KEYS.items()
        if key in field.metadata and not is_sound(field.metadata[key])
    )
