"""How far back the log of a table is to be kept: the cut-off of metadata cleanup.

PROTOCOL.md, "Metadata Cleanup", step 1:

* the cut-off is midnight UTC of the day that lies ``delta.logRetentionDuration`` back, so that a little
  more is kept than that;
* the cut-off commit is the newest one that isn't newer than the cut-off, by the times that time travel
  goes by: in-commit timestamps, or the times of files, made to ascend.

The log then begins at a checkpoint that isn't newer than that commit (`log_start`). Times of files ascend
from the oldest commit that is there, so taking the oldest ones may make later ones older than they were:
`would_keep_times` tells whether what is newer than the cut-off stays where it is in time (edge cases D5).
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
    """How far back a log is to be kept.

    Attributes:
        time_ms: the cut-off, in epoch ms.
        commit: the version of the cut-off commit; None where all commits are newer, or nothing is wanted
            to be cleaned up.
        reason: why there is no cut-off commit, as a sentence; None where there is one.
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
        """The cut-off, to be read by people."""
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
    """How far back the log of a table is to be kept.

    Args:
        snapshot: the newest version that the log has.
        now_ms: the time, in epoch ms.
        newest: the version whose properties count; None for the same.
        older_than_ms: how old commits must be to go, in ms; None: ``delta.logRetentionDuration``.
        force: clean up though ``delta.enableExpiredLogCleanup`` is false, and less old commits than the
            table's retention protects.

    Raises:
        RetentionError: the table's retention is longer than what is asked for, without ``force``.
        VersionNotFoundError: the file of the newest commit is gone, and with it its time.
        CorruptLogError: a commit should tell its time and doesn't.
        InvalidTableError: a property can't be read.
        StorageError: the store failed.
    """
    properties = (newest or snapshot).properties
    retention_ms = properties.log_retention_ms
    if older_than_ms is not None:
        if older_than_ms < retention_ms and not force:
            raise RetentionError(
                f"commits are to be deleted that are {duration_text(older_than_ms)} old, and the table "
                f"keeps them for {duration_text(retention_ms)} (delta.logRetentionDuration); wait longer, "
                "change the property, or say force=True",
                table=snapshot.table,
                older_than_ms=older_than_ms,
                retention_ms=retention_ms,
            )
        retention_ms = older_than_ms
    kept_ms = now_ms - retention_ms
    time_ms = kept_ms - kept_ms % DAY_MS
    if not (properties.enable_expired_log_cleanup or force):
        reason = (
            "the table isn't to be cleaned up: delta.enableExpiredLogCleanup is false; force=True does so "
            "all the same"
        )
        return CleanupCutoff(time_ms, None, reason)
    return find_cutoff_at(snapshot, time_ms)


def find_cutoff_at(snapshot: Snapshot, time_ms: int) -> CleanupCutoff:
    """The cut-off of a point in time, whatever the table's properties say.

    Args:
        snapshot: the newest version that the log has.
        time_ms: the cut-off, in epoch ms.

    Raises:
        DeltaError: see `choose_cutoff`.
    """
    commit = find_version_at(snapshot, time_ms)
    cutoff = CleanupCutoff(time_ms, commit)
    if commit is not None:
        return cutoff
    reason = (
        f"no commit that can be rebuilt is as old as {cutoff.time}, from when on commits are kept"
    )
    return CleanupCutoff(time_ms, None, reason)


def would_keep_times(snapshot: Snapshot, *, start: int, cutoff: int) -> bool:
    """Whether the versions after the cut-off commit keep their times when the log begins later.

    Args:
        snapshot: the newest version that the log has.
        start: the version that the log is to begin at.
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
    # The rule is a recurrence, as in the timeline; the versions are those between checkpoint and cut-off.
    for modified in commits.times[max(0, start - commits.first) : newer - commits.first + 1]:
        time = max(modified, time + 1)
    return time == timeline.timestamp_ms(newer)
