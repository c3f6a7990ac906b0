"""Define the profile of a table's version: its columns, figures and JSON form.

A profile has figures of *leaf* columns; each field of a struct is a column, at any depth. Names are
as in a Spark expression, ``address.city``; only parts with a dot or a backtick are in backticks.

=============================================  ====================================================
type                                           figures beside ``nulls``
=============================================  ====================================================
whole numbers, ``float``, ``double``,          ``distinct``, ``min``, ``max``, ``mean``, ``stddev``;
``decimal``                                    of ``float`` and ``double`` also ``nans``
``string``                                     ``distinct``, ``min``, ``max``, ``min_length``,
                                               ``max_length`` (in characters)
``binary``                                     ``distinct``, ``min_length``, ``max_length`` (in bytes)
``boolean``, ``date``, ``timestamp``,          ``distinct``, ``min``, ``max``
``timestamp_ntz``
``array``, ``map``, ``variant``, ``void``      none: such values have no useful order
=============================================  ====================================================

The fields of a null struct are null. NaN counts as one value in ``distinct``, and is left out of
all other figures. A figure without any values is left out.

No PySpark here: the operator checks the columns before it starts Spark, which takes seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.features import statistics_columns
from airflow_delta.engine.model.schema import DataType, StructType

if TYPE_CHECKING:
    from airflow_delta.engine import Snapshot

__all__ = [
    "BY_SCAN",
    "BY_STATISTICS",
    "MOST_CHARACTERS",
    "ColumnProfile",
    "LeafColumn",
    "TableProfile",
    "Value",
    "checked_leaves",
    "count_partitions",
    "leaf_columns",
    "profile_by_statistics",
    "profile_report",
]

BY_STATISTICS = "statistics"
"""The rows were counted from the statistics in the log, without reading data files."""

BY_SCAN = "scan"
"""The rows were counted by reading them."""

MOST_CHARACTERS = 256
"""The length to which minimum and maximum texts are truncated."""

Value = bool | int | float | str
"""A value in JSON. Texts: exact decimals, dates and times in ISO-8601 (those of type ``timestamp`` in UTC,
with a ``Z``), and the numbers ``Infinity``, ``-Infinity`` and ``NaN``."""


@dataclass(frozen=True, slots=True)
class LeafColumn:
    """A column, or a field of structs, that isn't a struct itself.

    Attributes:
        name: its name in a profile.
        path: its name, after the names of the structs around it.
        data_type: its type.
    """

    name: str
    path: tuple[str, ...]
    data_type: DataType


@dataclass(frozen=True, slots=True)
class ColumnProfile:
    """The figures of a leaf column, or None; see the module.

    Attributes:
        name: the column's name.
        type: its type, as in the schema.
        nulls: the number of nulls.
        nans: the number of NaNs.
        distinct: the approximate number of distinct values; one in three is off by more than 5 %.
        min: the minimum; the first `MOST_CHARACTERS` characters of a text.
        max: the maximum, likewise.
        mean: the mean, in double precision.
        stddev: the sample standard deviation, in double precision.
        min_length: the length of the shortest value.
        max_length: the length of the longest value.
    """

    name: str
    type: str
    nulls: int
    nans: int | None = None
    distinct: int | None = None
    min: Value | None = None
    max: Value | None = None
    mean: Value | None = None
    stddev: Value | None = None
    min_length: int | None = None
    max_length: int | None = None


@dataclass(frozen=True, slots=True)
class TableProfile:
    """The profile of a version of a table.

    Attributes:
        version: the version.
        num_rows: the number of rows; with a predicate, of the selected ones.
        counted_by: `BY_STATISTICS` or `BY_SCAN`.
        num_files: the number of all data files, whatever the predicate.
        num_partitions: the number of all partitions with files; None without partition columns.
        columns: the figures of the requested columns, in the order of the schema.
    """

    version: int
    num_rows: int
    counted_by: str
    num_files: int
    num_partitions: int | None
    columns: tuple[ColumnProfile, ...] = ()


def leaf_columns(schema: StructType) -> tuple[LeafColumn, ...]:
    """All leaf columns of a schema, in its order."""
    leaves = statistics_columns.leaf_columns(schema)
    return tuple(LeafColumn(_name(path), path, kind) for path, kind in leaves.items())


def checked_leaves(
    columns: Sequence[str] | None, schema: StructType, *, table: str
) -> tuple[LeafColumn, ...]:
    """Find the leaf columns that a caller has requested.

    Args:
        columns: their names, or those of structs for all of their fields; None for all.
        schema: the table's.
        table: its location, for errors.

    Raises:
        InvalidArgumentError: there is no such column, or it isn't a list of names.
    """
    leaves = leaf_columns(schema)
    if columns is None:
        return leaves
    if isinstance(columns, str) or not all(isinstance(name, str) for name in columns):
        raise InvalidArgumentError(f"columns={columns!r}: expected a list of names", table=table)
    wanted = set(columns)
    chosen = tuple(leaf for leaf in leaves if wanted.intersection(_names_of(leaf)))
    unknown = sorted(wanted.difference(*map(_names_of, chosen)))
    if unknown:
        raise InvalidArgumentError(
            f"unknown columns {unknown}: the table has {', '.join(leaf.name for leaf in leaves)}",
            table=table,
        )
    return chosen


def count_partitions(snapshot: Snapshot) -> int | None:
    """Count the partitions with files; None without partition columns.

    Different texts of the same value count as one.

    Raises:
        InvalidTableError: a partition value isn't one of its column's type.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    from airflow_delta.engine.arrow.numpy_arrays import int64_view
    from airflow_delta.engine.arrow.python_arrays import scalar_of
    from airflow_delta.engine.features.column_mapping import mapping_mode, physical_name
    from airflow_delta.engine.model.partition_values import parse_partition_value

    names = snapshot.metadata.partition_columns
    if not names:
        return None
    mode = mapping_mode(snapshot.protocol, snapshot.metadata, table=snapshot.table)
    values = snapshot.files(columns=["partitionValues"])["partitionValues"].combine_chunks()
    codes = np.zeros(len(values), np.int64)
    for field in snapshot.schema:
        if field.name not in names:
            continue
        name = scalar_of(physical_name(field, mode), pa.string())
        texts = pc.map_lookup(values, name, "first")
        encoded = texts.dictionary_encode(null_encoding="encode")
        # A Python loop over distinct texts, of which there are few.
        numbers: dict[Any, int] = {}
        same = [
            numbers.setdefault(parse_partition_value(text, field.data_type), len(numbers))
            for text in encoded.dictionary.to_pylist()
        ]
        each = np.array(same, np.int64)[int64_view(encoded.indices.cast(pa.int64()))]
        # Renumbered after each column, so that the numbers stay small.
        codes = np.unique(codes * max(len(numbers), 1) + each, return_inverse=True)[1]
    return len(np.unique(codes))


