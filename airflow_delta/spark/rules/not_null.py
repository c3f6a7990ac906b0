"""Conditions for nulls in columns that are NOT NULL, at any depth.

A member of a struct is null if the struct is: as in Delta Spark, a null struct breaks the rule of a member
that is NOT NULL. An array or map that is null has no elements, so that it breaks no rule of them.

Spec: PROTOCOL.md, "Schema Serialization Format" (``nullable``, ``containsNull``, ``valueContainsNull``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from airflow_delta.engine.model.schema import ArrayType, DataType, MapType, StructField, StructType

__all__ = ["unwanted_nulls"]

_Condition: TypeAlias = "Callable[[Column], Column]"


def unwanted_nulls(column: Column, field: StructField) -> Iterator[tuple[str, Column]]:
    """Create conditions for nulls in all parts of a column that are NOT NULL.

    Args:
        column: the column's values.
        field: the table's column.

    Yields:
        For each such part its name, and a condition that is true for rows with a null in it.
    """
    if not field.nullable:
        yield field.name, column.isNull()
    for name, has_null in _inside(field.data_type, field.name):
        yield name, has_null(column)


def _inside(data_type: DataType, name: str) -> Iterator[tuple[str, _Condition]]:
    """Like `unwanted_nulls`, for what is inside a value, with functions from the value to the condition."""
    match data_type:
        case StructType(fields):
            for field in fields:
                yield from _part(
                    field.data_type,
                    f"{name}.{field.name}",
                    nullable=field.nullable,
                    reach=_of_member(field.name),
                )
        case ArrayType(element, contains_null):
            yield from _part(
                element,
                f"{name}.element",
                nullable=contains_null,
                reach=_of_any(lambda column: column),
            )
        case MapType(key, value, value_contains_null):
            # Spark has no maps with a null as key.
            yield from _part(key, f"{name}.key", nullable=True, reach=_of_any(F.map_keys))
            yield from _part(
                value,
                f"{name}.value",
                nullable=value_contains_null,
                reach=_of_any(F.map_values),
            )
        case _:
            pass


def _part(
    data_type: DataType, name: str, *, nullable: bool, reach: Callable[[_Condition], _Condition]
) -> Iterator[tuple[str, _Condition]]:
    """The conditions of a part, and of what is inside it."""
    if not nullable:
        yield name, reach(lambda column: column.isNull())
    for inner_name, has_null in _inside(data_type, name):
        yield inner_name, reach(has_null)


def _of_member(name: str) -> Callable[[_Condition], _Condition]:
    return lambda condition: lambda column: condition(column.getField(name))


def _of_any(items: _Condition) -> Callable[[_Condition], _Condition]:
    return lambda condition: lambda column: F.exists(items(column), condition)
