"""Visit all fields and types of a schema, inside structs, arrays and maps.

A `SchemaPath` is a path of names. The content of an array is its ``element``, that of a map its ``key`` and
``value``, as in the protocol's ``fieldPath``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeAlias

from airflow_delta.engine.model.schema import (
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
)

__all__ = ["FieldChange", "SchemaPath", "all_fields", "all_types", "map_fields"]

SchemaPath: TypeAlias = tuple[str, ...]
"""The names from the top of the schema down to one field or type."""

FieldChange: TypeAlias = Callable[[StructField], StructField]
"""Makes a new field from a field."""


def all_fields(schema: StructType) -> Iterator[tuple[SchemaPath, StructField]]:
    """Every field at any depth with its path. Parents come before their children."""
    for path, data_type in all_types(schema):
        if isinstance(data_type, StructType):
            for field in data_type:
                yield (*path, field.name), field


def all_types(data_type: DataType, path: SchemaPath = ()) -> Iterator[tuple[SchemaPath, DataType]]:
    """A type, and every type inside it, with its path. Outer types come first."""
    yield path, data_type
    match data_type:
        case StructType():
            for field in data_type:
                yield from all_types(field.data_type, (*path, field.name))
        case ArrayType():
            yield from all_types(data_type.element_type, (*path, "element"))
        case MapType():
            yield from all_types(data_type.key_type, (*path, "key"))
            yield from all_types(data_type.value_type, (*path, "value"))
        case _:
            pass


def map_fields(struct: StructType, change: FieldChange) -> StructType:
    """Change each field of a struct at any depth. Parents come before their children.

    Args:
        struct: a schema.
        change: makes a new field from a field. The type of the new field is ignored.
    """
    return StructType(
        tuple(
            replace(change(field), data_type=_map_type(field.data_type, change)) for field in struct
        )
    )


def _map_type(data_type: DataType, change: FieldChange) -> DataType:
    match data_type:
        case StructType():
            return map_fields(data_type, change)
        case ArrayType():
            return replace(data_type, element_type=_map_type(data_type.element_type, change))
        case MapType():
            return replace(
                data_type,
                key_type=_map_type(data_type.key_type, change),
                value_type=_map_type(data_type.value_type, change),
            )
        case _:
            return data_type
