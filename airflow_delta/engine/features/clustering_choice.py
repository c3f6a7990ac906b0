"""By which columns a table can be clustered: those that statistics are kept of.

Spec: PROTOCOL.md, "Clustered Table". As in the reference implementation a table has at most four
clustering columns, each of a type that has least and greatest values to skip files by, and among the
columns that get statistics at all (``delta.dataSkippingNumIndexedCols``,
``delta.dataSkippingStatsColumns``): a writer that doesn't know the table is clustered would leave
others out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.features.column_mapping import physical_paths
from airflow_delta.engine.features.schema_walk import SchemaPath
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.model.schema import (
    BINARY,
    BOOLEAN,
    VARIANT,
    VOID,
    ArrayType,
    DataType,
    MapType,
    StructType,
)
from airflow_delta.engine.model.sql_names import split_names

__all__ = ["MAX_COLUMNS", "clustering_paths"]

MAX_COLUMNS = 4
"""So many columns the reference implementation clusters by."""

_WITHOUT_BOUNDS: frozenset[DataType] = frozenset({BINARY, BOOLEAN, VARIANT, VOID})


def clustering_paths(
    schema: StructType,
    chosen: Sequence[str | Sequence[str]],
    partition_columns: Sequence[str],
    properties: TableProperties,
) -> tuple[SchemaPath, ...]:
    """The physical paths of columns that a user chooses to cluster a table by.

    Args:
        schema: the table's schema, mapped where it has column mapping.
        chosen: the columns by their logical names: a text for a column of the table, a list of names
            for one inside structs.
        partition_columns: the table's partition columns.
        properties: the table's properties.

    Raises:
        InvalidArgumentError: the table is partitioned; the columns are no list, are too many, aren't
            there, are there twice, or have no statistics.
    """
    if isinstance(chosen, str):
        raise _refused(chosen, f"expected a list of columns, such as {[chosen]}", properties)
    if not all(isinstance(column, (str, list, tuple)) for column in chosen):
        raise _refused(chosen, "expected names of columns, or lists of names", properties)
    if partition_columns:
        problem = (
            f"the table is partitioned by {list(partition_columns)}; only one of the two can be"
        )
        raise _refused(chosen, problem, properties)
    if len(chosen) > MAX_COLUMNS:
        raise _refused(chosen, f"expected at most {MAX_COLUMNS} columns", properties)
    columns = [(name,) if isinstance(name, str) else tuple(name) for name in chosen]
    leaves = dict(_leaves(schema))
    counted = _with_statistics(leaves, properties)
    for number, path in enumerate(columns):
        name = ".".join(path)
        if path in columns[:number]:
            raise _refused(chosen, f"{name} is listed twice", properties)
        if path not in leaves:
            problem = f"{name} is no column of the table, or holds others"
            raise _refused(
                chosen, f"{problem}; those to choose from are {_told(leaves)}", properties
            )
        if isinstance(leaves[path], (ArrayType, MapType)) or leaves[path] in _WITHOUT_BOUNDS:
            problem = (
                f"{name} is of the type {leaves[path]}, which has no least and greatest values"
            )
            raise _refused(chosen, problem, properties)
        if path not in counted:
            problem = (
                f"no statistics are kept of {name}; move it forward, or change "
                "delta.dataSkippingNumIndexedCols or delta.dataSkippingStatsColumns"
            )
            raise _refused(chosen, problem, properties)
    physical = physical_paths(schema, properties.column_mapping_mode)
    return tuple(physical[path] for path in columns)


def _refused(chosen: object, problem: str, properties: TableProperties) -> InvalidArgumentError:
    return InvalidArgumentError(f"cluster_by={chosen!r}: {problem}", table=properties.table)


def _leaves(struct: StructType, path: SchemaPath = ()) -> Iterator[tuple[SchemaPath, DataType]]:
    """The columns that hold values themselves, in order; arrays and maps count as such."""
    for field in struct:
        place = (*path, field.name)
        if isinstance(field.data_type, StructType):
            yield from _leaves(field.data_type, place)
        else:
            yield place, field.data_type


def _with_statistics(
    leaves: dict[SchemaPath, DataType], properties: TableProperties
) -> frozenset[SchemaPath]:
    listed = properties.data_skipping_stats_columns
    if listed is None:
        number = properties.data_skipping_num_indexed_cols
        return frozenset(list(leaves)[: None if number == -1 else number])
    names = [_lower(name) for name in split_names(listed)]
    return frozenset(
        path for path in leaves if any(_lower(path)[: len(name)] == name for name in names)
    )


def _lower(path: SchemaPath) -> SchemaPath:
    return tuple(name.lower() for name in path)


def _told(leaves: Iterable[SchemaPath]) -> str:
    return ", ".join(".".join(path) for path in leaves)
