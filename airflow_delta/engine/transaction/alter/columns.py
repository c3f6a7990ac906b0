"""Compute alterations of a table's columns from its newest version.

``features/column_changes`` changes the schema. This module changes the rest of the metadata to match: under
column mapping it assigns ids and physical names to new columns; after a rename it updates the partition
columns and the list of columns with statistics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.features.clustering import DOMAIN, parse_clustering_columns
from airflow_delta.engine.features.column_changes.attributes import (
    with_comment,
    with_default,
    with_nullable,
)
from airflow_delta.engine.features.column_changes.column_paths import (
    ColumnName,
    column_path,
    display_path,
    field_at,
    type_at,
)
from airflow_delta.engine.features.column_changes.dependents import (
    check_no_expressions,
    check_not_in_layout,
)
from airflow_delta.engine.features.column_changes.position import Position
from airflow_delta.engine.features.column_changes.statistics_columns import (
    drop_listed_column,
    rename_listed_column,
)
from airflow_delta.engine.features.column_changes.structure import (
    add_fields,
    drop_field,
    move_field,
    rename_field,
)
from airflow_delta.engine.features.column_changes.widening import widen
from airflow_delta.engine.features.column_mapping import mapping_mode
from airflow_delta.engine.features.column_names import check_column_names
from airflow_delta.engine.features.iceberg_compat import iceberg_compat_version
from airflow_delta.engine.features.protocol import supported_features
from airflow_delta.engine.features.requests.assigned_metadata import assign_metadata
from airflow_delta.engine.features.schema_walk import SchemaPath
from airflow_delta.engine.model.actions import Metadata
from airflow_delta.engine.model.arguments import check_list, check_text, wrong_argument
from airflow_delta.engine.model.schema import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)
from airflow_delta.engine.model.schema_arguments import check_data_type, check_fields
from airflow_delta.engine.model.schema_json import schema_to_json
from airflow_delta.engine.model.sql_names import sql_name
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.transaction.alter.plan import Alteration
from airflow_delta.engine.transaction.unique import unique_text

__all__ = [
    "add_columns",
    "change_type",
    "column_mapping_of",
    "drop_columns",
    "drop_default",
    "metadata_with_schema",
    "move_column",
    "rename_column",
    "set_comment",
    "set_default",
    "set_nullable",
]


def add_columns(
    base: Snapshot, fields: Sequence[StructField], inside: ColumnName, position: Position | None
) -> Alteration:
    """Add columns; see `add_fields`."""
    fields = check_fields("fields", fields)
    path = column_path(inside, "inside") if inside else ()
    schema = add_fields(base.schema, path, fields, position)
    if column_mapping_of(base) == "none":
        check_column_names(StructType(tuple(fields)), table=base.table)
    columns = [
        {"column": _column_parameter((*path, field.name), field.data_type, metadata=field.metadata)}
        | ({"position": inserted.sql} if inserted else {})
        for field, inserted in zip(fields, _positions(fields, position), strict=True)
    ]
    return Alteration("ADD COLUMNS", {"columns": columns}, metadata_with_schema(base, schema))


def rename_column(base: Snapshot, column: ColumnName, name: str) -> Alteration:
    """Rename a column; see `rename_field`."""
    path = column_path(column)
    check_text("new_name", name)
    _check_has_column_mapping(base, "renamed")
    schema = rename_field(base.schema, path, name)
    check_no_expressions(base.schema, base.properties, path, verb="renamed")
    metadata = metadata_with_schema(
        base, schema, configuration=rename_listed_column(base.metadata.configuration, path, name)
    )
    if len(path) == 1:
        by = tuple(name if other == path[0] else other for other in metadata.partition_columns)
        metadata = replace(metadata, partition_columns=by)
    parameters = {
        "oldColumnPath": sql_name(path),
        "newColumnPath": sql_name((*path[:-1], name)),
    }
    return Alteration("RENAME COLUMN", parameters, metadata)


def drop_columns(base: Snapshot, columns: Sequence[ColumnName]) -> Alteration:
    """Drop columns; see `drop_field`. The files keep the values, which readers then ignore."""
    paths = _parse_columns_to_drop(columns)
    _check_has_column_mapping(base, "dropped")
    schema, configuration = base.schema, dict(base.metadata.configuration)
    clustering = base.domains.get(DOMAIN)
    by = parse_clustering_columns(clustering.configuration, table=base.table) if clustering else ()
    for path in paths:
        remaining, schema = schema, drop_field(schema, path)
        check_not_in_layout(
            remaining,
            base.properties,
            path,
            partition_columns=base.metadata.partition_columns,
            clustering_columns=by,
        )
        check_no_expressions(base.schema, base.properties, path, verb="dropped", leaving=paths)
        configuration = drop_listed_column(configuration, path)
    parameters = {"columns": [sql_name(path) for path in paths]}
    metadata = metadata_with_schema(base, schema, configuration=configuration)
    return Alteration("DROP COLUMNS", parameters, metadata, relies_on=DOMAIN)


def _parse_columns_to_drop(columns: Sequence[ColumnName]) -> list[SchemaPath]:
    expected = "a list of columns to drop"
    check_list("columns", columns, expected)
    paths = [column_path(column, f"columns[{n}]") for n, column in enumerate(columns)]
    if not paths:
        raise wrong_argument("columns", expected, columns)
    for number, path in enumerate(paths):
        if path in paths[:number]:
            raise InvalidArgumentError(
                f"columns: {display_path(path)} is listed twice", column=path
            )
    return paths


def change_type(base: Snapshot, column: ColumnName, new_type: DataType) -> Alteration:
    """Widen the type of a column; see `widen`."""
    path = column_path(column)
    check_data_type("new_type", new_type)
    if not base.properties.type_widening_enabled:
        raise InvalidArgumentError(
            f"the type of {display_path(path)} can't change, as type widening isn't enabled; set the "
            "property delta.enableTypeWidening to true first"
        )
    supported = supported_features(base.protocol)
    preview = "typeWidening-preview" in supported and "typeWidening" not in supported
    schema = widen(
        base.schema,
        path,
        new_type,
        for_iceberg=iceberg_compat_version(supported, base.properties) is not None,
        version=base.version + 1 if preview else None,
    )
    check_no_expressions(base.schema, base.properties, path, verb="given another type")
    return _column_change(base, path, schema)


def set_nullable(base: Snapshot, column: ColumnName, *, allowed: bool) -> Alteration:
    """Allow or forbid nulls in a column; see `with_nullable`."""
    path = column_path(column)
    return _column_change(base, path, with_nullable(base.schema, path, nullable=allowed))


def set_comment(base: Snapshot, column: ColumnName, comment: str | None) -> Alteration:
    """Set or remove the comment of a column; see `with_comment`."""
    path = column_path(column)
    check_text("comment", comment, optional=True)
    return _column_change(base, path, with_comment(base.schema, path, comment))


def set_default(base: Snapshot, column: ColumnName, expression: str) -> Alteration:
    """Set the default of a column; see `with_default`."""
    path = column_path(column)
    check_text("expression", expression)
    return _column_change(base, path, with_default(base.schema, path, expression))


def drop_default(base: Snapshot, column: ColumnName) -> Alteration:
    """Remove the default of a column; see `with_default`."""
    path = column_path(column)
    return _column_change(base, path, with_default(base.schema, path, None))


def move_column(base: Snapshot, column: ColumnName, position: Position | None) -> Alteration:
    """Move a column within its struct; see `move_field`.

    Raises:
        InvalidArgumentError: no position is given.
    """
    path = column_path(column)
    if position is None:
        raise InvalidArgumentError(
            f"{column!r} can't be moved without a position: pass first=True or after=…"
        )
    alteration = _column_change(base, path, move_field(base.schema, path, position))
    return replace(alteration, parameters={**alteration.parameters, "position": position.sql})


def _column_change(base: Snapshot, path: SchemaPath, schema: StructType) -> Alteration:
    """The alteration for a change of one column that keeps its path."""
    parent, name = type_at(schema, path[:-1]), path[-1]
    match parent:
        case StructType():
            field = field_at(schema, path)
            column = _column_parameter(
                path, field.data_type, nullable=field.nullable, metadata=field.metadata
            )
        case ArrayType():
            column = _column_parameter(path, parent.element_type, nullable=parent.contains_null)
        case MapType():
            may_be_null = name == "value" and parent.value_contains_null
            column = _column_parameter(path, type_at(schema, path), nullable=may_be_null)
        case _:
            raise TypeError(parent)
    return Alteration("CHANGE COLUMN", {"column": column}, metadata_with_schema(base, schema))


def _column_parameter(
    path: SchemaPath,
    data_type: DataType,
    *,
    nullable: bool = True,
    metadata: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A column as in Delta Spark's history, which names only the kind of a nested type."""
    match data_type:
        case PrimitiveType() | DecimalType():
            kind = str(data_type)
        case StructType():
            kind = "struct"
        case ArrayType():
            kind = "array"
        case MapType():
            kind = "map"
    return {
        "name": sql_name(path),
        "type": kind,
        "nullable": nullable,
        "metadata": dict(metadata or {}),
    }


