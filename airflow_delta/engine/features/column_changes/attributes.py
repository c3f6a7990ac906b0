"""Change nullability, comment and default value of a column.

A default is a SQL expression for rows that are later written without a value. It can't refer to columns.

PROTOCOL.md, "Column Metadata" and "Default Columns".
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.features.column_changes.column_paths import (
    change_field,
    display_path,
    field_at,
    type_at,
)
from airflow_delta.engine.features.column_changes.dependents import value_sources
from airflow_delta.engine.features.column_changes.sql_columns import columns_in_sql
from airflow_delta.engine.features.schema_walk import SchemaPath
from airflow_delta.engine.model.schema import StructField, StructType

__all__ = ["with_comment", "with_default", "with_nullable"]

_COMMENT = "comment"
_DEFAULT = "CURRENT_DEFAULT"


def with_nullable(schema: StructType, path: SchemaPath, *, nullable: bool) -> StructType:
    """Allow or forbid nulls in a column.

    Raises:
        InvalidArgumentError: there is no such column; or it lies inside an array or a map, where no engine
            enforces NOT NULL.
    """
    if not nullable:
        parents = [path[:end] for end in range(len(path))]
        if not all(isinstance(type_at(schema, parent), StructType) for parent in parents):
            raise InvalidArgumentError(
                f"{display_path(path)} lies inside an array or a map, where nothing enforces NOT NULL",
                column=path,
            )
    return change_field(schema, path, lambda field: replace(field, nullable=nullable))


def with_comment(schema: StructType, path: SchemaPath, comment: str | None) -> StructType:
    """Set or remove a column's comment.

    Raises:
        InvalidArgumentError: there is no such column.
    """
    return change_field(schema, path, lambda field: _with_entry(field, _COMMENT, comment))


def with_default(schema: StructType, path: SchemaPath, expression: str | None) -> StructType:
    """Set or remove a column's default value.

    Args:
        schema: the schema.
        path: the column.
        expression: a SQL expression, such as ``"0"`` or ``"'none'"``; None to remove the default.

    Raises:
        InvalidArgumentError: there is no such column; it has a generation expression or an identity, which
            define its values; or the expression is empty or refers to columns.
    """
    field = field_at(schema, path)
    if expression is None:
        return change_field(schema, path, lambda _: _with_entry(field, _DEFAULT, None))
    if not expression.strip():
        raise InvalidArgumentError(
            f"{expression!r} is no default: expected SQL, such as \"'none'\""
        )
    if value_sources(field):
        raise InvalidArgumentError(
            f"{display_path(path)} can't have a default: its values come from {value_sources(field)}",
            column=path,
        )
    names = {name.lower() for name in schema.names}
    used = sorted(
        display_path(name) for name in columns_in_sql(expression) if name[0].lower() in names
    )
    if used:
        raise InvalidArgumentError(
            f"the default {expression!r} refers to the columns {used}; a default is the same for all "
            "rows",
            column=path,
        )
    return change_field(schema, path, lambda _: _with_entry(field, _DEFAULT, expression.strip()))


def _with_entry(field: StructField, key: str, value: Any) -> StructField:
    metadata = {**field.metadata, key: value}
    if value is None:
        del metadata[key]
    return replace(field, metadata=metadata)
