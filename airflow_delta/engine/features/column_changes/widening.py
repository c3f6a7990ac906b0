"""Give a column a wider type, whose values readers make of the narrower ones in older files.

The change is recorded in the metadata of the nearest column around the place, under
``delta.typeChanges``, with a ``fieldPath`` for what is inside an array or a map::

    {"fromType": "short", "toType": "integer", "fieldPath": "element"}

What a reader must follow (`features.type_widening`) and what a writer may do differ in one point: in
place of an integer of up to 32 bits, a decimal has 10 digits before its point at least, as engines
store all of these alike. While Iceberg compatibility is in force, the change must be one that Iceberg
knows too.

The specification at hand doesn't have the feature; the rules are those of its later editions.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.features.column_changes.column_paths import (
    change_field,
    change_type_at,
    display_path,
    field_around,
    field_at,
    type_at,
)
from airflow_delta.engine.features.column_changes.dependents import value_sources
from airflow_delta.engine.features.schema_walk import SchemaPath
from airflow_delta.engine.features.type_widening import can_widen
from airflow_delta.engine.model.schema import (
    BYTE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    DataType,
    DecimalType,
    StructField,
    StructType,
)
from airflow_delta.engine.model.schema_json import data_type_to_json

__all__ = ["TYPE_CHANGES", "may_widen", "widen"]

TYPE_CHANGES = "delta.typeChanges"
"""The key of the recorded changes in a column's metadata."""

_UP_TO_32_BITS = (BYTE, SHORT, INTEGER)
_DIGITS_OF_32_BITS = 10


def widen(
    schema: StructType,
    path: SchemaPath,
    new_type: DataType,
    *,
    for_iceberg: bool,
    version: int | None = None,
) -> StructType:
    """The schema with a wider type at a place, and the record of it.

    Args:
        schema: the schema.
        path: a column, or the contents of an array or map.
        new_type: the type that it is to have.
        for_iceberg: whether Iceberg compatibility is in force.
        version: the table's version that makes the change, which the preview of the feature records.

    Raises:
        InvalidArgumentError: there is no such place; the new type can't hold all values of the old
            one, or isn't one that readers make of it, or is the old one; or an expression makes the
            column's values, which fit the old one.
    """
    old_type = type_at(schema, path)
    owner, rest = field_around(schema, path)
    if not may_widen(old_type, new_type, for_iceberg=for_iceberg):
        raise InvalidArgumentError(
            f"{display_path(path)} is of the type {old_type}, and can't become {new_type}: expected a type "
            "into which readers can convert each of its values"
            + (", Iceberg's as well, as Iceberg compatibility is in force" if for_iceberg else ""),
            column=path,
        )
    if found := value_sources(field_at(schema, owner)):
        raise InvalidArgumentError(
            f"the type of {display_path(path)} can't change: its values come from {found}",
            column=path,
        )
    change: dict[str, Any] = {
        "toType": data_type_to_json(new_type),
        "fromType": data_type_to_json(old_type),
    }
    if version is not None:
        change["tableVersion"] = version
    if rest:
        change["fieldPath"] = ".".join(rest)

    def _record(field: StructField) -> StructField:
        changes = [*(field.metadata.get(TYPE_CHANGES) or ()), change]
        return replace(field, metadata={**field.metadata, TYPE_CHANGES: changes})

    return change_field(change_type_at(schema, path, lambda _: new_type), owner, _record)


def may_widen(old: DataType, new: DataType, *, for_iceberg: bool) -> bool:
    """Whether a writer may give a column of one type the other, wider one.

    Args:
        old: the column's type.
        new: the wider type.
        for_iceberg: whether Iceberg compatibility is in force.
    """
    if old == new or not can_widen(old, new):
        return False
    if for_iceberg:
        return _is_wider_in_iceberg(old, new)
    if old in _UP_TO_32_BITS and isinstance(new, DecimalType):
        return new.precision - new.scale >= _DIGITS_OF_32_BITS
    return True


def _is_wider_in_iceberg(old: DataType, new: DataType) -> bool:
    """Iceberg has int to long, float to double, and decimals with more digits and one scale."""
    if isinstance(old, DecimalType):
        return isinstance(new, DecimalType) and old.scale == new.scale
    return new in (SHORT, INTEGER, LONG) or (old, new) == (FLOAT, DOUBLE)
