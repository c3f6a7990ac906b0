"""Widen the type of a column, so that readers convert the values in older files.

The change is recorded in the metadata of the nearest enclosing column, under ``delta.typeChanges``, with a
``fieldPath`` for the content of an array or a map::

    {"fromType": "short", "toType": "integer", "fieldPath": "element"}

Writers may make the changes that readers can follow (`features.type_widening`), with one exception: an
integer of up to 32 bits may only become a decimal with at least 10 digits before the point, because engines
store all these integers in the same way. If Iceberg compatibility is in force, Iceberg must know the change
too.

The rules are those of later editions of the protocol.
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
"""The key of the recorded type changes in a column's metadata."""

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
    """Widen the type at a path, and record the change.

    Args:
        schema: the schema.
        path: a column, or the content of an array or map.
        new_type: the new type.
        for_iceberg: whether Iceberg compatibility is in force.
        version: the table version that makes the change, which only the preview of the feature records.

    Raises:
        InvalidArgumentError: the path doesn't exist; readers can't convert the old type into the new one,
            or both are the same; or the column has a generation expression or an identity.
    """
    old_type = type_at(schema, path)
    owner, rest = field_around(schema, path)
    if not may_widen(old_type, new_type, for_iceberg=for_iceberg):
        raise InvalidArgumentError(
            f"{display_path(path)} is of the type {old_type}, and can't become {new_type}: expected a type "
            "into which readers can convert all of its values"
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
    """Whether Iceberg has the change: int to long, float to double, more digits of decimals."""
    if isinstance(old, DecimalType):
        return isinstance(new, DecimalType) and old.scale == new.scale
    return new in (SHORT, INTEGER, LONG) or (old, new) == (FLOAT, DOUBLE)
