"""Check the columns that a user chooses to cluster a table by.

As in the reference implementation there may be at most four. Each must have a type with least and greatest
values, and must be among the columns that get statistics (``delta.dataSkippingNumIndexedCols``,
``delta.dataSkippingStatsColumns``). Writers that don't know the feature would omit the statistics of
others.

PROTOCOL.md, "Clustered Table".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.features.column_mapping import physical_paths
from airflow_delta.engine.features.schema_walk import SchemaPath
from airflow_delta.engine.features.statistics_columns import (
    columns_with_statistics,
    has_bounds,
    leaf_columns,
)
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.model.schema import DataType, StructType

__all__ = ["MAX_COLUMNS", "clustering_paths", "without_statistics"]

MAX_COLUMNS = 4
"""The highest number of clustering columns in the reference implementation."""


def clustering_paths(
    schema: StructType,
    chosen: Sequence[str | Sequence[str]],
    partition_columns: Sequence[str],
    properties: TableProperties,
    *,
    mode: str,
) -> tuple[SchemaPath, ...]:
    """The physical paths of columns that a user chooses to cluster a table by.

    Args:
        schema: the table's schema, with physical names if it has column mapping.
        chosen: the columns by their logical names: a text for a column of the table, a list of names for a
            column inside structs.
        partition_columns: the table's partition columns.
        properties: the table's properties.
        mode: the column mapping mode that is in force.

    Raises:
        InvalidArgumentError: the table is partitioned; the columns are no list, or are too many; or a
            column doesn't exist, is listed twice, or gets no statistics.
    """
    if isinstance(chosen, str) or not isinstance(chosen, Sequence):
        raise _refused(chosen, f"expected a list of columns, such as {[chosen]}", properties)
    if not all(map(_is_name, chosen)):
        raise _refused(chosen, "expected names of columns, or lists of names", properties)
    if partition_columns:
        problem = (
            f"the table is partitioned by {list(partition_columns)}; only one of the two can be"
        )
        raise _refused(chosen, problem, properties)
    if len(chosen) > MAX_COLUMNS:
        raise _refused(chosen, f"expected at most {MAX_COLUMNS} columns", properties)
    columns = [(name,) if isinstance(name, str) else tuple(name) for name in chosen]
    leaves = leaf_columns(schema)
    uncounted = without_statistics(columns, schema, properties)
    for number, path in enumerate(columns):
        name = ".".join(path)
        if path in columns[:number]:
            raise _refused(chosen, f"{name} is listed twice", properties)
        if path not in leaves:
            problem = f"{name} is no column of the table, or is a struct"
            raise _refused(
                chosen, f"{problem}; possible columns are {_list_columns(leaves)}", properties
            )
        if not has_bounds(leaves[path]):
            problem = (
                f"{name} is of the type {leaves[path]}, which has no least and greatest values"
            )
            raise _refused(chosen, problem, properties)
        if path in uncounted:
            problem = (
                f"{name} gets no statistics; move it forward, or change "
                "delta.dataSkippingNumIndexedCols or delta.dataSkippingStatsColumns"
            )
            raise _refused(chosen, problem, properties)
    physical = physical_paths(schema, mode)
    return tuple(physical[path] for path in columns)


def without_statistics(
    columns: Iterable[SchemaPath], schema: StructType, properties: TableProperties
) -> list[SchemaPath]:
    """The columns that get no statistics, by the table's properties.

    Args:
        columns: their logical paths.
        schema: the table's schema.
        properties: the table's properties.

    Raises:
        InvalidTableError: the properties that select columns for statistics can't be read.
    """
    counted = columns_with_statistics(leaf_columns(schema), properties)
    return [path for path in columns if path not in counted]


def _refused(chosen: object, problem: str, properties: TableProperties) -> InvalidArgumentError:
    return InvalidArgumentError(f"cluster_by={chosen!r}: {problem}", table=properties.table)


def _is_name(column: object) -> bool:
    parts = column if isinstance(column, (list, tuple)) else [column]
    return all(isinstance(part, str) for part in parts)


def _list_columns(leaves: Mapping[SchemaPath, DataType]) -> str:
    return ", ".join(".".join(path) for path, data_type in leaves.items() if has_bounds(data_type))
