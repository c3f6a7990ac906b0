"""Iceberg compatibility: requirements on a table, so that Iceberg can read its data files.

A version is in force if the table supports its feature and its property is true:

========================  =================================  =====================================
                          V1                                 V2
========================  =================================  =====================================
column mapping            ``name`` or ``id``                 ``name`` or ``id``
deletion vectors          not supported                      not active
the other version         may be in force as well            V1 not in force
types                     no array, map or void              a list of allowed ones
ids of nested fields      none needed                        of each element, key and value
partition columns         never others                       never others
``numRecords``            in each ``add``                    in each ``add``
========================  =================================  =====================================

The engine doesn't see the requirements on the content of data files: materialised partition values, field
ids, and timestamps as 64-bit integers. The writer of the files declares that it follows them.

PROTOCOL.md, "Iceberg Compatibility V1" and "Iceberg Compatibility V2".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from airflow_delta.engine.errors import InvalidTableError
from airflow_delta.engine.features.column_mapping import ID
from airflow_delta.engine.features.nested_ids import NESTED_IDS, nested_ids_of, nested_paths
from airflow_delta.engine.features.schema_walk import all_fields, all_types
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.model.schema import (
    BINARY,
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StructField,
    StructType,
)

__all__ = ["check_iceberg_compat", "iceberg_compat_version"]

_V2_TYPES: frozenset[DataType] = frozenset(
    {
        BYTE,
        SHORT,
        INTEGER,
        LONG,
        FLOAT,
        DOUBLE,
        STRING,
        BINARY,
        BOOLEAN,
        TIMESTAMP,
        TIMESTAMP_NTZ,
        DATE,
    }
)


def iceberg_compat_version(supported: frozenset[str], properties: TableProperties) -> int | None:
    """The version in force, 1 or 2; the higher one if both are, and None if neither is.

    Args:
        supported: the features that the table supports.
        properties: the table's properties.
    """
    if "icebergCompatV2" in supported and properties.iceberg_compat_v2_enabled:
        return 2
    if "icebergCompatV1" in supported and properties.iceberg_compat_v1_enabled:
        return 1
    return None


def check_iceberg_compat(
    supported: frozenset[str],
    properties: TableProperties,
    schema: StructType,
    *,
    partition_columns: Mapping[str, StructField] = MappingProxyType({}),
    before: Mapping[str, StructField] = MappingProxyType({}),
) -> None:
    """Check that a table satisfies the requirements of the version in force.

    Args:
        supported: the features that the table supports.
        properties: the table's properties.
        schema: the table's schema, logical names.
        partition_columns: its partition columns, from `column_mapping.partition_fields`.
        before: its partition columns before the commit; none for a new or unpartitioned table.

    Raises:
        InvalidTableError: a requirement is broken. The message names the first one, and what to do.
    """
    version = iceberg_compat_version(supported, properties)
    if version is None:
        return
    problems = _problems(version, supported, properties, schema)
    # Compared by their physical names, which a rename doesn't change.
    if before and tuple(before) != tuple(partition_columns):
        old, new = ([field.name for field in side.values()] for side in (before, partition_columns))
        problem = f"the table is partitioned by {old}, which can't become {new}; keep the partition columns"
    elif (found := next(problems, None)) is not None:
        problem = found
    else:
        return
    raise InvalidTableError(
        f"icebergCompatV{version} is in force (delta.enableIcebergCompatV{version}=true): {problem}",
        table=properties.table,
    )


def _problems(
    version: int, supported: frozenset[str], properties: TableProperties, schema: StructType
) -> Iterator[str]:
    if "columnMapping" not in supported or properties.column_mapping_mode == "none":
        yield "it needs column mapping; set delta.columnMapping.mode to name or id"
    if "deletionVectors" in supported and version == 1:
        yield "the table supports deletion vectors; have the feature deletionVectors dropped first"
    if "deletionVectors" in supported and properties.deletion_vectors_enabled:
        yield "deletion vectors are enabled; set delta.enableDeletionVectors to false"
    if version == 1:
        yield from _unfit_types_of_v1(schema)
    else:
        if "icebergCompatV1" in supported and properties.iceberg_compat_v1_enabled:
            yield "V1 is in force as well; set delta.enableIcebergCompatV1 to false"
        yield from _unfit_types_of_v2(schema)
        yield from _missing_ids(schema)


def _unfit_types_of_v1(schema: StructType) -> Iterator[str]:
    for path, data_type in all_types(schema):
        if isinstance(data_type, (ArrayType, MapType)) or data_type == VOID:
            yield (
                f"the column {'.'.join(path)} is of the type {data_type}; V1 has no arrays, maps and "
                "void, so leave the column out or use V2"
            )


def _unfit_types_of_v2(schema: StructType) -> Iterator[str]:
    for path, data_type in all_types(schema):
        nested = isinstance(data_type, (StructType, ArrayType, MapType, DecimalType))
        if not nested and data_type not in _V2_TYPES:
            yield f"the column {'.'.join(path)} is of the type {data_type}, which Iceberg lacks"


def _missing_ids(schema: StructType) -> Iterator[str]:
    """Elements, keys and values without an id of their own."""
    owners: dict[int, str] = {}
    fields = list(all_fields(schema))
    for path, field in fields:
        if type(number := field.metadata.get(ID)) is int:
            owners[number] = ".".join(path)
    for path, field in fields:
        ids = nested_ids_of(field)
        for nested in nested_paths(field.data_type):
            name = ".".join((*path, *nested))
            number = ids.get(nested)
            if number is None:
                yield (
                    f"{name} has no id; it needs one in the map {NESTED_IDS} of its column's "
                    "metadata"
                )
            elif number in owners:
                yield f"{name} and {owners[number]} share the id {number}; give each its own"
            else:
                owners[number] = name