def _positions(
    fields: Sequence[StructField], position: Position | None
) -> Sequence[Position | None]:
    """The position of each of several columns that are inserted one after the other."""
    if position is None:
        return [None for _ in fields]
    return [position, *(Position(field.name) for field in fields[:-1])]


def column_mapping_of(base: Snapshot) -> str:
    """The column mapping mode of a version: ``none``, ``name`` or ``id``.

    Raises:
        InvalidTableError: the property holds something else.
    """
    return mapping_mode(base.protocol, base.metadata, table=base.table)


def _check_has_column_mapping(base: Snapshot, verb: str) -> None:
    if column_mapping_of(base) == "none":
        raise InvalidArgumentError(
            f"columns can't be {verb} without column mapping, because data files contain their names; "
            "set the property delta.columnMapping.mode to name first",
            table=base.table,
        )


def metadata_with_schema(
    base: Snapshot, schema: StructType, *, configuration: Mapping[str, str] | None = None
) -> Metadata:
    """The table's metadata with another schema, whose new columns get ids and physical names if needed.

    Args:
        base: the version whose metadata are changed.
        schema: the new schema.
        configuration: the new table properties; by default those of ``base``.

    Raises:
        InvalidTableError: an id or a property of column mapping is invalid.
    """
    changed = dict(base.metadata.configuration if configuration is None else configuration)
    if column_mapping_of(base) != "none":
        schema, changed = assign_metadata(
            schema,
            changed,
            mapped=True,
            name_of=lambda _: f"col-{unique_text()}",
            unique=unique_text,
            table=base.table,
        )
    return replace(base.metadata, schema_string=schema_to_json(schema), configuration=changed)
