"""The layout of new data files: the columns that they hold, and under which names.

=========================  =========================================================================
column mapping             files have physical names, and the columns' ids as Parquet field ids
``void``                   is never in a file, not even inside structs
partition columns          are in directory names. They are also in the files, after the other
                           columns, if the table requires it: by Iceberg compatibility, or by the
                           feature ``materializePartitionColumns``
elements, keys, values     have field ids under Iceberg compatibility V2
=========================  =========================================================================

Spec: PROTOCOL.md, "Column Mapping", "Partition Columns", "Iceberg Compatibility V1" and "V2".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from airflow_delta.engine.data_files.footer_statistics import (
    IndexedColumn,
    indexed_by_physical_name,
    leaf_chunks,
)
from airflow_delta.engine.data_files.stored_schema import stored_struct
from airflow_delta.engine.errors import ConstraintViolationError
from airflow_delta.engine.features.column_mapping import physical_name
from airflow_delta.engine.features.iceberg_compat import iceberg_compat_version
from airflow_delta.engine.features.nested_ids import parquet_field_ids
from airflow_delta.engine.features.schema_walk import SchemaPath
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.model.schema import (
    VOID,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
)
from airflow_delta.spark.reader.columns import quoted, spark_schema
from airflow_delta.spark.writer.partitioning import directory_text

if TYPE_CHECKING:
    from airflow_delta.spark.writer.target import WriteTarget

__all__ = [
    "FileLayout",
    "file_layout",
    "nested_field_ids",
    "partition_columns_last",
    "stores_partition_columns",
    "target_layout",
]


@dataclass(frozen=True, slots=True)
class FileLayout:
    """The layout of the rows of a table in files.

    Attributes:
        stored: the columns in the files, logical names.
        written: the same columns with the names, ids and types in the files.
        mode: the column mapping mode.
        statistics: the columns that get statistics, by physical names.
        identities: the identity columns in the files, by logical name.
        partition_fields: the partition columns, by the names in ``partitionValues``.
        directories: the columns that Spark makes directories of, one per partition column.
        nested_ids: the field ids of elements, keys and values, by the paths of their nodes in the files.
    """

    stored: StructType
    written: T.StructType
    mode: str
    statistics: tuple[IndexedColumn, ...]
    identities: Mapping[str, IndexedColumn]
    partition_fields: Mapping[str, StructField]
    directories: tuple[str, ...]
    nested_ids: Mapping[SchemaPath, int]

    def columns(self) -> list[Column]:
        """The columns to be written, as expressions over those of the table."""
        stored = [
            _stored(F.col(quoted(field.name)), field.data_type)
            .cast(written.dataType)
            .alias(written.name, metadata=written.metadata)
            for field, written in zip(self.stored, self.written, strict=True)
        ]
        partitioning = [
            directory_text(F.col(quoted(field.name)), field.data_type).alias(directory)
            for directory, field in zip(
                self.directories, self.partition_fields.values(), strict=True
            )
        ]
        return [*stored, *partitioning]


def file_layout(
    schema: StructType,
    partition_by: tuple[str, ...],
    properties: TableProperties,
    *,
    mode: str,
    supported: frozenset[str],
    clustered_by: Sequence[SchemaPath] = (),
) -> FileLayout:
    """Lay out the rows of a table in files.

    Args:
        schema: the table's schema, logical names.
        partition_by: its partition columns.
        properties: its properties.
        mode: its column mapping mode.
        supported: the features that its protocol supports.
        clustered_by: the physical paths of its clustering columns.

    Raises:
        ConstraintViolationError: files would have no column, or a void is inside an array or a map.
            Facts: columns.
        InvalidTableError: a column lacks its physical name or id.
    """
    without = () if stores_partition_columns(properties, supported) else partition_by
    _check_storable(schema, partition_by, properties.table)
    ordered = partition_columns_last(schema, partition_by)
    logical = stored_struct(ordered, mode="none", without=without)
    written = spark_schema(
        stored_struct(ordered, mode=mode, without=without, with_ids=mode != "none")
    )
    kept = {field.name for field in logical}
    by_name = {field.name: field for field in schema}
    taken = {name.lower() for name in written.names}
    partition_fields = {physical_name(by_name[name], mode): by_name[name] for name in partition_by}
    return FileLayout(
        StructType(tuple(field for field in ordered if field.name in kept)),
        written,
        mode,
        indexed_by_physical_name(
            logical, schema, properties, mode, clustered_by, partition_by=partition_by
        ),
        {
            leaf.path[0]: leaf
            for leaf in leaf_chunks(logical)
            if len(leaf.path) == 1 and "delta.identity.start" in by_name[leaf.path[0]].metadata
        },
        partition_fields,
        tuple(_unused(name, taken) for name in partition_fields),
        nested_field_ids(ordered, properties, mode=mode, supported=supported),
    )


def target_layout(target: WriteTarget) -> FileLayout:
    """Lay out the rows of a table that is about to be written; see `file_layout`.

    Raises:
        ConstraintViolationError: see `file_layout`.
        InvalidTableError: see `file_layout`.
    """
    return file_layout(
        target.schema,
        target.partition_by,
        target.properties,
        mode=target.mode,
        supported=target.supported,
        clustered_by=target.clustered_by,
    )


def stores_partition_columns(properties: TableProperties, supported: frozenset[str]) -> bool:
    """Whether data files hold the partition columns as well.

    Args:
        properties: the table's properties.
        supported: the features that its protocol supports.
    """
    return (
        iceberg_compat_version(supported, properties) is not None
        or "materializePartitionColumns" in supported
        or properties.flag("delta.writePartitionColumnsToParquet")
    )


def partition_columns_last(schema: StructType, partition_by: tuple[str, ...]) -> StructType:
    """The columns of a table in the order that files have if they hold the partition columns."""
    by_name = {field.name: field for field in schema}
    others = (field for field in schema if field.name not in partition_by)
    return StructType((*others, *(by_name[name] for name in partition_by)))


def nested_field_ids(
    schema: StructType, properties: TableProperties, *, mode: str, supported: frozenset[str]
) -> Mapping[SchemaPath, int]:
    """The field ids that files need for elements, keys and values; none without Iceberg compatibility V2.

    Args:
        schema: the columns in the files, logical names.
        properties: the table's properties.
        mode: its column mapping mode.
        supported: the features that its protocol supports.
    """
    if iceberg_compat_version(supported, properties) != 2:
        return {}
    return dict(parquet_field_ids(schema, mode))


def _check_storable(schema: StructType, partition_by: tuple[str, ...], table: str) -> None:
    columns = [field for field in schema if field.name not in partition_by]
    inside = [field.name for field in columns if _has_void_inside(field.data_type)]
    if inside:
        raise ConstraintViolationError(
            f"parquet files can't hold a void inside an array or a map, or a struct of voids alone, as in "
            f"{inside}: give it another type",
            table=table,
            columns=tuple(inside),
        )
    if all(field.data_type == VOID for field in columns):
        raise ConstraintViolationError(
            "every column is a partition column or void, so that data files would have none: add a column, "
            "or partition by fewer",
            table=table,
            columns=(),
        )


def _has_void_inside(data_type: DataType) -> bool:
    match data_type:
        case StructType(fields):
            return all(field.data_type == VOID for field in fields) or any(
                _has_void_inside(field.data_type) for field in fields
            )
        case ArrayType():
            return _has_void(data_type.element_type)
        case MapType():
            return _has_void(data_type.key_type) or _has_void(data_type.value_type)
        case _:
            return False


def _has_void(data_type: DataType) -> bool:
    if isinstance(data_type, StructType):
        return any(_has_void(field.data_type) for field in data_type)
    return data_type == VOID or _has_void_inside(data_type)


def _stored(column: Column, data_type: DataType) -> Column:
    """A column without the voids inside its structs, which files can't hold."""
    if not isinstance(data_type, StructType) or not _has_void(data_type):
        return column
    members = [
        _stored(column.getField(field.name), field.data_type).alias(field.name)
        for field in data_type
        if field.data_type != VOID
    ]
    return F.when(column.isNotNull(), F.struct(*members))


def _unused(name: str, taken: set[str]) -> str:
    """A name for a directory that is no column of the files, ignoring case.

    Spark hides directories whose names begin with a dot.
    """
    for candidate in _candidates(name.lstrip(".") or "partition"):
        if candidate.lower() not in taken:
            taken.add(candidate.lower())
            return candidate
    raise AssertionError("there are infinitely many names")


def _candidates(name: str) -> Iterator[str]:
    yield name
    number = 1
    while True:
        yield f"{name}_{number}"
        number += 1
