"""By which columns a table can be clustered: those that statistics are kept of.

Spec: PROTOCOL.md, "Clustered Table". As in the reference implementation a table has at most four
clustering columns, each of a type that has least and greatest values to skip files by, and among the
columns that get statistics at all (``delta.dataSkippingNumIndexedCols``,
``delta.dataSkippingStatsColumns``): a writer that doesn't know the table is clustered would leave
others out.
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
"""So many columns the reference implementation clusters by."""


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
        schema: the table's schema, mapped where it has column mapping.
        chosen: the columns by their logical names: a text for a column of the table, a list of names
            for one inside structs.
        partition_columns: the table's partition columns.
        properties: the table's properties.
        mode: the column mapping mode that is in force.

    Raises:
        InvalidArgumentError: the table is partitioned; the columns are no list, are too many, aren't
            there, are there twice, or have no statistics.
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
            problem = f"{name} is no column of the table, or holds others"
            raise _refused(
                chosen, f"{problem}; those to choose from are {_told(leaves)}", properties
            )
        if not has_bounds(leaves[path]):
            problem = (
                f"{name} is of the type {leaves[path]}, which has no least and greatest values"
            )
            raise _refused(chosen, problem, properties)
        if path in uncounted:
            problem = (
                f"no statistics are kept of {name}; move it forward, or change "
                "delta.dataSkippingNumIndexedCols or delta.dataSkippingStatsColumns"
            )
            raise _refused(chosen, problem, properties)
    physical = physical_paths(schema, mode)
    return tuple(physical[path] for path in columns)


def without_statistics(
    columns: Iterable[SchemaPath], schema: StructType, properties: TableProperties
) -> list[SchemaPath]:
    """Those of some columns that get no statistics by the table's properties.

    Args:
        columns: their logical paths.
        schema: the table's schema.
        properties: the table's properties.

    Raises:
        InvalidTableError: the properties that choose columns can't be read.
    """
    counted = columns_with_statistics(leaf_columns(schema), properties)
    return [path for path in columns if path not in counted]


def _refused(chosen: object, problem: str, properties: TableProperties) -> InvalidArgumentError:
    return InvalidArgumentError(f"cluster_by={chosen!r}: {problem}", table=properties.table)


def _is_name(column: object) -> bool:
    parts = column if isinstance(column, (list, tuple)) else [column]
    return all(isinstance(part, str) for part in parts)


def _told(leaves: Mapping[SchemaPath, DataType]) -> str:
    return ", ".join(".".join(path) for path, data_type in leaves.items() if has_bounds(data_type))
