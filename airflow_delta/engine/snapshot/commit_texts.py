"""Read the contents of commits, a few at a time, because a log may be larger than memory.

From a local disk they are read one by one. From a remote store they are read in runs of some
megabytes, with all files of a run requested at once. The next commits can be read while earlier
ones are parsed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from airflow_delta.engine.errors import ObjectNotFoundError
from airflow_delta.engine.log.commit_file import read_commits
from airflow_delta.engine.log.compacted import check_pledge
from airflow_delta.engine.log.files import Commit, CompactedCommits, LogCommit
from airflow_delta.engine.storage.base import Storage

__all__ = ["commit_texts", "compacted_versions", "unusual_paths"]

_RUN_BYTES = 16 << 20
_RUN_FILES = 256


def commit_texts(
    storage: Storage, commits: Iterable[LogCommit | CompactedCommits], *, table: str
) -> Iterator[tuple[int, bytes]]:
    """Read commits; give the content of each with the version that it is read as, in order.

    Args:
        storage: where the log is.
        commits: commits, and compactions that replace commits.
        table: the table's location, for errors.

    Raises:
        ObjectNotFoundError: a file vanished since it was listed.
        CorruptLogError: a compaction doesn't match its pledge.
    """
    run_bytes = _RUN_BYTES if storage.capabilities.remote else 0
    for run in _runs(commits, run_bytes):
        contents = read_commits(storage, run)
        contents.reverse()
        for commit in run:
            content = contents.pop()  # Its memory can be freed before the run ends.
            if content is None:
                raise ObjectNotFoundError(
                    f"{commit.path} vanished after it was listed: a cleanup may be running",
                    table=table,
                    path=commit.path,
                )
            if isinstance(commit, CompactedCommits):
                check_pledge(commit, content, table=table)
            yield _version(commit), content


def unusual_paths(commits: Iterable[LogCommit | CompactedCommits]) -> dict[int, str]:
    """The files that don't have the name of a commit, by the version that they are read as."""
    return {_version(file): file.path for file in commits if not isinstance(file, Commit)}


def compacted_versions(commits: Iterable[LogCommit | CompactedCommits]) -> dict[int, str]:
    """The compactions among files, by the version that they are read as."""
    return {file.end: file.path for file in commits if isinstance(file, CompactedCommits)}


def _version(commit: LogCommit | CompactedCommits) -> int:
    return commit.end if isinstance(commit, CompactedCommits) else commit.version


def _runs(
    commits: Iterable[LogCommit | CompactedCommits], run_bytes: int
) -> Iterator[list[LogCommit | CompactedCommits]]:
    run: list[LogCommit | CompactedCommits] = []
    size = 0
    for commit in commits:
        run.append(commit)
        size += commit.size
        if size >= run_bytes or len(run) >= _RUN_FILES:
            yield run
            run, size = [], 0
    if run:
        yield run
