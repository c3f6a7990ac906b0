"""The schema of data files: the columns of the table that files hold, by their names there.

* With column mapping, columns have their physical names, and their ids.
* ``void`` columns are never in a file, also inside structs (edge case G17).
* All are nullable.

Spec: PROTOCOL.md, "Column Mapping".
"""

from __future__ import annotations

from collections.abc import Sequence

from airflow_delta.engine.features.column_mapping import field_id, physical_name
from airflow_delta.engine.model.schema import (
    VOID,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
)

__all__ = ["FIELD_ID", "stored_struct", "stored_type"]

FIELD_ID = "parquet.field.id"
"""The metadata key of a column's id; Spark has the same."""


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


def _struct(struct: StructType, mode: str, *, with_ids: bool) -> StructType:
    fields = []
    for field in struct:
        kept = stored_type(field.data_type, mode, with_ids=with_ids)
        if kept is not None:
            metadata = {FIELD_ID: field_id(field)} if with_ids else {}
            fields.append(StructField(physical_name(field, mode), kept, metadata=metadata))
    return StructType(tuple(fields))
