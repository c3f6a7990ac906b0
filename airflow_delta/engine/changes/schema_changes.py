"""Decide whether the rows of an older version can be read with the columns of a newer one.

All changes of a range are read with the columns of its last version. Nothing is lost if columns were only
added, because older rows have null in them. If a column was dropped or renamed, got another type, or became
NOT NULL, the range must be read in two parts.
"""

from __future__ import annotations

from airflow_delta.engine.features.column_mapping import physical_name
from airflow_delta.engine.model.schema import (
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
)

__all__ = ["find_incompatible_change"]


def find_incompatible_change(
    older: StructType, newer: StructType, *, older_mode: str, newer_mode: str
) -> str | None:
    """Why rows of one schema can't be read with another; None if they can.

    Args:
        older: the schema of the rows.
        newer: the schema to read them with.
        older_mode: the column mapping mode that goes with ``older``.
        newer_mode: the column mapping mode that goes with ``newer``.
    """
    return _struct_change(older, newer, (older_mode, newer_mode), "")


def _struct_change(
    older: StructType, newer: StructType, modes: tuple[str, str], prefix: str
) -> str | None:
    for column in older:
        name = f"{prefix}{column.name}"
        successor = newer.field(column.name)
        if successor is None:
            return f"the column {name} was dropped or renamed"
        change = _field_change(column, successor, modes, name)
        if change is not None:
            return change
    for column in newer:
        if not column.nullable and older.field(column.name) is None:
            return f"the column {prefix}{column.name} was added and allows no nulls"
    return None


def _field_change(
    older: StructField, newer: StructField, modes: tuple[str, str], name: str
) -> str | None:
    if physical_name(older, modes[0]) != physical_name(newer, modes[1]):
        return f"the column {name} was dropped, and another one took its name"
    if older.nullable and not newer.nullable:
        return f"the column {name} no longer allows nulls"
    return _type_change(older.data_type, newer.data_type, modes, name)


def _type_change(older: DataType, newer: DataType, modes: tuple[str, str], name: str) -> str | None:
    match older, newer:
        case StructType(), StructType():
            return _struct_change(older, newer, modes, f"{name}.")
        case ArrayType(), ArrayType():
            if older.contains_null and not newer.contains_null:
                return f"the elements of {name} no longer allow nulls"
            return _type_change(older.element_type, newer.element_type, modes, f"{name}.element")
        case MapType(), MapType():
            if older.value_contains_null and not newer.value_contains_null:
                return f"the values of {name} no longer allow nulls"
            return _type_change(
                older.key_type, newer.key_type, modes, f"{name}.key"
            ) or _type_change(older.value_type, newer.value_type, modes, f"{name}.value")
        case _ if older != newer:
            return f"the column {name} changed its type from {older} to {newer}"
    return None
