"""Collect the places of rows as bitmaps, one for each file.

Each task makes bitmaps of its rows and sends these: at most a bit or so for each row, however many rows
there are. The driver joins those of a file, which may have been read by several tasks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from airflow_delta.spark.reader.snapshot_reader import LOCATION_FILE, LOCATION_ROW
from airflow_delta.spark.runtime.java_errors import storage_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["collect_rows"]

_SCHEMA = "file long, rows binary, num_rows long"


def collect_rows(rows: DataFrame, *, table: str) -> tuple[dict[int, BitMap64], int]:
    """Collect where rows are.

    Args:
        rows: the rows, with the columns `LOCATION_FILE` and `LOCATION_ROW` of
            `SnapshotReader.located_rows`.
        table: the table's location, for errors.

    Returns:
        The row indexes by the index of the file; and the number of rows, which is more than that of the
        indexes if a row came several times.

    Raises:
        StorageError: Spark can't read a file.
        PySparkException: Spark's other errors.
    """
    located = rows.select(LOCATION_FILE, LOCATION_ROW)
    with storage_errors(table, "read"):
        parts = located.mapInArrow(_bitmaps, _SCHEMA).toArrow()
    found: dict[int, BitMap64] = defaultdict(BitMap64)
    # A Python loop over the files that have such rows, some for each task that read a part of one.
    for file, data in zip(parts["file"].to_pylist(), parts["rows"].to_pylist(), strict=True):
        found[file] |= BitMap64.deserialize(data)
    return dict(found), sum(parts["num_rows"].to_pylist())


def _bitmaps(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task: the bitmaps of its rows."""
    found: dict[int, BitMap64] = defaultdict(BitMap64)
    counts: dict[int, int] = defaultdict(int)
    for batch in batches:
        files = batch.column(0).to_numpy(zero_copy_only=False)
        rows = batch.column(1).to_numpy(zero_copy_only=False)
        # Rows of one file are mostly together: a bitmap takes a run at a time.
        ends = [*(np.flatnonzero(np.diff(files)) + 1).tolist(), len(files)]
        start = 0
        for end in ends:
            if end > start:
                file = int(files[start])
                found[file].update(rows[start:end].tolist())
                counts[file] += end - start
            start = end
    if found:
        yield pa.record_batch(
            {
                "file": pa.array(list(found), pa.int64()),
                "rows": pa.array([rows.serialize() for rows in found.values()], pa.binary()),
                "num_rows": pa.array([counts[file] for file in found], pa.int64()),
            }
        )
