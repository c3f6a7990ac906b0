"""The schema of a table, checked against its partition columns."""

from __future__ import annotations

from airflow_delta.engine.errors import InvalidTableError
from airflow_delta.engine.model.actions import Metadata
from airflow_delta.engine.model.schema import ArrayType, MapType, StructType
from airflow_delta.engine.model.schema_json import parse_schema

__all__ = ["table_schema"]


def table_schema(metadata: Metadata, *, table: str) -> StructType:
    """Parse a table's schema (PROTOCOL.md, "Schema Serialization Format").

    Raises:
        InvalidTableError: the schema is missing or can't be parsed; a partition column isn't in it
            or isn't of a primitive type.
    """
    if metadata.schema_string is None:
        raise InvalidTableError("the metaData action has no schemaString", table=table)
    schema = parse_schema(metadata.schema_string, f"{table}: metaData.schemaString")
    fields = {field.name: field for field in schema.fields}
    for column in metadata.partition_columns:
        if column not in fields:
            raise InvalidTableError(
                f"the partition column {column!r} isn't a column of the table: its columns are "
                f"{', '.join(fields)}",
                table=table,
                column=column,
            )
        if isinstance(fields[column].data_type, (StructType, ArrayType, MapType)):
            raise InvalidTableError(
                f"the partition column {column!r} is of the type {fields[column].data_type}; only "
                "primitive types can partition a table",
                table=table,
                column=column,
            )
    return schema
