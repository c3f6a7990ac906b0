"""When a tombstone has expired.

PROTOCOL.md, "Add File and Remove File": a ``remove`` stays in the state of the table, as a tombstone,
until the retention of removed files (``delta.deletedFileRetentionDuration``) has passed since its
``deletionTimestamp``. One without a timestamp was deleted at 0, which is long ago.

An expired remove is left out of checkpoints, and overrides what it removed all the same.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.python_arrays import scalar_of

__all__ = ["deletion_times", "expired", "unexpired"]


def deletion_times(removes: pa.Table) -> pa.ChunkedArray:
    """When each file was deleted, in epoch ms.

    Args:
        removes: with at least ``deletionTimestamp``.
    """
    return pc.coalesce(removes["deletionTimestamp"], scalar_of(0, pa.int64()))


def expired(removes: pa.Table, oldest_ms: int) -> pa.ChunkedArray:
    """Which removes have expired, without nulls.

    Args:
        removes: with at least ``deletionTimestamp``.
        oldest_ms: the retention before now, in epoch ms; what was deleted then or before has expired.
    """
    return pc.less_equal(deletion_times(removes), scalar_of(oldest_ms, pa.int64()))


def unexpired(removes: pa.Table, oldest_ms: int) -> pa.Table:
    """The removes that haven't expired; see `expired`."""
    return removes.filter(pc.invert(expired(removes, oldest_ms)))
