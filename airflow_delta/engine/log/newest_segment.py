"""Read the newest commits of a log by name, where that is cheaper than a listing.

A file system lists all names of a directory or none. So for the newest ten of a hundred thousand commits,
ten lookups by name are much cheaper than a listing. On remote stores it is the other way round: one request
lists a thousand names, starting anywhere.

Only history uses this module. Opening a table always lists the log; `_BEYOND` says why.

Spec: PROTOCOL.md, "Delta Log Entries", "Last Checkpoint File".
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import replace

from airflow_delta.engine.errors import ObjectNotFoundError
from airflow_delta.engine.log.commit_run import CommitRun, scan_log
from airflow_delta.engine.log.embedded import embedded_actions
from airflow_delta.engine.log.files import (
    LOG_DIRECTORY,
    ClassicCheckpoint,
    V2Checkpoint,
    checkpoint_path,
    commit_path,
    parse_log_file,
)
from airflow_delta.engine.log.last_checkpoint import LastCheckpointHint, read_last_checkpoint
from airflow_delta.engine.log.listing import list_names, listing_of
from airflow_delta.engine.log.segment import LogSegment, build_segment, load_segment
from airflow_delta.engine.storage.base import FileInfo, Storage

__all__ = ["load_newest_segment", "newest_commits"]

_MOST = 1000
"""Commits to look up by name; for more, a listing is cheaper."""

_BEYOND = 8
"""Names to look up beyond the first commit that doesn't exist: it is the end of the log, or was lost. A
longer gap isn't noticed. That is good enough for history, which reports commits and not the state."""


def load_newest_segment(storage: Storage) -> LogSegment:
    """Find files that rebuild the newest version, perhaps from an older checkpoint than necessary.

    Raises:
        TableNotFoundError: there is no log.
        CorruptLogError: the log is truncated, has a gap, or holds a commit of zero bytes.
        StorageError: the store failed.
    """
    if storage.capabilities.remote:
        return load_segment(storage)
    hint = read_last_checkpoint(storage)
    segment = None if hint is None else _segment_by_name(storage, hint)
    # Reading an invalid hint has already given its warning: don't read it again.
    return segment or load_segment(storage, use_hint=hint is not None)


def newest_commits(storage: Storage, *, oldest: int, newest: int) -> CommitRun:
    """The commits up to a version, back to the oldest wanted one or to the first that is missing.

    If the commit of ``newest`` is gone, the result ends at the newest commit that exists.

    Raises:
        StorageError: the store failed.
    """
    # If its newest commit is gone, a cleanup has deleted the log up to there, and it is short.
    if storage.capabilities.remote or _find(storage, commit_path(newest)) is None:
        return scan_log(list_names(storage, start=oldest, end=newest)).commits
    sizes, times = array("q"), array("q")
    for version in range(newest, oldest - 1, -1):
        info = _find(storage, commit_path(version))
        if info is None:
            break
        sizes.append(info.size)
        times.append(info.modified_ms)
    sizes.reverse()
    times.reverse()
    return CommitRun(newest + 1 - len(times), sizes, times)


def _segment_by_name(storage: Storage, hint: LastCheckpointHint) -> LogSegment | None:
    """The segment from the checkpoint that the hint refers to; None if a listing is needed."""
    checkpoint = _checkpoint(storage, hint)
    if checkpoint is None:
        return None
    commits = list(_commits_from(storage, hint.version))
    end = hint.version + len(commits)
    beyond = (_find(storage, commit_path(end + more)) for more in range(1, _BEYOND + 1))
    if not commits or len(commits) > _MOST or any(info is not None for info in beyond):
        return None
    listing = listing_of([checkpoint, *commits])
    if not listing.checkpoints:  # The checkpoint has zero bytes.
        return None
    segment = build_segment(listing, table=storage.root)
    return replace(segment, checkpoint_actions=embedded_actions(hint, segment.checkpoint))


def _checkpoint(storage: Storage, hint: LastCheckpointHint) -> FileInfo | None:
    """The file of the hint's checkpoint; None if it has several parts or doesn't exist."""
    if hint.parts is not None:
        return None
    path = checkpoint_path(hint.version)
    if hint.v2_checkpoint is not None:
        path = f"{LOG_DIRECTORY}/{str(hint.v2_checkpoint.get('path')).rpartition('/')[2]}"
    named = parse_log_file(FileInfo(path, 0, 0))
    if not isinstance(named, (ClassicCheckpoint, V2Checkpoint)) or named.version != hint.version:
        return None
    return _find(storage, path)


def _commits_from(storage: Storage, version: int) -> Iterator[FileInfo]:
    for following in range(version, version + _MOST + 1):
        info = _find(storage, commit_path(following))
        if info is None:
            return
        yield info


def _find(storage: Storage, path: str) -> FileInfo | None:
    try:
        return storage.head(path)
    except ObjectNotFoundError:
        return None
