"""Map the columns of data files to those of the table.

The *logical* schema of a table differs from that of its files in three ways, at any depth:

* with column mapping, files have physical names or ids (PROTOCOL.md, "Column Mapping");
* ``void`` columns are never in a file;
* the values of partition columns come from the log, even if a writer put them into the files as well.

`file_schema` is the schema for reading the files; `logical_column` converts what was read to the
table's column.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the name that all of PySpark's users know
from pyspark.sql import types as T  # noqa: N812

from airflow_delta.engine.data_files.stored_schema import stored_struct, stored_type
from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.features.column_mapping import physical_name
from airflow_delta.engine.model.nullable import nullable
from airflow_delta.engine.model.schema import (
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
)
from airflow_delta.engine.model.schema_json import schema_to_json
from airflow_delta.spark.reader.char_columns import CHAR_METADATA, has_char

__all__ = [
    "FIELD_IDS",
    "checked_columns",
    "file_schema",
    "frame_schema",
    "logical_column",
    "quoted",
    "spark_schema",
    "spark_type",
]

FIELD_IDS = "spark.sql.parquet.fieldId.read.enabled"
"""The session setting with which Spark's reader finds columns by their ids.

Spark uses its value when a scan runs. The reader has no option for it. It stays set: another thread of the
session may be about to run a scan.
"""


def spark_schema(schema: StructType) -> T.StructType:
    """Convert a schema to Spark's type; both have the same JSON form."""
    return T.StructType.fromJson(json.loads(schema_to_json(schema)))


def frame_schema(schema: StructType) -> T.StructType:
    """The schema of a table's DataFrames: nullable, and without metadata except for CHAR."""
    fields = spark_schema(nullable(schema)).fields
    for found, field in zip(fields, schema, strict=True):
        if has_char(field.metadata):
            found.metadata = {CHAR_METADATA: field.metadata[CHAR_METADATA]}
    return T.StructType(fields)


def spark_type(data_type: DataType) -> T.DataType:
    """Convert a type to Spark's type."""
    return spark_schema(StructType((StructField("value", data_type),))).fields[0].dataType


def quoted(name: str) -> str:
    """Quote a column's name for Spark's parser."""
    return "`" + name.replace("`", "``") + "`"


def checked_columns(
    columns: Sequence[str] | None, schema: StructType, table: str
) -> Sequence[str] | None:
    """Check the names of columns that a caller has requested.

    Args:
        columns: the names; None for all.
        schema: the table's.
        table: its location, for errors.

    Raises:
        InvalidArgumentError: one isn't in the schema.
    """
    if columns is None:
        return None
    if isinstance(columns, str):
        raise InvalidArgumentError(f"columns={columns!r}: expected a list of names", table=table)
    unknown = [name for name in columns if schema.field(name) is None]
    if unknown:
        raise InvalidArgumentError(
            f"unknown columns {unknown}: the table has {', '.join(schema.names)}", table=table
        )
    return columns


def file_schema(schema: StructType, *, mode: str, without: Sequence[str] = ()) -> T.StructType:
    """The schema for reading data files: physical names, no void, all nullable, without metadata.

    Args:
        schema: the table's.
        mode: its column mapping mode; with ``id`` the columns have their ids as metadata.
        without: logical names of columns that are not in the files: the partition columns.

    Raises:
        InvalidTableError: a column lacks the metadata that its mapping mode needs.
    """
    return spark_schema(stored_struct(schema, mode=mode, without=without))


def logical_column(stored: Column, field: StructField, mode: str) -> Column:
    """Convert a column that was read with `file_schema` to the table's column.

    Args:
        stored: the column as read; unused if files can't contain it.
        field: the table's column.
        mode: the table's column mapping mode.
    """
    return _logical(stored, field.data_type, mode)


def _logical(stored: Column, data_type: DataType, mode: str) -> Column:
    kept = stored_type(data_type, mode, with_ids=False)
    if kept is None:
        return F.lit(None).cast(spark_type(data_type))
    if _names(kept) == _names(data_type):
        return stored
    match data_type:
        case StructType(fields):
            members = [
                _logical(stored.getField(physical_name(f, mode)), f.data_type, mode).alias(f.name)
                for f in fields
            ]
            return F.when(stored.isNotNull(), F.struct(*members))
        case ArrayType(element_type):
            return F.transform(stored, lambda element: _logical(element, element_type, mode))
        case MapType(key_type, value_type):
            pairs = F.transform(
                F.map_entries(stored),
                lambda pair: F.struct(
                    _logical(pair["key"], key_type, mode), _logical(pair["value"], value_type, mode)
                ),
            )
            return F.map_from_entries(pairs)
    raise AssertionError(f"a {data_type} has no parts to rename")


def _names(data_type: DataType) -> str:
    """The type as text, with names but without nullability and metadata, for comparison."""
    return str(data_type)