def profile_by_statistics(snapshot: Snapshot) -> TableProfile | None:
    """Get the number of rows from the log; None if statistics are missing.

    Rows deleted by deletion vectors aren't counted.

    Raises:
        DeltaError: the log can't be read.
    """
    num_rows = snapshot.num_rows
    if num_rows is None:
        return None
    partitions = count_partitions(snapshot)
    return TableProfile(snapshot.version, num_rows, BY_STATISTICS, snapshot.num_files, partitions)


def profile_report(profile: TableProfile) -> dict[str, Any]:
    """Convert a profile to a JSON object, without the figures that are None."""
    names = [field.name for field in fields(ColumnProfile) if field.name != "name"]
    figures = {
        column.name: {name: value for name in names if (value := getattr(column, name)) is not None}
        for column in profile.columns
    }
    return {
        "version": profile.version,
        "num_rows": profile.num_rows,
        "counted_by": profile.counted_by,
        "num_files": profile.num_files,
        "num_partitions": profile.num_partitions,
        "columns": figures,
    }


def _name(path: Sequence[str]) -> str:
    quoted = (f"`{p.replace('`', '``')}`" if "." in p or "`" in p else p for p in path)
    return ".".join(quoted)


def _names_of(leaf: LeafColumn) -> list[str]:
    """The names that select a leaf column: its own, and those of the structs around it."""
    return [_name(leaf.path[:end]) for end in range(1, len(leaf.path) + 1)]
