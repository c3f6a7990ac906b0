"""The expiry of tombstones.

PROTOCOL.md, "Add File and Remove File": a ``remove`` stays in the state of the table, as a
tombstone, until the retention of removed files (``delta.deletedFileRetentionDuration``) has passed
since its ``deletionTimestamp``. A remove without a timestamp has the timestamp 0, so it has
expired.

Checkpoints leave out an expired remove, but it still cancels the file's earlier adds.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.python_arrays import scalar_of

__all__ = ["deletion_times", "expired", "unexpired"]


def deletion_times(removes: pa.Table) -> pa.ChunkedArray:
    """The time at which each file was deleted, in epoch ms.

    Args:
        removes: with at least ``deletionTimestamp``.
    """
    return pc.coalesce(removes["deletionTimestamp"], scalar_of(0, pa.int64()))


def expired(removes: pa.Table, oldest_ms: int) -> pa.ChunkedArray:
    """Whether each remove has expired, without nulls.

    Args:
        removes: with at least ``deletionTimestamp``.
        oldest_ms: now minus the retention, in epoch ms. Files deleted then or before have expired.
    """
    return pc.less_equal(deletion_times(removes), scalar_of(oldest_ms, pa.int64()))


def unexpired(removes: pa.Table, oldest_ms: int) -> pa.Table:
    """The removes that haven't expired; see `expired`."""
    return removes.filter(pc.invert(expired(removes, oldest_ms)))
