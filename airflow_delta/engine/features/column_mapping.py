"""Column mapping: columns whose names in files differ from those that users see.

Each column, at any depth, has a *physical name* and an *id* in its metadata; both stay when the
column is renamed. What they are used for depends on the mode:

=========  ===============================  =====================================================
mode       columns of a data file by        partition values, statistics, clustering columns by
=========  ===============================  =====================================================
``none``   name                             name
``name``   physical name                    physical name
``id``     Parquet field id                 physical name
=========  ===============================  =====================================================

In mode ``none``, left-over ids and physical names in the metadata mean nothing.

Spec: PROTOCOL.md, "Column Mapping".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from airflow_delta.engine.errors import InvalidTableError
from airflow_delta.engine.features.column_names import check_column_names
from airflow_delta.engine.features.protocol import supported_features
from airflow_delta.engine.features.schema_walk import SchemaPath, all_fields, all_types, map_fields
from airflow_delta.engine.model.actions import Metadata, Protocol
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.model.schema import (
    StructField,
    StructType,
)
from airflow_delta.engine.model.schema_json import parse_schema, schema_to_json

__all__ = [
    "ID",
    "MAX_COLUMN_ID",
    "PHYSICAL_NAME",
    "assign_mapping",
    "check_mapping",
    "field_id",
    "mapping_keys",
    "mapping_mode",
    "metadata_without_mapping",
    "partition_fields",
    "physical_name",
    "physical_paths",
    "physical_schema",
    "without_mapping",
]

ID = "delta.columnMapping.id"
"""The key of a column's id in its metadata."""

PHYSICAL_NAME = "delta.columnMapping.physicalName"
"""The key of a column's physical name in its metadata."""

MAX_COLUMN_ID = "delta.columnMapping.maxColumnId"
"""The table property that holds the highest id that was ever given out."""

_KEY_PREFIX = "delta.columnMapping."


def mapping_mode(protocol: Protocol, metadata: Metadata, *, table: str) -> str:
    """The mode to follow: ``none``, ``name`` or ``id``.

    The property counts only where the protocol supports column mapping.

    Raises:
        InvalidTableError: the property holds something else.
    """
    if "columnMapping" not in supported_features(protocol):
        return "none"
    return TableProperties(metadata.configuration, table).column_mapping_mode


def physical_name(field: StructField, mode: str) -> str:
    """The name of a column in files, partition values and statistics.

    Raises:
        InvalidTableError: the mode needs a physical name, and the column has none.
    """
    if mode == "none":
        return field.name
    name = field.metadata.get(PHYSICAL_NAME)
    if not isinstance(name, str) or not name:
        raise InvalidTableError(
            f"column {field.name!r} has the physical name {name!r}: column mapping in mode {mode} "
            f"needs a non-empty string under {PHYSICAL_NAME} in its metadata"
        )
    return name


def field_id(field: StructField) -> int:
    """The id of a column.

    Raises:
        InvalidTableError: the column has none, or one that is no 32-bit integer.
    """
    number = field.metadata.get(ID)
    if type(number) is not int or not 0 <= number < 1 << 31:
        raise InvalidTableError(
            f"column {field.name!r} has the id {number!r}: column mapping needs a non-negative "
            f"32-bit integer under {ID} in its metadata"
        )
    return number


def physical_schema(schema: StructType, mode: str) -> StructType:
    """The schema with physical names at every depth; ids and other metadata stay.

    Raises:
        InvalidTableError: a column lacks its physical name, or two columns of a struct share one.
    """
    if mode == "none":
        return schema
    return map_fields(schema, lambda field: replace(field, name=physical_name(field, mode)))


def partition_fields(
    schema: StructType, partition_columns: Sequence[str], mode: str
) -> dict[str, StructField]:
    """The partition columns by their physical names, which they keep when they are renamed.

    Args:
        schema: the table's schema, logical names.
        partition_columns: their logical names, as in the metadata.
        mode: the column mapping mode.

    Raises:
        InvalidTableError: one isn't in the schema, or lacks its physical name.
    """
    fields = {name: schema.field(name) for name in partition_columns}
    found = {name: field for name, field in fields.items() if field is not None}
    if found.keys() != fields.keys():
        raise InvalidTableError(
            f"the partition columns are {list(fields)}, and the table has the columns "
            f"{', '.join(schema.names)}"
        )
    return {physical_name(field, mode): field for field in found.values()}


def physical_paths(schema: StructType, mode: str) -> dict[SchemaPath, SchemaPath]:
    """The physical path of every column that a path of names reaches, by its logical path.

    Columns inside structs are included, those inside arrays and maps are not: no partition value,
    statistic or clustering column lies there.

    Raises:
        InvalidTableError: a column lacks its physical name.
    """
    return dict(_paths(schema, mode, (), ()))


