"""When Spark is to write a checkpoint.

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
"""From so many bytes of log on, `measure_log`, Spark is worth its start and its second reading.

The local engine's memory has a bound, so this is a matter of time: it reads some hundred megabytes of
JSON a second, so that it takes a larger log less than half a minute. Where one core in the worker is
all there is, or the store is slow, a lower threshold may be right.
"""


def measure_log(storage: Storage, *, version: int | None = None) -> int:
    """How much of the log a checkpoint of a version is made from, as its listing tells.

    That is the checkpoint before it, and the commits since. Of a checkpoint with sidecars only the top
    level counts: sidecars are used again.

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
        # Rare, and worth a second look, by which one that isn't backfilled is told as such.
        segment = open_backfilled(storage, version).segment
    checkpoint = 0 if segment.checkpoint is None else segment.checkpoint.size
    return checkpoint + sum(file.size for file in segment.plan())
