"""Rows in the order of their sort keys, divided into new files.

The keys are those of the engine: the position of a row on a curve through the ranks of its values
(`airflow_delta.engine.maintenance.optimize.sorting`).

1. `divide_rows` samples the sort columns. The sample gives the ranks, and the bounds of the new files.
2. `sorted_rows` computes the file and the position of each row with one Arrow function, and sorts. Spark
   needs no sample of its own, so it reads the rows just twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.pandas.functions import arrow_udf

from airflow_delta.engine.arrow.numpy_arrays import int64_array, int64_view
from airflow_delta.engine.features.schema_walk import SchemaPath
from airflow_delta.engine.maintenance.optimize.sorting.keys import (
    NOISE_BITS,
    SAMPLE_ROWS,
    Keys,
    SortKeys,
)
from airflow_delta.engine.maintenance.optimize.sorting.text_ranks import MOST_BYTES
from airflow_delta.spark.reader.file_rows import FILE_ROW_INDEX, stored_column

__all__ = ["RowDivision", "divide_rows", "sorted_rows"]

_POSITION_BITS = 44
"""The low bits of the number that `RowDivision` computes: the position of the row in its file."""

_MOST_FILES = 1 << 15

_SPREAD = np.uint64(0x9E3779B97F4A7C15)
"""Fibonacci hashing: the high bits of a product with it are spread evenly."""


@dataclass(frozen=True, slots=True)
class RowDivision:
    """A division of rows into files, and their order in them.

    Attributes:
        keys: computes the sort keys.
        bounds: the lowest key of each file but the first.
    """

    keys: SortKeys
    bounds: Keys

    @property
    def num_files(self) -> int:
        """The number of files."""
        return len(self.bounds) + 1

    def numbers(self, columns: Sequence[pa.Array], row_indexes: pa.Array) -> pa.Array:
        """The number of each row: its file in the high bits, its position there in the low bits.

        Args:
            columns: the values of each sort column.
            row_indexes: the index of each row in its data file.
        """
        keys = self.keys.with_noise([_plain(values) for values in columns], _noise(row_indexes))
        files = np.searchsorted(self.bounds, keys, side="right").astype(np.int64)
        # The low bits of a key, which are dropped first, are its noise.
        positions = keys >> np.uint64(max(0, self.keys.bits - _POSITION_BITS))
        return int64_array((files << _POSITION_BITS) | positions.astype(np.int64))


def divide_rows(
    rows: DataFrame,
    paths: Sequence[SchemaPath],
    *,
    num_rows: int,
    num_files: int,
    is_hilbert: bool,
) -> RowDivision:
    """Decide by a sample how rows are divided and sorted.

    Args:
        rows: the rows, as of `SnapshotReader.file_rows`.
        paths: the physical paths of the sort columns.
        num_rows: about how many rows there are.
        num_files: how many files there should be.
        is_hilbert: see `SortKeys.of`.

    Raises:
        PySparkException: Spark's errors.
    """
    columns = [
        _shortened(column, rows.select(column).schema[0].dataType).alias(f"c{number}")
        for number, column in enumerate(_sort_columns(paths))
    ]
    chosen = rows
    if num_rows > SAMPLE_ROWS:
        chosen = rows.sample(SAMPLE_ROWS / num_rows, seed=num_rows)
    table = chosen.select(*columns).toArrow()
    sample = [_plain(column.combine_chunks()) for column in table.columns]
    keys = SortKeys.of(paths, sample, is_hilbert=is_hilbert)
    found = np.sort(keys.of_columns(sample, np.random.default_rng(num_rows)))
    files = max(1, min(num_files, _MOST_FILES, len(found)))
    return RowDivision(keys, found[np.arange(1, files) * len(found) // files])


def sorted_rows(
    rows: DataFrame, columns: Sequence[Column], division: RowDivision, *, key: str
) -> DataFrame:
    """Sort rows, with a partition for each new file.

    Args:
        rows: the rows, as of `SnapshotReader.file_rows`.
        columns: the columns of new files, over them.
        division: from `divide_rows`.
        key: a name that none of the columns has.
    """

    def _numbers(row_indexes: pa.Array, *values: pa.Array) -> pa.Array:
        return division.numbers(values, row_indexes)

    # PySpark's type hints lack the form in which the hints of the function say what kind it is.
    number = arrow_udf(_numbers, T.LongType())  # type: ignore[call-overload]
    sort_columns = _sort_columns(division.keys.paths)
    keyed = rows.select(*columns, number(F.col(FILE_ROW_INDEX), *sort_columns).alias(key))
    if division.num_files == 1:
        divided = keyed.coalesce(1)
    else:
        file = F.shiftright(key, _POSITION_BITS).cast("int")
        divided = keyed.repartitionById(division.num_files, file)
    return divided.sortWithinPartitions(key).drop(key)


def _sort_columns(paths: Sequence[SchemaPath]) -> list[Column]:
    """The sort columns over the rows of files; null where a struct around one is null."""
    found = []
    for path in paths:
        column = stored_column(path[0])
        for name in path[1:]:
            column = column.getField(name)
        found.append(column)
    return found


def _shortened(column: Column, data_type: T.DataType) -> Column:
    """Values of which a sample may keep many: of texts only the beginning, which alone counts."""
    if isinstance(data_type, (T.StringType, T.BinaryType)):
        return F.substring(column, 1, MOST_BYTES)
    return column


def _plain(values: pa.Array) -> pa.Array:
    """Values without the session's choice of large types for texts."""
    if pa.types.is_large_string(values.type):
        return values.cast(pa.string())
    if pa.types.is_large_binary(values.type):
        return values.cast(pa.binary())
    return values


def _noise(row_indexes: pa.Array) -> npt.NDArray[np.uint64]:
    """The noise of each key, which spreads rows with equal values over files.

    It isn't random: if Spark repeats a task, each row must go to the same file again.
    """
    spread = int64_view(row_indexes).astype(np.uint64) * _SPREAD
    return np.asarray(spread >> np.uint64(64 - NOISE_BITS), np.uint64)
