"""Which version a table had at a time, for retention periods, which may lie before all that is known."""

from __future__ import annotations

from airflow_delta.engine.errors import TimestampOutOfRangeError
from airflow_delta.engine.snapshot.snapshot import Snapshot

__all__ = ["version_by"]


def version_by(snapshot: Snapshot, time_ms: int) -> int | None:
    """The newest version that was there at a time, by the times that time travel goes by.

    Args:
        snapshot: the newest version.
        time_ms: epoch ms.

    Returns:
        The version; None if there was none, or none whose commit is still there.

    Raises:
        VersionNotFoundError: the file of the newest commit is gone, and with it its time.
        CorruptLogError: a commit should tell its time and doesn't.
    """
    if snapshot.timestamp_ms <= time_ms:
        return snapshot.version
    try:
        return snapshot.timeline.version_at(time_ms)
    except TimestampOutOfRangeError:
        return None
