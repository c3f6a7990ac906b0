"""What relies on a column, so that it can't be changed under it.

Constraints, generated columns and invariants name columns in SQL text that stays as it is when a column
is renamed, dropped or given another type. They have to be dropped first. Partitioning and clustering go
by columns as well, and rule out that one is dropped; a new name they follow.

Spec: PROTOCOL.md, "CHECK Constraints", "Generated Columns", "Column Invariants", "Clustered Table".
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.features.column_changes.column_paths import display_path, type_at
from airflow_delta.engine.features.column_changes.sql_columns import columns_in_sql
from airflow_delta.engine.features.column_mapping import physical_paths
from airflow_delta.engine.features.schema_walk import SchemaPath, all_fields
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.model.schema import StructField, StructType

__all__ = ["check_no_expressions", "check_not_in_layout", "value_sources"]

_IN_METADATA = {
    "delta.generationExpression": "the generated column {}",
    "delta.invariants": "the invariant of the column {}",
}

_LONGEST_EXPRESSION = 1_000_000
"""Longer SQL is taken to refer to every column. To cut it into tokens would take seconds."""

_MAKES_VALUES = ("delta.generationExpression", "delta.identity.")


def value_sources(field: StructField) -> list[str]:
    """The keys in a column's metadata by which writers make its values, none for most columns."""
    return sorted(key for key in field.metadata if key.startswith(_MAKES_VALUES))


def check_no_expressions(
    schema: StructType,
    properties: TableProperties,
    path: SchemaPath,
    *,
    verb: str,
    leaving: Collection[SchemaPath] = (),
) -> None:
    """Make sure that no SQL text relies on a column.

    Args:
        schema: the table's schema.
        properties: the table's properties.
        path: the column.
        verb: what is to be done, such as ``renamed``.
        leaving: columns that are dropped, so that what they say counts no more.

    Raises:
        InvalidArgumentError: some may do. The message tells all of it.
    """
    place = _reachable(schema, path)
    found = [
        f"{what} ({expression})"
        for owner, what, expression in _expressions(schema, properties)
        if not any(owner[: len(gone)] == gone for gone in leaving) and _may_refer(expression, place)
    ]
    if found:
        raise InvalidArgumentError(
            f"{display_path(path)} can't be {verb}: {'; '.join(found)} may refer to it; drop what does "
            "first",
            table=properties.table,
            column=path,
        )


def check_not_in_layout(
    schema: StructType,
    properties: TableProperties,
    path: SchemaPath,
    *,
    partition_columns: Sequence[str],
    clustering_columns: Sequence[SchemaPath],
) -> None:
    """Make sure that the table's files aren't laid out by a column that is to be dropped.

    Args:
        schema: the table's schema.
        properties: the table's properties.
        path: the column.
        partition_columns: the table's partition columns.
        clustering_columns: the physical paths of its clustering columns.

    Raises:
        InvalidArgumentError: the table is partitioned, or clustered, by it or a column in it; or
            nothing but partition columns would be left.
    """
    if path[0] in partition_columns:
        problem = "the table is partitioned by it; create a new table with other partition columns"
    elif {*schema.names} - {path[0]} <= {*partition_columns} and len(path) == 1:
        problem = (
            "only partition columns would be left, and a data file needs one that it holds itself"
        )
    elif any(
        logical[: len(path)] == path and physical in clustering_columns
        for logical, physical in physical_paths(schema, properties.column_mapping_mode).items()
    ):
        problem = "the table is clustered by it; cluster it by others, or by none, first"
    else:
        return
    raise InvalidArgumentError(
        f"{display_path(path)} can't be dropped: {problem}", table=properties.table, column=path
    )


def _expressions(
    schema: StructType, properties: TableProperties
) -> Iterator[tuple[SchemaPath, str, str]]:
    """The owner of each SQL text, none for the table, what it is, and the text."""
    for name, text in properties.constraints.items():
        yield (), f"the constraint {name!r}", text
    for path, field in all_fields(schema):
        for key, what in _IN_METADATA.items():
            if key in field.metadata:
                yield path, what.format(display_path(path)), _text(field.metadata[key])


def _text(value: Any) -> str:
    """The SQL in an entry of a column's metadata; of an invariant, which is SQL in JSON, all of it.

    JSON puts the SQL between double quotes, which would make it one literal.
    """
    return str(value).replace('\\"', "'").replace('"', " ")


def _reachable(schema: StructType, path: SchemaPath) -> SchemaPath:
    """The part of a path that SQL writes alike: up to the first array or map."""
    for end in range(1, len(path)):
        if not isinstance(type_at(schema, path[:end]), StructType):
            return path[:end]
    return path


def _may_refer(expression: str, path: SchemaPath) -> bool:
    if len(expression) > _LONGEST_EXPRESSION:
        return True
    return any(_may_be(name, path) for name in columns_in_sql(expression))


def _may_be(name: tuple[str, ...], path: SchemaPath) -> bool:
    """Whether a name leads to a column, to what it is in, or to what is in it; in any case."""
    return all(one.lower() == other.lower() for one, other in zip(name, path, strict=False))
