"""Parse the names of columns, and find and replace columns in a schema.

Users name a column of the table by a text, in which no character is special. They name a column inside
another by the list of names from the top down. There the content of an array is its ``element``, that of a
map its ``key`` and ``value``: ``["orders", "element", "price"]``.
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
"""The name of a column, from a user; see the module."""

TypeChange: TypeAlias = Callable[[DataType], DataType]
"""Makes a new type from a type."""


def column_path(name: Any, argument: str = "column") -> SchemaPath:
    """Parse a column's name into a path.

    Args:
        name: the name from a user, which should be a `ColumnName`.
        argument: the name of the user's argument, for messages.

    Raises:
        InvalidArgumentError: this is no name, or an empty one.
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
    """The type at a path. The schema itself is at the empty path.

    Raises:
        InvalidArgumentError: the path doesn't exist. The message lists what exists instead.
    """
    found: list[DataType] = []

    def _keep(data_type: DataType) -> DataType:
        found.append(data_type)
        return data_type

    change_type_at(schema, path, _keep)
    return found[0]


def field_at(schema: StructType, path: SchemaPath) -> StructField:
    """The column at a path.

    Raises:
        InvalidArgumentError: the path doesn't exist; or it is the content of an array or map, which has no
            name, nullability or metadata of its own.
    """
    parent = type_at(schema, path[:-1])
    field = _child(parent, path)
    if isinstance(field, StructField):
        return field
    raise InvalidArgumentError(
        f"{display_path(path)} is the content of a column of the type {parent}: expected a column",
        column=path,
    )


def field_around(schema: StructType, path: SchemaPath) -> tuple[SchemaPath, SchemaPath]:
    """Split a path into that of the nearest enclosing column, and the rest inside it.

    Raises:
        InvalidArgumentError: the path doesn't exist.
    """
    last = 0
    for end in range(1, len(path) + 1):
        if isinstance(_child(type_at(schema, path[: end - 1]), path[:end]), StructField):
            last = end
    return path[:last], path[last:]


def change_type_at(schema: StructType, path: SchemaPath, change: TypeChange) -> StructType:
    """Change the type at a path.

    Args:
        schema: the schema.
        path: the path.
        change: makes the new type from the old one.

    Raises:
        InvalidArgumentError: the path doesn't exist.
    """
    changed = _change_type_at(schema, path, 0, change)
    if not isinstance(changed, StructType):
        raise TypeError(changed)
    return changed


def _change_type_at(
    data_type: DataType, path: SchemaPath, done: int, change: TypeChange
) -> DataType:
    """As `change_type_at`, from the type that the first ``done`` names of the path lead to."""
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
    """Change the columns of a struct.

    Args:
        schema: the schema.
        path: the path of the struct; empty for the table's own columns.
        change: makes the new struct from the old one.

    Raises:
        InvalidArgumentError: the path doesn't exist, or isn't that of a struct.
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
    """Change one column.

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
    """The field or type inside a type that the last name of a path refers to."""
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
    parent = display_path(path[:-1]) or "the table"
    existing = ", ".join(inner) or f"nothing, as it is of the type {data_type}"
    raise InvalidArgumentError(
        f"there is no column {display_path(path)}: {parent} has {existing}. A column inside another is "
        "named by a list, such as ['address', 'street']",
        column=path,
    )
