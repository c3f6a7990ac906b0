"""Find the version that a table had at a time, for retention periods. It may be older than the log."""

from __future__ import annotations

from airflow_delta.engine.errors import TimestampOutOfRangeError
from airflow_delta.engine.snapshot.snapshot import Snapshot

__all__ = ["find_version_at"]


def find_version_at(snapshot: Snapshot, time_ms: int) -> int | None:
    """Find the newest version that existed at a time, by the commit times that time travel uses.

    Args:
        snapshot: the newest version.
        time_ms: epoch ms.

    Returns:
        The version; None if there was none yet, or if the log no longer has its commit.

    Raises:
        VersionNotFoundError: the file of the newest commit is gone, and with it its time.
        CorruptLogError: a commit lacks the in-commit timestamp that it must have.
    """
    if snapshot.timestamp_ms <= time_ms:
        return snapshot.version
    try:
        return snapshot.timeline.version_at(time_ms)
    except TimestampOutOfRangeError:
        return None
