"""Walks over a whole schema, into structs, arrays and maps.

A place inside a schema is written as a path of names; the contents of an array are its ``element``,
those of a map its ``key`` and ``value``, as in the protocol's ``fieldPath``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from airflow_delta.engine.model.schema import (
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
)

__all__ = ["SchemaPath", "all_fields", "all_types"]

SchemaPath: TypeAlias = tuple[str, ...]
"""Names from the top of the schema down to one place in it."""


def all_fields(schema: StructType) -> Iterator[tuple[SchemaPath, StructField]]:
    """Every field at any depth with its path, parents before their children."""
    for path, data_type in all_types(schema):
        if isinstance(data_type, StructType):
            for field in data_type:
                yield (*path, field.name), field


def all_types(data_type: DataType, path: SchemaPath = ()) -> Iterator[tuple[SchemaPath, DataType]]:
    """A type and every type inside it with its path, outer ones first."""
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
