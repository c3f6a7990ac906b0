"""Read from commits which files were removed, when, and by which version.

The state of a table doesn't say which version removed a file, and drops tombstones that have expired. The
commits say both, as long as their files exist. `read_commits` reads them some megabytes at a time, from the
oldest or the newest; `read_removes_since` reads the removes that a retention period needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from airflow_delta.engine.arrow.json.reader import ParsedCommits
from airflow_delta.engine.errors import RetentionError, TableStateError
from airflow_delta.engine.log.files import LogCommit
from airflow_delta.engine.maintenance.table_files.past_versions import find_version_at
from airflow_delta.engine.model.times import utc_text
from airflow_delta.engine.progress import report_progress
from airflow_delta.engine.replay.tombstones import unexpired
from airflow_delta.engine.snapshot.segment_commits import parse_commit_files
from airflow_delta.engine.snapshot.snapshot import Snapshot

__all__ = ["REMOVE_COLUMNS", "read_commits", "read_removes_since"]

REMOVE_COLUMNS = ("path", "size", "deletionTimestamp", "deletionVector")
"""The columns of removes that are read."""

_FIRST_RUN_BYTES = 1 << 18
"""Runs begin small and grow: a search back in time mostly ends soon."""
_RUN_BYTES = 32 << 20


def read_commits(
    snapshot: Snapshot, versions: range, *, newest_first: bool = False
) -> Iterator[tuple[int, ParsedCommits]]:
    """Read commits in runs: their removes with `REMOVE_COLUMNS`, and their non-file actions.

    Args:
        snapshot: a version at or after these.
        versions: whose commits to read; those that cleanup has deleted are skipped.
        newest_first: begin with the newest run. Within a run everything is in log order.

    Yields:
        The first version of a run, and what its commits contain.

    Raises:
        ObjectNotFoundError: a commit vanished since the log was listed.
        CorruptLogError: a commit breaks the protocol.
    """
    commits = snapshot.timeline.commits
    end = min(versions.stop - commits.first, len(commits))
    indexes = range(max(versions.start - commits.first, 0), max(end, 0))
    found = (commits[index] for index in (reversed(indexes) if newest_first else indexes))
    with report_progress("read commits", "commits", len(indexes)) as reporter:
        for run in _split_into_runs(found):
            ordered = run[::-1] if newest_first else run
            parsed = parse_commit_files(
                snapshot.storage, ordered, columns=REMOVE_COLUMNS, table=snapshot.table
            )
            reporter.advance(len(run))
            yield ordered[0].version, parsed


def read_removes_since(
    snapshot: Snapshot, time_ms: int, *, all_needed: bool = True
) -> list[pa.Table]:
    """Read the removes since a time from the commits up to the checkpoint.

    A checkpoint needn't keep tombstones that are older than ``delta.deletedFileRetentionDuration`` was when
    the checkpoint was made. If the property was raised since, it may lack tombstones that the table
    protects now. The commits after the checkpoint are part of the state, so they aren't read here.

    Args:
        snapshot: the newest version.
        time_ms: epoch ms.
        all_needed: refuse if cleanup has deleted one of the commits; otherwise read those that exist.

    Raises:
        RetentionError: all commits are needed, and cleanup has deleted one that may have such a remove.
        DeltaError: see `find_version_at` and `read_commits`.
    """
    try:
        by = find_version_at(snapshot, time_ms)
    except TableStateError:
        # The times of the commits are unknown, so all of them may be that young.
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
    versions = range(0 if by is None else by + 1, _find_forgetful_until(snapshot) + 1)
    found = read_commits(snapshot, versions) if versions else ()
    return [unexpired(commits.files.removes, time_ms - 1) for _, commits in found]


def _find_forgetful_until(snapshot: Snapshot) -> int:
    """Return the last version whose tombstones the state may lack; -1 if it has all."""
    segment = snapshot.segment
    if segment.compactions:
        return max(compaction.end for compaction in segment.compactions)
    return -1 if segment.checkpoint is None else segment.checkpoint.version


def _split_into_runs(commits: Iterable[LogCommit]) -> Iterator[list[LogCommit]]:
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
