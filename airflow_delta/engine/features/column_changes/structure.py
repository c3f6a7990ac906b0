"""Add, rename, drop and move columns.

A new column has no values in existing files, and is read as null there. So it must be nullable, and can't
have a default, a generation expression, an identity or an invariant, which existing rows don't satisfy. A
default can be set afterwards, for later rows (PROTOCOL.md, "Default Columns").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from airflow_delta.engine.errors import InvalidArgumentError, InvalidTableError
from airflow_delta.engine.features.column_changes.column_paths import (
    change_field,
    change_struct,
    display_path,
    field_at,
    type_at,
)
from airflow_delta.engine.features.column_changes.position import Position, insert_fields
from airflow_delta.engine.features.column_changes.widening import TYPE_CHANGES
from airflow_delta.engine.features.column_mapping import without_mapping
from airflow_delta.engine.features.schema_walk import SchemaPath, all_fields, map_fields
from airflow_delta.engine.model.schema import StructField, StructType

__all__ = ["add_fields", "drop_field", "move_field", "rename_field"]

_ABOUT_VALUES = (
    "CURRENT_DEFAULT",
    "delta.generationExpression",
    "delta.identity.",
    "delta.invariants",
)


def add_fields(
    schema: StructType,
    inside: SchemaPath,
    fields: Sequence[StructField],
    position: Position | None = None,
) -> StructType:
    """Add columns to a schema.

    Ids, physical names and type changes in the metadata of the columns are ignored, because they are of
    another table. In this one they might be those of a dropped column, whose values would come back.

    Args:
        schema: the schema.
        inside: the struct that gets the columns; empty for the table.
        fields: the columns, in order.
        position: the position of the first column; None for the end.

    Raises:
        InvalidArgumentError: a column, or one inside it, isn't nullable, exists already, or has metadata
            about values; or the struct, or the column before the position, doesn't exist.
    """
    if not fields:
        raise InvalidArgumentError("there are no columns to add")
    added = map_fields(without_mapping(_struct(fields, inside)), _without_history)
    for path, field in all_fields(added):
        _check_new(field, display_path((*inside, *path)))
    return change_struct(
        schema, inside, lambda struct: _insert(struct, tuple(added), position, inside)
    )


def rename_field(schema: StructType, path: SchemaPath, name: str) -> StructType:
    """Rename a column. Its id and physical name stay.

    Raises:
        InvalidArgumentError: there is no such column; the name is taken; or the column has that name
            already.
    """
    if name in ("", path[-1]):
        raise InvalidArgumentError(f"{name!r} is no new name for the column {display_path(path)}")
    field = field_at(schema, path)
    try:
        return change_field(schema, path, lambda _: replace(field, name=name))
    except InvalidTableError as error:
        raise InvalidArgumentError(
            f"{display_path(path)} can't be renamed to {name!r}: {error.message}", column=path
        ) from error


def drop_field(schema: StructType, path: SchemaPath) -> StructType:
    """Drop a column.

    Raises:
        InvalidArgumentError: there is no such column, or it is the only one in its struct.
    """
    field = field_at(schema, path)
    if type_at(schema, path[:-1]) == StructType((field,)):
        instead = (
            f"of {display_path(path[:-1])}; drop that instead"
            if path[:-1]
            else "of the table; keep one"
        )
        raise InvalidArgumentError(
            f"{display_path(path)} can't be dropped: no column would be left {instead}", column=path
        )
    return change_struct(schema, path[:-1], lambda struct: _without(struct, field))


def move_field(schema: StructType, path: SchemaPath, position: Position) -> StructType:
    """Move a column within its struct.

    Raises:
        InvalidArgumentError: the column, or the one before the position, doesn't exist.
    """
    field = field_at(schema, path)
    return change_struct(
        schema, path[:-1], lambda struct: insert_fields(_without(struct, field), [field], position)
    )


def _without(struct: StructType, field: StructField) -> StructType:
    return StructType(tuple(other for other in struct if other is not field))


def _struct(fields: Sequence[StructField], inside: SchemaPath) -> StructType:
    try:
        return StructType(tuple(fields))
    except InvalidTableError as error:
        raise InvalidArgumentError(error.message, column=inside) from error


def _insert(
    struct: StructType,
    fields: Sequence[StructField],
    position: Position | None,
    inside: SchemaPath,
) -> StructType:
    try:
        return insert_fields(struct, fields, position)
    except InvalidTableError as error:
        raise InvalidArgumentError(
            f"{display_path(inside) or 'the table'} has such a column already: {error.message}",
            column=inside,
        ) from error


def _without_history(field: StructField) -> StructField:
    """The field without recorded type changes. A new column has had no other type."""
    kept = {key: value for key, value in field.metadata.items() if key != TYPE_CHANGES}
    return replace(field, metadata=kept)


def _check_new(field: StructField, name: str) -> None:
    if not field.name:
        raise InvalidArgumentError(f"{field!r}: expected a name")
    if not field.nullable:
        raise InvalidArgumentError(
            f"the new column {name} must be nullable, as the rows of the table have no values for it",
            column=name,
        )
    found = sorted(key for key in field.metadata if key.startswith(_ABOUT_VALUES))
    if found:
        raise InvalidArgumentError(
            f"the new column {name} has {found} in its metadata, which the rows of the table don't "
            "follow; add it without, and set a default for further rows afterwards",
            column=name,
        )
