"""Adapt a table's columns to rows that are written to it.

* `evolve_metadata` adds the columns that only the rows have, and widens types (``merge_schema`` of a
  write).
* `redefine_metadata` replaces the table's columns by those of the rows (``overwrite_schema``).

Columns are matched by name at any depth; the case doesn't matter. New columns are nullable, because
existing rows have no value for them.

PROTOCOL.md, "Change Metadata", "Column Mapping", "Schema Serialization Format".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from airflow_delta.engine.features.column_changes.column_paths import change_type_at, type_at
from airflow_delta.engine.features.column_changes.dependents import check_no_expressions
from airflow_delta.engine.features.column_changes.structure import add_fields
from airflow_delta.engine.features.column_changes.widening import may_widen, widen
from airflow_delta.engine.features.column_mapping import mapping_keys
from airflow_delta.engine.features.column_names import check_column_names
from airflow_delta.engine.features.iceberg_compat import iceberg_compat_version
from airflow_delta.engine.features.protocol import supported_features
from airflow_delta.engine.features.schema_walk import SchemaPath, map_fields
from airflow_delta.engine.model.actions import Metadata
from airflow_delta.engine.model.schema import (
    VOID,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
)
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.transaction.alter.columns import column_mapping_of, metadata_with_schema

__all__ = ["evolve_metadata", "redefine_metadata"]


def evolve_metadata(base: Snapshot, rows: StructType) -> Metadata:
    """Add columns and widen types for rows that are written to a table.

    A type is only widened if ``delta.enableTypeWidening`` allows it. Otherwise it stays, and the writer
    casts the values. A ``void`` column gets the type of the rows, whatever refers to it.

    Args:
        base: the version that the rows are written to.
        rows: the schema of the rows, all nullable.

    Returns:
        The new metadata; the same object if nothing changes.

    Raises:
        InvalidArgumentError: a constraint, generated column or invariant may refer to a column whose type
            would change; or a new column has metadata about values.
        InvalidTableError: the name of a new column, or of a member of one, needs column mapping.
    """
    schema = base.schema
    for path, fields in _additions(schema, rows, ()):
        _check_names(base, fields)
        schema = add_fields(schema, path, fields)
    for path, new_type in _type_changes(schema, rows, ()):
        schema = _with_type(base, schema, path, new_type)
    return base.metadata if schema == base.schema else metadata_with_schema(base, schema)


def redefine_metadata(
    base: Snapshot, rows: StructType, partition_columns: Sequence[str]
) -> Metadata:
    """The metadata of a table whose columns are replaced by those of rows.

    Columns that keep their name keep their id and physical name as well; nothing else of the former
    columns stays: no NOT NULL, default, generation expression or identity. Properties stay.

    Args:
        base: the version that is overwritten.
        rows: the schema of the rows, all nullable.
        partition_columns: the new partition columns.

    Raises:
        InvalidArgumentError: a constraint may refer to a column that the rows lack.
        InvalidTableError: the name of a column needs column mapping.
    """
    # Expressions of the former columns themselves don't stay.
    former = map_fields(base.schema, lambda field: replace(field, metadata={}))
    for path in _dropped(base.schema, rows, ()):
        check_no_expressions(former, base.properties, path, verb="dropped")
    if column_mapping_of(base) == "none":
        stored = tuple(field for field in rows if field.name not in partition_columns)
        check_column_names(StructType(stored), table=base.table)
        schema = rows
    else:
        schema = _with_mapping(rows, base.schema)
    metadata = metadata_with_schema(base, schema)
    return replace(metadata, partition_columns=tuple(partition_columns))


def _additions(
    have: DataType, rows: DataType, path: SchemaPath
) -> Iterator[tuple[SchemaPath, list[StructField]]]:
    """The new columns of each struct, outermost structs first."""
    match have, rows:
        case StructType(), StructType():
            known = {field.name.lower(): field for field in have}
            new = [field for field in rows if field.name.lower() not in known]
            if new:
                yield path, new
            for field in rows:
                if (old := known.get(field.name.lower())) is not None:
                    yield from _additions(old.data_type, field.data_type, (*path, old.name))
        case ArrayType(), ArrayType():
            yield from _additions(have.element_type, rows.element_type, (*path, "element"))
        case MapType(), MapType():
            yield from _additions(have.key_type, rows.key_type, (*path, "key"))
            yield from _additions(have.value_type, rows.value_type, (*path, "value"))


def _dropped(have: StructType, rows: StructType, path: SchemaPath) -> Iterator[SchemaPath]:
    """The columns, and members of structs, that the rows lack."""
    given = {field.name.lower(): field.data_type for field in rows}
    for field in have:
        here, new_type = (*path, field.name), given.get(field.name.lower())
        if new_type is None:
            yield here
        elif isinstance(field.data_type, StructType) and isinstance(new_type, StructType):
            yield from _dropped(field.data_type, new_type, here)


def _type_changes(
    have: DataType, rows: DataType, path: SchemaPath
) -> Iterator[tuple[SchemaPath, DataType]]:
    """The columns, and contents of arrays and maps, whose type differs in the rows."""
    match have, rows:
        case StructType(), StructType():
            given = {field.name.lower(): field for field in rows}
            for field in have:
                if (new := given.get(field.name.lower())) is not None:
                    yield from _type_changes(field.data_type, new.data_type, (*path, field.name))
        case ArrayType(), ArrayType():
            yield from _type_changes(have.element_type, rows.element_type, (*path, "element"))
        case MapType(), MapType():
            yield from _type_changes(have.key_type, rows.key_type, (*path, "key"))
            yield from _type_changes(have.value_type, rows.value_type, (*path, "value"))
        case _:
            if have != rows:
                yield path, rows


def _with_type(
    base: Snapshot, schema: StructType, path: SchemaPath, new_type: DataType
) -> StructType:
    """The schema with the type of the rows, if the table may take it."""
    old_type = type_at(schema, path)
    if old_type == VOID:
        _check_names(base, [StructField(path[-1], new_type)])
        return change_type_at(schema, path, lambda _: new_type)
    supported = supported_features(base.protocol)
    for_iceberg = iceberg_compat_version(supported, base.properties) is not None
    if not base.properties.type_widening_enabled or not may_widen(
        old_type, new_type, for_iceberg=for_iceberg
    ):
        return schema
    check_no_expressions(base.schema, base.properties, path, verb="given another type")
    preview = "typeWidening-preview" in supported and "typeWidening" not in supported
    return widen(
        schema,
        path,
        new_type,
        for_iceberg=for_iceberg,
        version=base.version + 1 if preview else None,
    )


def _check_names(base: Snapshot, fields: Sequence[StructField]) -> None:
    if column_mapping_of(base) == "none":
        check_column_names(StructType(tuple(fields)), table=base.table)


def _with_mapping(rows: StructType, former: StructType) -> StructType:
    """The columns with the ids and physical names of former columns with the same names."""
    known = {field.name.lower(): field for field in former}
    fields = []
    for field in rows:
        old = known.get(field.name.lower())
        if old is not None:
            data_type = field.data_type
            if isinstance(data_type, StructType) and isinstance(old.data_type, StructType):
                data_type = _with_mapping(data_type, old.data_type)
            metadata = {**field.metadata, **mapping_keys(old)}
            field = replace(field, data_type=data_type, metadata=metadata)
        fields.append(field)
    return StructType(tuple(fields))
