"""The schema of data files: the columns of the table that files hold, by their names there.

* With column mapping, columns have their physical names, and their ids.
* ``void`` columns are never in a file, also inside structs.
* All are nullable.

Spec: PROTOCOL.md, "Column Mapping".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from airflow_delta.engine.arrow.types import to_arrow_schema
from airflow_delta.engine.errors import UnsupportedFeatureError
from airflow_delta.engine.features.column_mapping import field_id, mapping_keys, physical_name
from airflow_delta.engine.features.schema_walk import map_fields
from airflow_delta.engine.model.schema import (
    VOID,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
)

__all__ = ["FIELD_ID", "parquet_schema", "physical_columns", "stored_struct", "stored_type"]

FIELD_ID = "parquet.field.id"
"""The metadata key of a column's id; Spark has the same."""

_PARQUET_ID = "PARQUET:field_id"


def stored_struct(
    schema: StructType, *, mode: str, without: Sequence[str] = (), with_ids: bool | None = None
) -> StructType:
    """The columns that data files hold.

    Args:
        schema: the table's.
        mode: its column mapping mode.
        without: logical names of columns that are not in the files: the partition columns.
        with_ids: whether the columns have their ids as metadata; None: with mode ``id``.

    Raises:
        InvalidTableError: a column lacks the metadata that its mapping mode needs.
    """
    stored = StructType(tuple(field for field in schema if field.name not in without))
    return _struct(stored, mode, with_ids=mode == "id" if with_ids is None else with_ids)


def stored_type(data_type: DataType, mode: str, *, with_ids: bool) -> DataType | None:
    """The type of a column in the files; None if files can't contain it.

    Raises:
        InvalidTableError: see `stored_struct`.
    """
    match data_type:
        case StructType():
            kept = _struct(data_type, mode, with_ids=with_ids)
            return kept if kept.fields else None
        case ArrayType(element_type):
            element = stored_type(element_type, mode, with_ids=with_ids)
            return None if element is None else ArrayType(element)
        case MapType(key_type, value_type):
            key, value = (
                stored_type(type_, mode, with_ids=with_ids) for type_ in (key_type, value_type)
            )
            return None if key is None or value is None else MapType(key, value)
        case _:
            return None if data_type == VOID else data_type


def physical_columns(schema: StructType, mode: str, *, table: str) -> StructType:
    """The columns of a table that files can hold, by their names there, with what column mapping needs.

    A table with this schema, and the same column mapping mode, has the same files.

    Args:
        schema: the table's.
        mode: its column mapping mode.
        table: the table's location, for messages.

    Raises:
        UnsupportedFeatureError: a column isn't a ``void``, but has nothing else in it. Files can't hold it,
            and a reader couldn't distinguish its values from null.
        InvalidTableError: a column lacks its physical name.
    """
    kept = []
    for field in schema:
        if field.data_type == VOID:
            continue
        if _has_void_inside(field.data_type):
            raise UnsupportedFeatureError(
                f"the column {field.name!r} is of the type {field.data_type}: data files can't hold a void "
                "inside an array or a map, or a struct of voids alone, so its rows can't be written anew",
                table=table,
                column=field.name,
            )
        kept.append(replace(field, data_type=_without_void(field.data_type)))
    return map_fields(
        StructType(tuple(kept)),
        lambda field: StructField(
            physical_name(field, mode), field.data_type, metadata=mapping_keys(field)
        ),
    )


def parquet_schema(columns: StructType, mode: str) -> pa.Schema:
    """The Arrow schema with which files are written, with the ids of columns as Parquet field ids.

    Args:
        columns: from `physical_columns`.
        mode: the column mapping mode.

    Raises:
        InvalidTableError: a column lacks its id, or has a type without equivalent in Arrow.
    """

    def _with_id(field: StructField) -> StructField:
        metadata = {} if mode == "none" else {_PARQUET_ID: field_id(field)}
        return replace(field, metadata=metadata)

    return to_arrow_schema(map_fields(columns, _with_id))


def _has_void_inside(data_type: DataType) -> bool:
    match data_type:
        case StructType(fields):
            return all(field.data_type == VOID for field in fields) or any(
                _has_void_inside(field.data_type) for field in fields
            )
        case ArrayType(element_type):
            return element_type == VOID or _has_void_inside(element_type)
        case MapType(key_type, value_type):
            return any(inner == VOID or _has_void_inside(inner) for inner in (key_type, value_type))
        case _:
            return False


def _without_void(data_type: DataType) -> DataType:
    match data_type:
        case StructType(fields):
            return StructType(
                tuple(
                    replace(field, data_type=_without_void(field.data_type), nullable=True)
                    for field in fields
                    if field.data_type != VOID
                )
            )
        case ArrayType(element_type):
            return ArrayType(_without_void(element_type))
        case MapType(key_type, value_type):
            return MapType(_without_void(key_type), _without_void(value_type))
        case _:
            return data_type


def _struct(struct: StructType, mode: str, *, with_ids: bool) -> StructType:
    fields = []
    for field in struct:
        kept = stored_type(field.data_type, mode, with_ids=with_ids)
        if kept is not None:
            metadata = {FIELD_ID: field_id(field)} if with_ids else {}
            fields.append(StructField(physical_name(field, mode), kept, metadata=metadata))
    return StructType(tuple(fields))
