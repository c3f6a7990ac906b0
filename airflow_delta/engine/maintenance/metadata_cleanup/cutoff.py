"""Choose how far back the log of a table is kept: the cut-off of metadata cleanup.

PROTOCOL.md, "Metadata Cleanup", step 1:

* The cut-off is midnight UTC of the day that lies ``delta.logRetentionDuration`` back. So a little more is
  kept than that.
* The cut-off commit is the newest one that isn't newer than the cut-off, by the times that time travel
  uses: in-commit timestamps, or file times, adjusted so that they ascend.

The log then begins at a checkpoint that isn't newer than that commit (``log_start.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from airflow_delta.engine.errors import RetentionError
from airflow_delta.engine.features.in_commit_timestamps import TimestampSource, timestamp_source
from airflow_delta.engine.maintenance.table_files.past_versions import find_version_at
from airflow_delta.engine.model.times import duration_text, utc_datetime, utc_text
from airflow_delta.engine.snapshot.snapshot import Snapshot

__all__ = ["DAY_MS", "CleanupCutoff", "choose_cutoff", "find_cutoff_at", "would_keep_times"]

DAY_MS = 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class CleanupCutoff:
    """The cut-off of a metadata cleanup: the log is kept from there on.

    Attributes:
        time_ms: the cut-off, in epoch ms.
        commit: the version of the cut-off commit; None if all commits are newer, or cleanups are disabled.
        reason: why there is no cut-off commit, as a sentence; None if there is one.
    """

    time_ms: int
    commit: int | None
    reason: str | None = None

    @property
    def timestamp(self) -> datetime | None:
        """The cut-off, in UTC; None where it is before the year 1."""
        return utc_datetime(self.time_ms)

    @property
    def time(self) -> str:
        """The cut-off, as text for people."""
        moment = utc_datetime(self.time_ms)
        return "a time before the year 1" if moment is None else utc_text(self.time_ms)


def choose_cutoff(
    snapshot: Snapshot,
    *,
    now_ms: int,
    newest: Snapshot | None = None,
    older_than_ms: int | None = None,
    force: bool = False,
) -> CleanupCutoff:
    """Choose how far back the log of a table is kept.

    Args:
        snapshot: the newest version in the log.
        now_ms: the time, in epoch ms.
        newest: the version whose properties count; None for the same.
        older_than_ms: how old commits must be to be deleted, in ms; None: ``delta.logRetentionDuration``.
        force: clean up even if ``delta.enableExpiredLogCleanup`` is false, and allow less than the table's
            retention.

    Raises:
        RetentionError: the table's retention is longer than ``older_than_ms``, without ``force``.
        VersionNotFoundError: the file of the newest commit is gone, and with it its time.
        CorruptLogError: a commit lacks the in-commit timestamp that it must have.
        InvalidTableError: a property can't be read.
        StorageError: the store failed.
    """
    properties = (newest or snapshot).properties
    retention_ms = properties.log_retention_ms
    if older_than_ms is not None:
        if older_than_ms < retention_ms and not force:
            raise RetentionError(
                f"commits older than {duration_text(older_than_ms)} are to be deleted, but the table keeps "
                f"them for {duration_text(retention_ms)} (delta.logRetentionDuration); choose a longer "
                "time, change the property, or set force=True",
                table=snapshot.table,
                older_than_ms=older_than_ms,
                retention_ms=retention_ms,
            )
        retention_ms = older_than_ms
    kept_ms = now_ms - retention_ms
    time_ms = kept_ms - kept_ms % DAY_MS
    if not (properties.enable_expired_log_cleanup or force):
        reason = (
            "cleanups of the table are disabled: delta.enableExpiredLogCleanup is false; force=True cleans "
            "it up anyway"
        )
        return CleanupCutoff(time_ms, None, reason)
    return find_cutoff_at(snapshot, time_ms)


def find_cutoff_at(snapshot: Snapshot, time_ms: int) -> CleanupCutoff:
    """Return the cut-off for a point in time, regardless of the table's properties.

    Args:
        snapshot: the newest version in the log.
        time_ms: the cut-off, in epoch ms.

    Raises:
        DeltaError: see `choose_cutoff`.
    """
    commit = find_version_at(snapshot, time_ms)
    cutoff = CleanupCutoff(time_ms, commit)
    if commit is not None:
        return cutoff
    reason = f"all commits that can be rebuilt are newer than {cutoff.time}, the cut-off"
    return CleanupCutoff(time_ms, None, reason)


def would_keep_times(snapshot: Snapshot, *, start: int, cutoff: int) -> bool:
    """Whether the versions after the cut-off commit keep their times if the log begins later.

    File times are adjusted to ascend from the oldest commit in the log. Without the oldest commits, later
    ones may seem older than before.

    Args:
        snapshot: the newest version in the log.
        start: the version that the log would begin at.
        cutoff: the version of the cut-off commit, which isn't below it.

    Raises:
        DeltaError: see `choose_cutoff`.
    """
    newer, timeline = cutoff + 1, snapshot.timeline
    if newer > snapshot.version:
        return True
    source = timestamp_source(newer, snapshot.protocol, snapshot.metadata, table=snapshot.table)
    if source is TimestampSource.COMMIT_INFO:
        return True
    commits, time = timeline.commits, -1
    # A loop, because each time depends on the one before; from the checkpoint to the cut-off.
    for modified in commits.times[max(0, start - commits.first) : newer - commits.first + 1]:
        time = max(modified, time + 1)
    return time == timeline.timestamp_ms(newer)
