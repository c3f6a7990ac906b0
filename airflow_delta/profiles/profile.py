"""What a profile of a table's version tells, of which columns, and its form in JSON.

A profile has the figures of *leaf* columns: the fields of a struct each for itself, at any depth. They are
called as in a Spark expression, ``address.city``; a part of the name with a dot or a backtick in it stands
in backticks, and no other does.

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
``array``, ``map``, ``variant``, ``void``      none: there is no order of such values that says much
=============================================  ====================================================

A field of a struct that is null is null. NaN is a value of its own to ``distinct``, and left out of all
other figures. Where there is no value left, there is no such figure.

No PySpark here: whoever submits the job looks at the columns first, because starting Spark takes seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from airflow_delta.engine.errors import InvalidArgumentError
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
"""Rows that were counted by the statistics of the log, without reading a data file."""

BY_SCAN = "scan"
"""Rows that were counted by reading them."""

MOST_CHARACTERS = 256
"""A text that is the least or the greatest is cut after so many characters."""

Value = bool | int | float | str
"""A value in JSON. Texts: exact decimals, dates and times in ISO-8601 (those of type ``timestamp`` in UTC,
with a ``Z``), and the numbers ``Infinity``, ``-Infinity`` and ``NaN``."""


@dataclass(frozen=True, slots=True)
class LeafColumn:
    """A column, or a field of structs, that has values of its own.

    Attributes:
        name: as the module has it.
        path: its name, below the names of the structs around it.
        data_type: its type.
    """

    name: str
    path: tuple[str, ...]
    data_type: DataType


@dataclass(frozen=True, slots=True)
class ColumnProfile:
    """The figures of a leaf column; those that it doesn't have are None. See the module.

    Attributes:
        name: the column's.
        type: its type, as the schema writes it.
        nulls: rows without a value.
        nans: values that are NaN.
        distinct: how many different values there are, about: one in three is off by more than 5 %.
        min: the least value; of a text the first `MOST_CHARACTERS` characters.
        max: the greatest one, likewise.
        mean: the mean, in double precision.
        stddev: the standard deviation of a sample, in double precision.
        min_length: the length of the shortest value.
        max_length: that of the longest one.
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
    """A version of a table in figures.

    Attributes:
        version: the version.
        num_rows: its rows; with a condition those of which it is true.
        counted_by: `BY_STATISTICS` or `BY_SCAN`.
        num_files: its data files, whatever the condition.
        num_partitions: how many partitions have files, whatever the condition; None without partition
            columns.
        columns: the figures of the columns that were asked for, in the order of the schema.
    """

    version: int
    num_rows: int
    counted_by: str
    num_files: int
    num_partitions: int | None
    columns: tuple[ColumnProfile, ...] = ()


def leaf_columns(schema: StructType) -> tuple[LeafColumn, ...]:
    """All leaf columns of a schema, in its order."""
    found: list[LeafColumn] = []

    def visit(struct: StructType, above: tuple[str, ...]) -> None:
        for field in struct:
            path = (*above, field.name)
            if isinstance(field.data_type, StructType):
                visit(field.data_type, path)
            else:
                found.append(LeafColumn(_name(path), path, field.data_type))

    visit(schema, ())
    return tuple(found)


def checked_leaves(
    columns: Sequence[str] | None, schema: StructType, *, table: str
) -> tuple[LeafColumn, ...]:
    """The leaf columns that a caller wants.

    Args:
        columns: their names, or those of structs for all that is in them; None for all.
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
    """How many partitions have files; None where the table has no partition columns.

    Values count as the same that mean the same, however they are written.

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
        # A loop over distinct texts, of which there are few.
        numbers: dict[Any, int] = {}
        same = [
            numbers.setdefault(parse_partition_value(text, field.data_type), len(numbers))
            for text in encoded.dictionary.to_pylist()
        ]
        each = np.array(same, np.int64)[int64_view(encoded.indices.cast(pa.int64()))]
        # Numbered anew column by column, so that the numbers stay small.
        codes = np.unique(codes * max(len(numbers), 1) + each, return_inverse=True)[1]
    return len(np.unique(codes))


def profile_by_statistics(snapshot: Snapshot) -> TableProfile | None:
    """The number of rows, by the log alone; None where the statistics don't tell it.

    Rows that deletion vectors delete aren't counted.

    Raises:
        DeltaError: the log can't be read.
    """
    num_rows = snapshot.num_rows
    if num_rows is None:
        return None
    partitions = count_partitions(snapshot)
    return TableProfile(snapshot.version, num_rows, BY_STATISTICS, snapshot.num_files, partitions)


def profile_report(profile: TableProfile) -> dict[str, Any]:
    """A profile as a JSON object; of the columns the figures that there are, by name."""
    told = [field.name for field in fields(ColumnProfile) if field.name != "name"]
    figures = {
        column.name: {name: value for name in told if (value := getattr(column, name)) is not None}
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
    """The names that a leaf column is meant by: its own, and those of the structs around it."""
    return [_name(leaf.path[:end]) for end in range(1, len(leaf.path) + 1)]
