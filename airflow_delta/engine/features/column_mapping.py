"""Column mapping: the names of columns in files may differ from the names that users see.

Each column, at any depth, has a *physical name* and an *id* in its metadata. Both stay when the column is
renamed. Their use depends on the mode:

=========  ===============================  =====================================================
mode       columns of a data file by        partition values, statistics, clustering columns by
=========  ===============================  =====================================================
``none``   name                             name
``name``   physical name                    physical name
``id``     Parquet field id                 physical name
=========  ===============================  =====================================================

In mode ``none``, ids and physical names that are left in the metadata mean nothing.

PROTOCOL.md, "Column Mapping".
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
"""The table property with the highest id that was ever assigned."""

_KEY_PREFIX = "delta.columnMapping."


def mapping_mode(protocol: Protocol, metadata: Metadata, *, table: str) -> str:
    """The mode in force: ``none``, ``name`` or ``id``.

    The property counts only if the protocol has the feature.

    Raises:
        InvalidTableError: the property has another value.
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
        InvalidTableError: the column has no id, or its id is no 32-bit integer.
    """
    number = field.metadata.get(ID)
    if type(number) is not int or not 0 <= number < 1 << 31:
        raise InvalidTableError(
            f"column {field.name!r} has the id {number!r}: column mapping needs a non-negative "
            f"32-bit integer under {ID} in its metadata"
        )
    return number


def physical_schema(schema: StructType, mode: str) -> StructType:
    """The schema with physical names at every depth. Ids and other metadata stay.

    Raises:
        InvalidTableError: a column lacks its physical name, or two columns of a struct share one.
    """
    if mode == "none":
        return schema
    return map_fields(schema, lambda field: replace(field, name=physical_name(field, mode)))


def partition_fields(
    schema: StructType, partition_columns: Sequence[str], mode: str
) -> dict[str, StructField]:
    """The partition columns, by their physical names. A rename doesn't change these.

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
    """The physical path of every column, by its logical path.

    Columns inside structs are included. Those inside arrays and maps aren't, because they have no partition
    values or statistics and can't be clustering columns.

    Raises:
        InvalidTableError: a column lacks its physical name.
    """
    return dict(_paths(schema, mode, (), ()))


def check_mapping(schema: StructType, properties: TableProperties) -> None:
    """Check that every column has a unique id and physical name.

    Ids are unique in the table. Physical names are only unique within their struct, because a table that
    turns column mapping on later uses its old names.

    Raises:
        InvalidTableError: a column lacks its id or physical name, shares one with another column, or has an
            id above the table's highest.
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
    """Assign an id and a physical name to every column that lacks them.

    Existing ids and names stay, because the files were written with them.

    Args:
        schema: the schema.
        name_of: makes the physical name of a column: a globally unique one such as ``col-<uuid>``; or, if
            the table turns column mapping on later, the column's name in the existing files.
        last: the highest id that was ever assigned in the table.

    Returns:
        The new schema, and the new highest id, which the caller stores as `MAX_COLUMN_ID`.

    Raises:
        InvalidTableError: an existing id or physical name is invalid.
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
    """The schema without ids and physical names."""

    def _strip(field: StructField) -> StructField:
        kept = {k: v for k, v in field.metadata.items() if not k.startswith(_KEY_PREFIX)}
        return replace(field, metadata=kept)

    return map_fields(schema, _strip)


def mapping_keys(field: StructField) -> dict[str, Any]:
    """The keys of column mapping in a column's metadata: its id, physical name and nested ids."""
    return {k: v for k, v in field.metadata.items() if k.startswith(_KEY_PREFIX)}


def metadata_without_mapping(metadata: Metadata, *, table: str) -> Metadata:
    """The metadata without column mapping, for a table whose files are rewritten with logical names.

    Args:
        metadata: the metadata with column mapping.
        table: the table's location, for messages.

    Raises:
        InvalidTableError: a logical name has a character that files can't have; or the schema can't be
            read.
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
