"""Estimate the size of new files: encode some rows, and see how many bytes they take."""

from __future__ import annotations

import io
from collections.abc import Iterable

import pyarrow as pa

from airflow_delta.engine.data_files.file_writer import FileWriter
from airflow_delta.engine.maintenance.optimize.source_files import live_bytes
from airflow_delta.engine.maintenance.optimize.target import FileTarget

__all__ = ["count_files", "estimate_size"]

_TRIAL_BYTES = 16 << 20
"""The decoded bytes of the rows that are encoded."""


def estimate_size(
    target: FileTarget, sources: pa.Table, num_rows: int, rows: Iterable[pa.RecordBatch]
) -> int:
    """The bytes that the rows of a bin take in new files, about.

    Args:
        target: what new files look like.
        sources: the files of the bin.
        num_rows: how many rows they have.
        rows: the first rows, or all.
    """
    trial = FileWriter(io.BytesIO(), target.schema, compression=target.compression)
    left = _TRIAL_BYTES
    for batch in rows:
        trial.write(batch)
        left -= batch.nbytes
        if left <= 0:
            break
    if not trial.num_rows:
        return live_bytes(sources)
    trial.close()
    return trial.size * num_rows // trial.num_rows


def count_files(
    target: FileTarget, sources: pa.Table, num_rows: int, rows: Iterable[pa.RecordBatch]
) -> int:
    """The number of new files for the rows of a bin; see `estimate_size` for the arguments."""
    if live_bytes(sources) <= target.max_file_size // 2:
        return 1
    size = estimate_size(target, sources, num_rows, rows)
    return max(1, -(-size // target.max_file_size))
