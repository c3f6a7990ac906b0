"""Places in a schema: how a column is named, found and replaced.

A column of the table is named by a text, its name as it is, whatever characters are in it; a column
inside another by the list of names from the top down, where the contents of an array are its
``element``, those of a map its ``key`` and ``value``: ``["orders", "element", "price"]``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.features.schema_walk import FieldChange, SchemaPath
from airflow_delta.engine.model.schema import (
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
)

__all__ = [
    "ColumnName",
    "TypeChange",
    "change_field",
    "change_struct",
    "change_type_at",
    "column_path",
    "display_path",
    "field_around",
    "field_at",
    "type_at",
]

ColumnName: TypeAlias = "str | Sequence[str]"
"""How a caller names a column; see the module."""

TypeChange: TypeAlias = Callable[[DataType], DataType]
"""Makes a new type of a type."""


def column_path(name: Any, argument: str = "column") -> SchemaPath:
    """The path that a column's name stands for.

    Args:
        name: the column, as a caller names it: a `ColumnName`, and whatever else callers take for one.
        argument: what the caller knows it by.

    Raises:
        InvalidArgumentError: it is no name, or an empty one.
    """
    path = (name,) if isinstance(name, str) else tuple(name) if isinstance(name, Sequence) else ()
    if path and all(isinstance(part, str) and part for part in path):
        return path
    raise InvalidArgumentError(
        f"{argument}: {name!r} is no column's name: expected a text, or a list of texts for a column "
        "inside another"
    )


def display_path(path: SchemaPath) -> str:
    """A path for a message."""
    return ".".join(path)


def type_at(schema: StructType, path: SchemaPath) -> DataType:
    """The type at a place; the schema itself at the empty path.

    Raises:
        InvalidArgumentError: there is no such place. The message tells what there is instead.
    """
    found: list[DataType] = []

    def _keep(data_type: DataType) -> DataType:
        found.append(data_type)
        return data_type

    change_type_at(schema, path, _keep)
    return found[0]


def field_at(schema: StructType, path: SchemaPath) -> StructField:
    """The column at a place.

    Raises:
        InvalidArgumentError: there is none, or the place is the inside of an array or map, which has
            no name, nullability or metadata of its own.
    """
    parent = type_at(schema, path[:-1])
    field = _child(parent, path)
    if isinstance(field, StructField):
        return field
    raise InvalidArgumentError(
        f"{display_path(path)} is no column but the inside of one of the type {parent}: expected a column",
        column=path,
    )


def field_around(schema: StructType, path: SchemaPath) -> tuple[SchemaPath, SchemaPath]:
    """The path of the nearest column that holds a place, and the rest of the path inside it.

    Raises:
        InvalidArgumentError: there is no such place.
    """
    last = 0
    for end in range(1, len(path) + 1):
        if isinstance(_child(type_at(schema, path[: end - 1]), path[:end]), StructField):
            last = end
    return path[:last], path[last:]


def change_type_at(schema: StructType, path: SchemaPath, change: TypeChange) -> StructType:
    """The schema with the type at a place changed.

    Args:
        schema: the schema.
        path: the place.
        change: makes the new type of the old one.

    Raises:
        InvalidArgumentError: there is no such place.
    """
    changed = _change_type_at(schema, path, 0, change)
    if not isinstance(changed, StructType):
        raise TypeError(changed)
    return changed


def _change_type_at(
    data_type: DataType, path: SchemaPath, done: int, change: TypeChange
) -> DataType:
    """As `change_type_at`, from a place on that so many names of the path lead to."""
    if done == len(path):
        return change(data_type)
    child = _child(data_type, path[: done + 1])
    if isinstance(child, StructField):
        inner = _change_type_at(child.data_type, path, done + 1, change)
        return _with_child(data_type, child, replace(child, data_type=inner))
    inner = _change_type_at(child, path, done + 1, change)
    match data_type:
        case ArrayType():
            return replace(data_type, element_type=inner)
        case MapType() if path[done] == "key":
            return replace(data_type, key_type=inner)
        case MapType():
            return replace(data_type, value_type=inner)
        case _:
            raise TypeError(data_type)


def change_struct(
    schema: StructType, path: SchemaPath, change: Callable[[StructType], StructType]
) -> StructType:
    """The schema with the columns of a struct changed.

    Args:
        schema: the schema.
        path: where the struct is; empty for the table's own columns.
        change: makes the new struct of the old one.

    Raises:
        InvalidArgumentError: there is no such place, or no struct.
    """

    def _change(data_type: DataType) -> DataType:
        if isinstance(data_type, StructType):
            return change(data_type)
        raise InvalidArgumentError(
            f"{display_path(path)} is of the type {data_type}, which has no columns: expected a struct",
            column=path,
        )

    return change_type_at(schema, path, _change)


def change_field(schema: StructType, path: SchemaPath, change: FieldChange) -> StructType:
    """The schema with one column changed, in its place.

    Raises:
        InvalidArgumentError: there is no such column; see `field_at`.
    """
    field = field_at(schema, path)
    return change_struct(
        schema, path[:-1], lambda struct: _with_child(struct, field, change(field))
    )


def _with_child(struct: DataType, old: StructField, new: StructField) -> StructType:
    if not isinstance(struct, StructType):
        raise TypeError(struct)
    return replace(struct, fields=tuple(new if field is old else field for field in struct))


def _child(data_type: DataType, path: SchemaPath) -> StructField | DataType:
    """What the last name of a path means inside a type."""
    name = path[-1]
    inner: dict[str, StructField | DataType]
    match data_type:
        case StructType():
            inner = {field.name: field for field in data_type}
        case ArrayType():
            inner = {"element": data_type.element_type}
        case MapType():
            inner = {"key": data_type.key_type, "value": data_type.value_type}
        case _:
            inner = {}
    if name in inner:
        return inner[name]
    around = display_path(path[:-1]) or "the table"
    there = ", ".join(inner) or f"nothing, as it is of the type {data_type}"
    raise InvalidArgumentError(
        f"there is no column {display_path(path)}: {around} has {there}. A column inside another is named "
        "by a list, such as ['address', 'street']",
        column=path,
    )
