"""Ids of the elements, keys and values inside a column, which Iceberg needs.

Under column mapping only the fields of structs have ids. "Iceberg Compatibility V2" also requires ids of
the contents of arrays and maps. The metadata of the nearest enclosing field contain them, by their path
below it::

    "delta.columnMapping.nested.ids": {"col-1.key": 102, "col-1.value": 103, "col-1.value.element": 104}

In the specification the key is ``parquet.field.nested.ids``, and the paths begin with the field's name. But
the writers in use write that only into the Parquet schema of data files. In the table's schema they write
`NESTED_IDS`, with physical names, which stay right when a column is renamed. So does the engine.

PROTOCOL.md, "Iceberg Compatibility V2".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from airflow_delta.engine.features.column_mapping import PHYSICAL_NAME, physical_name
from airflow_delta.engine.features.schema_walk import SchemaPath, all_fields, map_fields
from airflow_delta.engine.model.schema import ArrayType, DataType, MapType, StructField, StructType

__all__ = [
    "NESTED_IDS",
    "assign_nested_ids",
    "highest_nested_id",
    "nested_ids_of",
    "nested_paths",
    "parquet_field_ids",
]

NESTED_IDS = "delta.columnMapping.nested.ids"
"""The key of the ids in a column's metadata."""


_KEYS = ("parquet.field.nested.ids", NESTED_IDS)
"""The key in the specification, and the one in use."""


def nested_ids_of(field: StructField) -> Mapping[SchemaPath, int]:
    """The ids of nested fields in a column's metadata, by their path below the column.

    In the specification their names begin with the column's name, in Delta Spark with its physical name.
    """
    starts = [f"{field.metadata.get(PHYSICAL_NAME)}.", f"{field.name}."]
    found: dict[SchemaPath, int] = {}
    for key in _KEYS:
        ids = field.metadata.get(key)
        for name, number in ids.items() if isinstance(ids, Mapping) else ():
            start = next((start for start in starts if name.startswith(start)), None)
            if start is not None and type(number) is int and 0 <= number < 1 << 31:
                found[tuple(name.removeprefix(start).split("."))] = number
    return found


def parquet_field_ids(schema: StructType, mode: str) -> Iterator[tuple[SchemaPath, int]]:
    """The ids of elements, keys and values, by the paths of their nodes in data files.

    Args:
        schema: the columns in the files, logical names.
        mode: the column mapping mode.
    """
    for field in schema:
        yield from _field_ids(
            field.data_type, (physical_name(field, mode),), (), nested_ids_of(field), mode
        )


def _field_ids(
    data_type: DataType,
    path: SchemaPath,
    below: SchemaPath,
    ids: Mapping[SchemaPath, int],
    mode: str,
) -> Iterator[tuple[SchemaPath, int]]:
    inner: dict[SchemaPath, DataType] = {}
    match data_type:
        case StructType():
            for nested, number in parquet_field_ids(data_type, mode):
                yield (*path, *nested), number
        case ArrayType():
            inner = {("list", "element"): data_type.element_type}
        case MapType():
            inner = {
                ("key_value", "key"): data_type.key_type,
                ("key_value", "value"): data_type.value_type,
            }
        case _:
            pass
    for names, inside in inner.items():
        here, relative = (*path, *names), (*below, names[-1])
        if relative in ids:
            yield here, ids[relative]
        yield from _field_ids(inside, here, relative, ids, mode)


def nested_paths(data_type: DataType) -> Iterator[SchemaPath]:
    """The paths of the elements, keys and values of a type, but not inside its fields, outer ones first."""
    inner: dict[str, DataType] = {}
    match data_type:
        case ArrayType():
            inner = {"element": data_type.element_type}
        case MapType():
            inner = {"key": data_type.key_type, "value": data_type.value_type}
        case _:
            pass
    for name, inside in inner.items():
        yield (name,)
        yield from ((name, *path) for path in nested_paths(inside))


def highest_nested_id(schema: StructType) -> int:
    """The highest id of an element, key or value; 0 if none has one."""
    return max((n for _, f in all_fields(schema) for n in _ids(f).values()), default=0)


def assign_nested_ids(schema: StructType, *, last: int) -> tuple[StructType, int]:
    """Assign an id to every element, key and value that has none.

    Args:
        schema: the schema, with ids and physical names; see `column_mapping.assign_mapping`.
        last: the highest id that was ever assigned in the table.

    Returns:
        The new schema, and the new highest id.
    """

    def _assign(field: StructField) -> StructField:
        nonlocal last
        ids = dict(_ids(field))
        for path in nested_paths(field.data_type):
            name = ".".join((physical_name(field, "name"), *path))
            if name not in ids:
                last += 1
                ids[name] = last
        return replace(field, metadata={**field.metadata, NESTED_IDS: ids}) if ids else field

    return map_fields(schema, _assign), last


def _ids(field: StructField) -> Mapping[str, Any]:
    found = field.metadata.get(NESTED_IDS)
    return found if isinstance(found, Mapping) else {}
