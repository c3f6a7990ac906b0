"""What the commits of a log tell a vacuum: which files were removed, when, and by which version.

The state of a table doesn't tell the version that removed a file, and forgets tombstones that have
expired. Commits tell both, as long as their files are there. They are read some megabytes at a time; few at
first, for whoever goes back in time mostly finds soon what he looks for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from airflow_delta.engine.arrow.json.reader import ParsedCommits
from airflow_delta.engine.errors import RetentionError, TableStateError
from airflow_delta.engine.log.files import LogCommit
from airflow_delta.engine.maintenance.table_files.past_versions import version_by
from airflow_delta.engine.model.times import utc_text
from airflow_delta.engine.replay.tombstones import unexpired
from airflow_delta.engine.snapshot.segment_commits import parse_commit_files
from airflow_delta.engine.snapshot.snapshot import Snapshot

__all__ = ["REMOVED", "read_commits", "removed_since"]

REMOVED = ("path", "size", "deletionTimestamp", "deletionVector")
"""The columns of removes that are read."""

_FIRST_RUN_BYTES = 1 << 18
_RUN_BYTES = 32 << 20


def read_commits(
    snapshot: Snapshot, versions: range, *, newest_first: bool = False
) -> Iterator[tuple[int, ParsedCommits]]:
    """What commits say, some of them at a time: the removes with `REMOVED`, and the non-file actions.

    Args:
        snapshot: a version at or after these.
        versions: whose commits to read; those that cleanup has taken are passed over.
        newest_first: begin with the newest; within what comes at a time all is in log order.

    Yields:
        The first version of those that come at a time, and what they say.

    Raises:
        ObjectNotFoundError: a commit vanished since the log was listed.
        CorruptLogError: a commit breaks the protocol.
    """
    commits = snapshot.timeline.commits
    end = min(versions.stop - commits.first, len(commits))
    places = range(max(versions.start - commits.first, 0), max(end, 0))
    found = (commits[place] for place in (reversed(places) if newest_first else places))
    for run in _runs(found):
        ordered = run[::-1] if newest_first else run
        told = parse_commit_files(snapshot.storage, ordered, columns=REMOVED, table=snapshot.table)
        yield ordered[0].version, told


def removed_since(snapshot: Snapshot, time_ms: int, *, all_needed: bool = True) -> list[pa.Table]:
    """The removes of files that were removed at a time or later, told by commits behind a checkpoint.

    A checkpoint needn't have those that are older than ``delta.deletedFileRetentionDuration``, as it was
    when the checkpoint was made: where the property was raised since, tombstones may be missing that it
    protects now. The commits after the checkpoint are part of the state, and aren't read.

    Args:
        snapshot: the newest version.
        time_ms: epoch ms.
        all_needed: refuse where cleanup has taken one of the commits; else those are read that are there.

    Raises:
        RetentionError: cleanup has taken a commit that may have one, and all are needed.
        DeltaError: see `version_by` and `read_commits`.
    """
    try:
        by = version_by(snapshot, time_ms)
    except TableStateError:
        # The times of commits can't be told, so that all of them may be as young as that.
        if all_needed:
            raise
        by = None
    commits = snapshot.timeline.commits
    first = commits.first if commits else snapshot.version + 1
    if all_needed and first and (by is None or by + 1 < first):
        raise RetentionError(
            f"files that were removed since {utc_text(time_ms)} can't be protected: checkpoints don't keep "
            "tombstones longer than delta.deletedFileRetentionDuration, and the commits before version "
            f"{first} are gone; ask for a shorter retention, and set that property for the future",
            table=snapshot.table,
        )
    versions = range(0 if by is None else by + 1, _forgetful_until(snapshot) + 1)
    found = read_commits(snapshot, versions) if versions else ()
    return [unexpired(commits.files.removes, time_ms - 1) for _, commits in found]


def _forgetful_until(snapshot: Snapshot) -> int:
    """The last version whose tombstones the state needn't have all; -1 where it has."""
    segment = snapshot.segment
    if segment.compactions:
        return max(compaction.end for compaction in segment.compactions)
    return -1 if segment.checkpoint is None else segment.checkpoint.version


def _runs(commits: Iterable[LogCommit]) -> Iterator[list[LogCommit]]:
    run: list[LogCommit] = []
    size, enough = 0, _FIRST_RUN_BYTES
    for commit in commits:
        run.append(commit)
        size += commit.size
        if size >= min(enough, _RUN_BYTES):
            yield run
            run, size, enough = [], 0, 4 * enough
    if run:
        yield run