def check_mapping(schema: StructType, properties: TableProperties) -> None:
    """Make sure that every column is mapped, and no two to the same place.

    Physical names are unique within their struct, because tables that turned column mapping on
    later use the old names; ids are unique in the table.

    Raises:
        InvalidTableError: a column lacks its id or physical name, shares one, or has an id above
            the table's highest.
    """
    mode = properties.column_mapping_mode
    if mode == "none":
        return
    owners: dict[int, str] = {}
    try:
        for path, data_type in all_types(schema):
            if isinstance(data_type, StructType):
                _check_struct(data_type, mode, path, owners)
        _check_highest(owners, properties.column_mapping_max_column_id)
    except InvalidTableError as error:
        raise InvalidTableError(error.message, table=properties.table) from error


def assign_mapping(
    schema: StructType, *, name_of: Callable[[StructField], str], last: int = 0
) -> tuple[StructType, int]:
    """Give every column that lacks them an id and a physical name.

    What a column has it keeps: its files are written that way.

    Args:
        schema: the schema.
        name_of: makes the physical name of a column: a globally unique one such as ``col-<uuid>``;
            for a table that turns column mapping on later, the name its files know the column by.
        last: the highest id that was ever given out in the table.

    Returns:
        The schema with mapped columns, and the highest id now, to be stored as `MAX_COLUMN_ID`.

    Raises:
        InvalidTableError: the id or physical name that a column has makes no sense.
    """
    given = [field_id(field) for _, field in all_fields(schema) if ID in field.metadata]
    last = max([last, *given])

    def _assign(field: StructField) -> StructField:
        nonlocal last
        mapping = dict(field.metadata)
        if ID not in mapping:
            last += 1
            mapping[ID] = last
        if PHYSICAL_NAME not in mapping:
            mapping[PHYSICAL_NAME] = name_of(field)
        return replace(field, metadata=mapping)

    return map_fields(schema, _assign), last


def without_mapping(schema: StructType) -> StructType:
    """The schema without ids and physical names: in mode ``none`` left-over ones mean nothing."""

    def _strip(field: StructField) -> StructField:
        kept = {k: v for k, v in field.metadata.items() if not k.startswith(_KEY_PREFIX)}
        return replace(field, metadata=kept)

    return map_fields(schema, _strip)


def mapping_keys(field: StructField) -> dict[str, Any]:
    """What column mapping keeps in a column's metadata: its id, physical name and nested ids."""
    return {k: v for k, v in field.metadata.items() if k.startswith(_KEY_PREFIX)}


def metadata_without_mapping(metadata: Metadata, *, table: str) -> Metadata:
    """The metadata of a table whose files call the columns by their logical names from then on.

    Args:
        metadata: those of a table with column mapping.
        table: the table's location, for messages.

    Raises:
        InvalidTableError: files can't call the columns so, because a name has an unfit character; or the
            schema can't be read.
    """
    schema = without_mapping(parse_schema(metadata.schema_string, table))
    check_column_names(schema, table=table)
    kept = {k: v for k, v in metadata.configuration.items() if not k.startswith(_KEY_PREFIX)}
    return replace(metadata, schema_string=schema_to_json(schema), configuration=kept)


def _paths(
    struct: StructType, mode: str, logical: SchemaPath, physical: SchemaPath
) -> Iterator[tuple[SchemaPath, SchemaPath]]:
    for field in struct:
        pair = (*logical, field.name), (*physical, physical_name(field, mode))
        yield pair
        if isinstance(field.data_type, StructType):
            yield from _paths(field.data_type, mode, *pair)


def _check_struct(struct: StructType, mode: str, path: SchemaPath, owners: dict[int, str]) -> None:
    names: dict[str, str] = {}
    for field in struct:
        column = ".".join((*path, field.name))
        other = names.setdefault(physical_name(field, mode), column)
        if other != column:
            raise InvalidTableError(
                f"columns {other} and {column} share the physical name "
                f"{physical_name(field, mode)!r}: expected one of its own for each"
            )
        other = owners.setdefault(field_id(field), column)
        if other != column:
            raise InvalidTableError(
                f"columns {other} and {column} share the id {field_id(field)}: expected one of its "
                "own for each"
            )


def _check_highest(owners: dict[int, str], highest: int | None) -> None:
    number, owner = max(owners.items(), default=(0, ""))
    if highest is not None and number > highest:
        raise InvalidTableError(
            f"column {owner} has the id {number}, but {MAX_COLUMN_ID} is {highest}: expected no id "
            "above it"
        )
