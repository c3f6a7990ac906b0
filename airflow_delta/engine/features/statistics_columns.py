"""Decide which columns get statistics, by the table's properties.

``delta.dataSkippingStatsColumns`` lists the columns by their logical names; the case doesn't matter. A
struct in the list stands for all columns inside it. Without the list, the first
``delta.dataSkippingNumIndexedCols`` columns get statistics.

The specification leaves statistics to writers. The rules for the list are those of the reference
implementation, which refuses any change of a table whose list breaks them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from airflow_delta.engine.errors import InvalidArgumentError
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

__all__ = [
    "STATISTICS_COLUMNS",
    "check_statistics_columns",
    "columns_with_statistics",
    "has_bounds",
    "leaf_columns",
]

STATISTICS_COLUMNS = "delta.dataSkippingStatsColumns"
"""The property that lists the columns."""

_WITHOUT_BOUNDS: frozenset[DataType] = frozenset({BINARY, BOOLEAN, VARIANT, VOID})


def has_bounds(data_type: DataType) -> bool:
    """Whether files can be skipped by the least and greatest values of columns of a type."""
    return not isinstance(data_type, (ArrayType, MapType)) and data_type not in _WITHOUT_BOUNDS


def leaf_columns(schema: StructType) -> Mapping[SchemaPath, DataType]:
    """The columns that aren't structs, at any depth inside structs, in order."""
    return dict(_leaves(schema, ()))


def columns_with_statistics(
    leaves: Mapping[SchemaPath, DataType], properties: TableProperties
) -> frozenset[SchemaPath]:
    """The columns that get statistics.

    Args:
        leaves: the table's columns from `leaf_columns`, with logical names.
        properties: the table's properties.

    Raises:
        InvalidTableError: one of the two properties is malformed.
    """
    listed = properties.data_skipping_stats_columns
    if listed is None:
        number = properties.data_skipping_num_indexed_cols
        return frozenset([*leaves][: None if number == -1 else number])
    return frozenset(path for name in listed for path in _inside(name, leaves))


def check_statistics_columns(
    schema: StructType, partition_columns: Sequence[str], properties: TableProperties
) -> None:
    """Check that the list of columns, if there is one, only names columns that can have statistics.

    Args:
        schema: the table's schema, with logical names.
        partition_columns: the table's partition columns.
        properties: the table's properties.

    Raises:
        InvalidArgumentError: a column doesn't exist, is listed twice, is a partition column, or has (or
            contains a column of) a type without least and greatest values.
        InvalidTableError: the property isn't a list of names.
    """
    leaves = leaf_columns(schema)
    seen: set[SchemaPath] = set()
    for name in properties.data_skipping_stats_columns or ():
        inside = _inside(name, leaves)
        text = ".".join(name)
        if not inside:
            known = ", ".join(map(".".join, leaves))
            problem = f"{text!r} is no column of the table; possible columns are {known}"
        elif any(path[0] in partition_columns for path in inside):
            problem = f"{text!r} is a partition column, which has no values in files"
        elif unfit := [path for path in inside if not has_bounds(leaves[path])]:
            problem = (
                f"{'.'.join(unfit[0])!r} is of the type {leaves[unfit[0]]}, which has no least and "
                "greatest values"
            )
        elif not seen.isdisjoint(inside):
            problem = f"{text!r} is listed twice"
        else:
            seen.update(inside)
            continue
        raise InvalidArgumentError(
            f"the property {STATISTICS_COLUMNS} is {properties.raw[STATISTICS_COLUMNS]!r}: {problem}",
            table=properties.table,
            property=STATISTICS_COLUMNS,
        )


def _inside(name: SchemaPath, leaves: Mapping[SchemaPath, DataType]) -> list[SchemaPath]:
    """The columns that a listed name stands for."""
    prefix = _lower(name)
    return [path for path in leaves if _lower(path[: len(prefix)]) == prefix]


def _leaves(struct: StructType, path: SchemaPath) -> Iterator[tuple[SchemaPath, DataType]]:
    for field in struct:
        inner = (*path, field.name)
        if isinstance(field.data_type, StructType):
            yield from _leaves(field.data_type, inner)
        else:
            yield inner, field.data_type


def _lower(path: SchemaPath) -> SchemaPath:
    return tuple(name.lower() for name in path)
