"""Find the columns of a predicate in a table's schema."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.features.column_mapping import physical_name
from airflow_delta.engine.features.schema_walk import SchemaPath
from airflow_delta.engine.model.schema import DOUBLE, FLOAT, DataType, StructType

__all__ = ["ScanColumn", "find_column"]

_TYPE_CHANGES = "delta.typeChanges"


@dataclass(frozen=True, slots=True)
class ScanColumn:
    """A column that a predicate names.

    Attributes:
        physical: its physical names from the top down, which partition values and statistics use
            (PROTOCOL.md, "Column Mapping").
        data_type: its type.
        statistics_type: the type that it may have had when statistics were written. It differs if type
            widening made doubles of floats.
        is_partition: whether it is a partition column.
    """

    physical: SchemaPath
    data_type: DataType
    statistics_type: DataType
    is_partition: bool


def find_column(
    path: SchemaPath,
    schema: StructType,
    *,
    partition_columns: Collection[str],
    mapping_mode: str,
    table: str,
) -> ScanColumn:
    """Find the column of a path of logical names.

    Raises:
        InvalidArgumentError: the table has no such column. Facts: column.
        InvalidTableError: the column lacks the physical name that the mode requires.
    """
    inside: DataType = schema
    changed = False
    physical: list[str] = []
    for name in path:
        field = inside.field(name) if isinstance(inside, StructType) else None
        if field is None:
            choice = ", ".join(inside.names) if isinstance(inside, StructType) else "none"
            raise InvalidArgumentError(
                f"the predicate names the column {'.'.join(path)!r}, which the table doesn't have: "
                f"no {name!r} among the columns {choice}; names are case-sensitive, and a column "
                "inside another is outer.inner in a text (a name with a dot in it is in backticks), and "
                'pyarrow.compute.field("outer", "inner") in an expression',
                table=table,
                column=".".join(path),
            )
        physical.append(physical_name(field, mapping_mode))
        inside = field.data_type
        changed = _TYPE_CHANGES in field.metadata
    is_partition = len(path) == 1 and path[0] in partition_columns
    statistics_type = FLOAT if changed and inside == DOUBLE else inside
    return ScanColumn(tuple(physical), inside, statistics_type, is_partition)
