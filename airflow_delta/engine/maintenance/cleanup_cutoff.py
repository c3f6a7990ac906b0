"""How far back the log of a table is to be kept: what metadata cleanup may take, and what it must keep.

PROTOCOL.md, "Metadata Cleanup", steps 1 and 2:

* the cut-off is midnight UTC of the day that lies ``delta.logRetentionDuration`` back, so that a little
  more is kept than that;
* the cut-off commit is the newest one that isn't newer than the cut-off, by the times that time travel
  goes by;
* the cut-off checkpoint is the newest complete one that isn't newer than that commit. It is kept, with all
  commits after it: from it the versions are rebuilt that the retention is about. Where there is none,
  everything is kept (managed-commits.md, "Metadata Cleanup").
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from airflow_delta.engine.errors import TimestampOutOfRangeError
from airflow_delta.engine.log.listing import list_log
from airflow_delta.engine.snapshot.snapshot import Snapshot

__all__ = ["CleanupCutoff", "cleanup_cutoff"]

_DAY_MS = 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class CleanupCutoff:
    """How far back a log is to be kept.

    Attributes:
        time_ms: the cut-off, in epoch ms.
        commit: the version of the cut-off commit; None where all commits are newer, or nothing is wanted
            to be cleaned up.
        checkpoint: the version of the cut-off checkpoint; None where there is none.
        reason: why nothing may be taken, as a sentence; None where something may.
    """

    time_ms: int
    commit: int | None
    checkpoint: int | None
    reason: str | None = None


def cleanup_cutoff(snapshot: Snapshot, *, now_ms: int) -> CleanupCutoff:
    """How far back the log of a table is to be kept.

    Args:
        snapshot: the newest version that the log has.
        now_ms: the time, in epoch ms.

    Raises:
        VersionNotFoundError: the file of the newest commit is gone, and with it its time.
        CorruptLogError: a commit should tell its time and doesn't.
        InvalidTableError: a property can't be read.
        StorageError: the store failed.
    """
    properties = snapshot.properties
    kept_ms = now_ms - properties.log_retention_ms
    time_ms = kept_ms - kept_ms % _DAY_MS
    if not properties.enable_expired_log_cleanup:
        reason = "the table isn't to be cleaned up: delta.enableExpiredLogCleanup is false"
        return CleanupCutoff(time_ms, None, None, reason)
    commit = _newest_by(snapshot, time_ms)
    if commit is None:
        reason = f"no commit is as old as {_text(time_ms)} (delta.logRetentionDuration)"
        return CleanupCutoff(time_ms, None, None, reason)
    listing = list_log(snapshot.state.storage, end=commit)
    checkpoint = listing.best_checkpoint(commit, ())
    if checkpoint is None:
        reason = (
            f"there is no complete checkpoint of version {commit}, the newest from before "
            f"{_text(time_ms)} (delta.logRetentionDuration), or an older one; with none to begin with, all "
            "commits are needed"
        )
        return CleanupCutoff(time_ms, commit, None, reason)
    return CleanupCutoff(time_ms, commit, checkpoint.version)


def _newest_by(snapshot: Snapshot, time_ms: int) -> int | None:
    """The newest version that was there at a time; None if none was."""
    if snapshot.timestamp_ms <= time_ms:
        return snapshot.version
    try:
        return snapshot.timeline.version_at(time_ms)
    except TimestampOutOfRangeError:
        return None


def _text(time_ms: int) -> str:
    moment = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=time_ms)
    return moment.strftime("%Y-%m-%d %H:%M UTC")
