"""Measure the log, to decide whether Spark writes a checkpoint.

Airflow's workers import this module, so it needs no PySpark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_delta.engine.errors import VersionNotFoundError
from airflow_delta.engine.log.segment import load_segment
from airflow_delta.engine.maintenance.backfill.backfilled import open_backfilled

if TYPE_CHECKING:
    from airflow_delta.engine.storage.base import Storage

__all__ = ["SPARK_THRESHOLD_BYTES", "measure_log"]

SPARK_THRESHOLD_BYTES = 2 << 30
"""The size of log, by `measure_log`, from which on Spark writes a checkpoint by default.

The local engine's memory is bounded, so this is about time. It reads some hundred megabytes of JSON a
second, and needs less than half a minute up to this size; Spark has to start first, and reads the log
twice. With one core, or a slow store, a lower threshold may be right.
"""


def measure_log(storage: Storage, *, version: int | None = None) -> int:
    """Measure, by the listing, how many bytes of log a checkpoint of a version is made from.

    That is the checkpoint before it, and the commits since. Sidecars aren't counted, because they are
    reused.

    Args:
        storage: the table's storage.
        version: the version; None for the newest.

    Raises:
        TableNotFoundError: there is no table.
        VersionNotFoundError: the log can't rebuild the version.
        NotBackfilledError: the version of a managed table isn't backfilled.
        CorruptLogError: the log has a gap.
        StorageError: the store failed.
    """
    try:
        segment = load_segment(storage, version=version)
    except VersionNotFoundError:
        # Raises `NotBackfilledError` if the version isn't backfilled.
        segment = open_backfilled(storage, version).segment
    checkpoint = 0 if segment.checkpoint is None else segment.checkpoint.size
    return checkpoint + sum(file.size for file in segment.plan())
