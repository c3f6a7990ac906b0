"""Skip the row groups of a file that can't have matching rows, by the statistics in its footer.

The footer has the minimum, the maximum and the number of nulls of each column in each row group. They are
converted like the values of the column, so that both are compared in the table's type. Whatever is missing
or can't be converted keeps the row group, and so do bounds that bound nothing: NaN, and a minimum above the
maximum. Bounds don't apply to NaN, which most writers leave out of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.numpy_arrays import bool_array
from airflow_delta.engine.arrow.parquet.decimals import decimal_of
from airflow_delta.engine.arrow.python_arrays import array_of, scalar_of
from airflow_delta.engine.data_files.conversion import MismatchError, converter
from airflow_delta.engine.data_files.data_file import DataFile
from airflow_delta.engine.data_files.file_columns import FileColumn
from airflow_delta.engine.data_files.footer_bounds import has_usable_bounds
from airflow_delta.engine.data_files.hybrid_calendar import HybridCalendar, OldTimeError
from airflow_delta.engine.features.schema_walk import SchemaPath
from airflow_delta.engine.scan.bounds import Bounds
from airflow_delta.engine.scan.expressions import Node, useful_columns
from airflow_delta.engine.scan.masks import as_array
from airflow_delta.engine.scan.may_match import may_be

__all__ = ["RowGroupPruner", "bounds_in_table_type"]


class RowGroupPruner:
    """Finds the row groups that may have rows for which a predicate is true.

    Args:
        root: the predicate, over the logical columns of the table.
    """

    def __init__(self, root: Node) -> None:
        self._root = root
        self._paths = sorted(useful_columns(self._root))

    def kept(self, file: DataFile, columns: Iterable[FileColumn]) -> list[int]:
        """The numbers of the row groups of a file that may have matching rows.

        Args:
            file: the file.
            columns: its columns.

        Raises:
            DataFileError: the footer is damaged.
        """
        footer = file.footer
        bounds: dict[SchemaPath, Bounds] = {}
        with file.errors():
            groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
            by_name = {column.field.name: column for column in columns}
            leaves = _leaves(footer)
            for path in self._paths:
                known = None
                if path[0] in by_name:
                    known = _bounds(path, by_name[path[0]], groups, leaves, file)
                if known is not None:
                    bounds[path] = known
        kept = as_array(may_be(True, self._root, bounds), len(groups))
        numbers: list[int] = pc.indices_nonzero(kept).to_pylist()
        return numbers


def _leaves(footer: Any) -> dict[str, int]:
    """The indexes of the leaves by their dotted path, without those whose path isn't unique."""
    paths = [footer.schema.column(index).path for index in range(len(footer.schema))]
    counts = Counter(paths)
    return {path: index for index, path in enumerate(paths) if counts[path] == 1}


def _bounds(
    path: SchemaPath,
    column: FileColumn,
    groups: Sequence[Any],
    leaves: Mapping[str, int],
    file: DataFile,
) -> Bounds | None:
    if column.stored is None:
        nothing = pa.nulls(len(groups), column.field.type)
        return Bounds(nothing, nothing, has_value=False) if len(path) == 1 else None
    if len(path) > 1 or pa.types.is_nested(column.field.type):
        return None
    index = leaves.get(column.stored)
    if index is None:
        return None
    chunks = [group.column(index) for group in groups]
    stored = file.schema.field(column.stored).type
    is_ordered = has_usable_bounds(file.footer, index)
    raw = [
        (chunk.statistics.min_raw, chunk.statistics.max_raw)
        if is_ordered and chunk.statistics is not None and chunk.statistics.has_min_max
        else (None, None)
        for chunk in chunks
    ]
    minimum, maximum = bounds_in_table_type(raw, stored, column.field.type, file.calendar)
    nulls = [_null_count(chunk) for chunk in chunks]
    return Bounds(
        minimum,
        maximum,
        has_value=_mask(n != chunk.num_values for n, chunk in zip(nulls, chunks, strict=True)),
        has_null=_mask(n != 0 for n in nulls),
        has_nan=pa.types.is_floating(column.field.type),
    )


def _null_count(chunk: Any) -> int | None:
    statistics = chunk.statistics
    if statistics is None or not statistics.has_null_count:
        return None
    return int(statistics.null_count)


def _mask(flags: Iterable[bool]) -> pa.Array:
    return bool_array(np.fromiter(flags, np.bool_))


def bounds_in_table_type(
    raw: Sequence[tuple[Any, Any]],
    stored: pa.DataType,
    wanted: pa.DataType,
    calendar: HybridCalendar | None,
) -> tuple[pa.Array | None, pa.Array | None]:
    """Convert the least and greatest values of row groups or pages to the table's type.

    Args:
        raw: the physical values, least and greatest; None where they are unknown.
        stored: the type in the file.
        wanted: the type in the table.
        calendar: the calendar of the file.

    Returns:
        The least and the greatest values, null where one is unknown or NaN, or the least is above the
        greatest; None if they can't be converted.
    """
    read = _reader(stored)
    if read is None:
        return None, None
    try:
        conversion = converter(stored, wanted, lambda _stored, _wanted: {}, calendar)
        low, high = (read([pair[side] for pair in raw]) for side in (0, 1))
        if conversion is not None:
            low, high = conversion(low), conversion(high)
        # False for NaN, which some writers have taken for a bound.
        bound_something = pc.less_equal(low, high)
        unknown = scalar_of(None, low.type)
        low, high = (pc.if_else(bound_something, each, unknown) for each in (low, high))
    except (
        pa.ArrowException,
        MismatchError,
        OldTimeError,
        ValueError,
        OverflowError,
        TypeError,
    ):
        # A value that the column can't have: the rows will show whether the file is damaged.
        return None, None
    return low, high


def _reader(stored: pa.DataType) -> Callable[[list[Any]], pa.Array] | None:
    """A function that makes an array of a column's type of physical values; None if there is none."""
    types = pa.types
    if types.is_decimal(stored):
        return lambda raw: pa.array(
            [None if value is None else decimal_of(value, stored.scale) for value in raw], stored
        )
    if types.is_string(stored) or types.is_large_string(stored):
        return lambda raw: array_of(raw, pa.binary()).cast(pa.string()).cast(stored)
    if types.is_timestamp(stored):
        return lambda raw: array_of(raw, pa.int64()).view(stored)
    if types.is_date32(stored):
        return lambda raw: array_of(raw, pa.int32()).view(stored)
    if types.is_boolean(stored):
        return lambda raw: array_of(raw, stored)
    if types.is_signed_integer(stored):
        return lambda raw: array_of(raw, pa.int64()).cast(stored)
    if types.is_float32(stored) or types.is_float64(stored):
        return lambda raw: array_of(raw, pa.float64()).cast(stored)
    if types.is_integer(stored) or types.is_floating(stored):
        return lambda raw: pa.array(raw, stored)
    return None
