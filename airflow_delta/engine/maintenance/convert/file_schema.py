"""The schema of a Parquet file in types of the protocol, and whether the bounds in its footer can be used.

===========================================  ============================================================
Parquet                                      protocol
===========================================  ============================================================
signed integers, floats, boolean, date       the same
decimals of at most 38 digits                the same
timestamps in milliseconds or microseconds   ``timestamp`` if adjusted to UTC, else ``timestamp_ntz``
INT96                                        ``timestamp``
strings, enums and JSON as strings; bytes    ``string``, ``binary``
groups, lists and maps                       ``struct``, ``array``, ``map``
===========================================  ============================================================

Other types are refused, as by the reference implementation or since readers disagree about them: unsigned
integers, nanoseconds, times of a day, columns that are null by type. All columns are nullable.

Bounds in the footer can't be used where they don't bound what readers see: for floats, unless parquet-mr
since 1.10 has written the file, since others leave out NaN; for timestamps in other units than
microseconds. Those of dates and times in the hybrid calendar, and of decimals in the order of their bytes,
are left to `file_statistics`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from airflow_delta.engine.data_files.footer_bounds import writer_of
from airflow_delta.engine.errors import InvalidTableError, UnsupportedFeatureError
from airflow_delta.engine.features.schema_walk import SchemaPath, all_types
from airflow_delta.engine.model.schema import (
    BINARY,
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    MAX_DECIMAL_PRECISION,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VARIANT,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StructField,
    StructType,
)
from airflow_delta.engine.model.schema_json import data_type_from_json
from airflow_delta.engine.parquet import ARROW_SCHEMA

__all__ = ["SCHEMA_KEYS", "FileSchema", "read_file_schema"]

_SPARK_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"

_KNOWS_NAN = (1, 10)
"""The version of parquet-mr since which a chunk with NaN has no bounds (PARQUET-1246)."""

_DEEPEST = 64
"""The schema in a log may not be deeper; see `model.schema_json`."""

SCHEMA_KEYS = (_SPARK_SCHEMA, ARROW_SCHEMA)
"""The keys of the metadata in a footer that decide what `read_file_schema` returns."""

_PLAIN = {
    pa.bool_(): BOOLEAN,
    pa.int8(): BYTE,
    pa.int16(): SHORT,
    pa.int32(): INTEGER,
    pa.int64(): LONG,
    pa.float32(): FLOAT,
    pa.float64(): DOUBLE,
    pa.date32(): DATE,
    pa.date64(): DATE,
    pa.string(): STRING,
    pa.large_string(): STRING,
    pa.string_view(): STRING,
    pa.binary(): BINARY,
    pa.large_binary(): BINARY,
    pa.binary_view(): BINARY,
}


@dataclass(frozen=True, slots=True)
class FileSchema:
    """The schema of a file.

    Attributes:
        columns: the columns, all nullable.
        unbounded: the paths of the leaf columns whose bounds in the footer can't be used.
    """

    columns: StructType
    unbounded: frozenset[SchemaPath]


def read_file_schema(footer: Any, schema: pa.Schema, *, path: str, table: str) -> FileSchema:
    """Convert the schema of a file.

    Args:
        footer: the file's footer, a ``pyarrow.parquet.FileMetaData``.
        schema: its schema in Arrow's types.
        path: the file, for messages.
        table: the table's location, for messages.

    Raises:
        UnsupportedFeatureError: a column is of a type that the protocol lacks, or that readers read
            differently. Facts: path, column.
        InvalidTableError: two columns have the same name, apart from case. Facts: path.
    """
    conversion = _Conversion(footer, path, table)
    try:
        columns = conversion.struct(schema, ())
    except InvalidTableError as error:
        raise InvalidTableError(
            f"the file {path!r}: {error.message}", table=table, path=path
        ) from error
    _check_spark_schema(footer, path, table)
    return FileSchema(columns, frozenset(conversion.unbounded))


class _Conversion:
    def __init__(self, footer: Any, path: str, table: str) -> None:
        self._leaves = _leaves(footer)
        self._path = path
        self._table = table
        program, version = writer_of(footer)
        self._bounds_floats = program == "parquet-mr" and version >= _KNOWS_NAN
        self.unbounded: set[SchemaPath] = set()

    def struct(self, fields: Any, path: SchemaPath) -> StructType:
        """Convert the fields of a struct."""
        return StructType(
            tuple(
                StructField(field.name, self._type(field.type, (*path, field.name)))
                for field in fields
            )
        )

    def _type(self, type_: pa.DataType, path: SchemaPath) -> DataType:
        types = pa.types
        if len(path) > _DEEPEST:
            raise self._unsupported(path[:1], f"nested {_DEEPEST} times", "flatten the column")
        if isinstance(type_, pa.BaseExtensionType):
            return self._type(type_.storage_type, path)
        if types.is_dictionary(type_):
            return self._type(type_.value_type, path)
        if types.is_struct(type_):
            return self.struct(type_, path)
        if types.is_map(type_):
            key = self._type(type_.key_type, (*path, "key"))
            return MapType(key, self._type(type_.item_type, (*path, "value")))
        if any(is_list(type_) for is_list in _LISTS):
            return ArrayType(self._type(type_.value_type, (*path, "element")))
        return self._leaf(type_, path)

    def _leaf(self, type_: pa.DataType, path: SchemaPath) -> DataType:
        leaf = next(self._leaves)
        found = _PLAIN.get(type_)
        if found == BINARY and leaf.logical_type.type in ("STRING", "ENUM", "JSON"):
            return STRING
        if found is not None:
            if found in (FLOAT, DOUBLE) and not self._bounds_floats:
                self.unbounded.add(path)
            return found
        if pa.types.is_timestamp(type_):
            return self._timestamp(type_, leaf, path)
        if pa.types.is_fixed_size_binary(type_):
            return BINARY
        if pa.types.is_decimal(type_) and type_.precision <= MAX_DECIMAL_PRECISION:
            return DecimalType(type_.precision, type_.scale)
        raise self._unsupported(path, str(type_), "write the column in another type")

    def _timestamp(self, type_: pa.DataType, leaf: Any, path: SchemaPath) -> DataType:
        if leaf.physical_type == "INT96":
            self.unbounded.add(path)
            return TIMESTAMP
        logical = json.loads(leaf.logical_type.to_json())
        unit = logical.get("timeUnit")
        if unit not in ("milliseconds", "microseconds"):
            remedy = "Spark can't read them; write them in microseconds (coerce_timestamps='us' in pyarrow)"
            raise self._unsupported(path, f"{type_}, in nanoseconds", remedy)
        if unit != "microseconds":
            self.unbounded.add(path)
        # Arrow takes the older annotation, which means UTC, for a local time.
        return TIMESTAMP if logical["isAdjustedToUTC"] else TIMESTAMP_NTZ

    def _unsupported(self, path: SchemaPath, kind: str, remedy: str) -> UnsupportedFeatureError:
        column = ".".join(path)
        return UnsupportedFeatureError(
            f"the file {self._path!r}: the column {column!r} is of the type {kind}, which Delta tables "
            f"lack: {remedy}",
            table=self._table,
            path=self._path,
            column=column,
        )


_LISTS = (
    pa.types.is_list,
    pa.types.is_large_list,
    pa.types.is_fixed_size_list,
    pa.types.is_list_view,
    pa.types.is_large_list_view,
)


def _leaves(footer: Any) -> Iterator[Any]:
    """The leaf columns of the file in order, which is that of the leaves in Arrow's schema."""
    for index in range(footer.num_columns):
        yield footer.schema.column(index)


def _check_spark_schema(footer: Any, path: str, table: str) -> None:
    """Check that Spark doesn't mean other types than Parquet shows, such as an interval in an integer."""
    text = (footer.metadata or {}).get(_SPARK_SCHEMA)
    if text is None:
        return
    try:
        schema = data_type_from_json(json.loads(text))
    except (ValueError, RecursionError):
        return  # Nobody needs it to read the file.
    except InvalidTableError as error:
        raise UnsupportedFeatureError(
            f"the file {path!r}: Spark has written a column whose type Delta tables lack: {error.message}; "
            "write the column in another type",
            table=table,
            path=path,
        ) from error
    for found, data_type in all_types(schema):
        if data_type == VARIANT:
            raise UnsupportedFeatureError(
                f"the file {path!r}: the column {'.'.join(found)!r} is a variant, which can't be "
                "converted; write the rows to a new table with Spark",
                table=table,
                path=path,
                column=".".join(found),
            )
