"""Collect the locations of rows, as a bitmap for each file.

The locations are shuffled by file. Each task makes bitmaps of its files, and sends these to the driver:
they have about a bit for each row at most.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql import functions as F  # noqa: N812

from airflow_delta.spark.reader.snapshot_reader import LOCATION_FILE, LOCATION_ROW, OWN_PREFIX
from airflow_delta.spark.runtime.java_errors import storage_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["LocatedRows", "collect_groups", "collect_rows"]

_ONE = f"{OWN_PREFIX}one"
_SCHEMA = "group int, file long, rows binary, num_rows long"


@dataclass(frozen=True, slots=True)
class LocatedRows:
    """The locations of some rows.

    Attributes:
        rows: their indexes, by the index of the file.
        count: the number of rows. A row that occurs several times counts each time.
    """

    rows: Mapping[int, BitMap64] = field(default_factory=dict)
    count: int = 0

    @property
    def num_distinct(self) -> int:
        """The number of different rows."""
        return sum(map(len, self.rows.values()))


def collect_rows(rows: DataFrame, *, table: str) -> LocatedRows:
    """Collect the locations of rows; see `collect_groups`."""
    return collect_groups(rows.withColumn(_ONE, F.lit(0)), _ONE, table=table).get(0, LocatedRows())


def collect_groups(rows: DataFrame, group: str, *, table: str) -> dict[int, LocatedRows]:
    """Collect the locations of rows, by a number that each row has.

    Args:
        rows: the rows, with the columns `LOCATION_FILE` and `LOCATION_ROW` of
            `SnapshotReader.located_rows`.
        group: the column with the number, an ``int``.
        table: the table's location, for errors.

    Raises:
        StorageError: Spark can't read a file.
        PySparkException: Spark's other errors.
    """
    # Without the shuffle, each task that reads files would start a Python worker for the few rows it finds.
    # Spark may still cut a large file into several parts.
    located = rows.select(group, LOCATION_FILE, LOCATION_ROW).hint("rebalance", LOCATION_FILE)
    with storage_errors(table, "read"):
        parts = located.mapInArrow(_bitmaps, _SCHEMA).toArrow()
    found: dict[int, dict[int, BitMap64]] = defaultdict(lambda: defaultdict(BitMap64))
    counts: dict[int, int] = defaultdict(int)
    # A Python loop over the files that have such rows, once for each task that got a part of a file.
    for number, file, data, count in zip(
        *(parts[name].to_pylist() for name in parts.column_names), strict=True
    ):
        found[number][file] |= BitMap64.deserialize(data)
        counts[number] += count
    return {number: LocatedRows(dict(files), counts[number]) for number, files in found.items()}


def _bitmaps(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task: the bitmaps of its rows."""
    found: dict[tuple[int, int], BitMap64] = defaultdict(BitMap64)
    counts: dict[tuple[int, int], int] = defaultdict(int)
    for batch in batches:
        groups, files, rows = (column.to_numpy(zero_copy_only=False) for column in batch.columns)
        # Rows of one file are mostly together: a bitmap takes a run at a time.
        order = np.lexsort((files, groups))
        groups, files, rows = groups[order], files[order], rows[order]
        changes = (np.diff(files) != 0) | (np.diff(groups) != 0)
        ends = [*(np.flatnonzero(changes) + 1).tolist(), len(files)]
        start = 0
        for end in ends:
            if end > start:
                key = int(groups[start]), int(files[start])
                found[key].update(rows[start:end].tolist())
                counts[key] += end - start
            start = end
    if found:
        yield pa.record_batch(
            {
                "group": pa.array([group for group, _ in found], pa.int32()),
                "file": pa.array([file for _, file in found], pa.int64()),
                "rows": pa.array([rows.serialize() for rows in found.values()], pa.binary()),
                "num_rows": pa.array([counts[key] for key in found], pa.int64()),
            }
        )
