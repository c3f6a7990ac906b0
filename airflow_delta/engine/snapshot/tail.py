"""Read the commits after a checkpoint: the tail of a segment.

The commits are read in runs of bounded size while earlier ones are parsed, so that the text of a
long log is never in memory as a whole; only the wanted columns of its file actions stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from airflow_delta.engine.arrow.json_actions import ParsedCommits, parse_commits
from airflow_delta.engine.errors import ObjectNotFoundError
from airflow_delta.engine.log.files import CompactedCommits, LogCommit
from airflow_delta.engine.storage.base import Storage

__all__ = ["read_tail"]

_RUN_BYTES = 16 << 20
_RUN_FILES = 256


def read_tail(
    storage: Storage,
    commits: Sequence[LogCommit | CompactedCommits],
    *,
    columns: tuple[str, ...] | None,
    table: str,
) -> ParsedCommits:
    """Read and parse commits (and compactions that stand for commits).

    Args:
        storage: where the log is.
        commits: ascending by version.
        columns: the columns of file actions to keep; None for all.
        table: the table's location, for errors.

    Raises:
        ObjectNotFoundError: a file vanished since it was listed.
        CorruptLogError: a file breaks the protocol.
    """
    return parse_commits(_contents(storage, commits, table), columns=columns, table=table)


def _contents(
    storage: Storage, commits: Sequence[LogCommit | CompactedCommits], table: str
) -> Iterator[tuple[int, bytes]]:
    for run in _runs(commits):
        contents = storage.read_many([commit.path for commit in run])
        for commit, content in zip(run, contents, strict=True):
            if content is None:
                raise ObjectNotFoundError(
                    f"{commit.path} vanished after it was listed: a cleanup may be running",
                    table=table,
                    path=commit.path,
                )
            yield _version(commit), content


def _version(commit: LogCommit | CompactedCommits) -> int:
    return commit.end if isinstance(commit, CompactedCommits) else commit.version


def _runs(
    commits: Sequence[LogCommit | CompactedCommits],
) -> Iterator[list[LogCommit | CompactedCommits]]:
    run: list[LogCommit | CompactedCommits] = []
    size = 0
    for commit in commits:
        run.append(commit)
        size += commit.size
        if size >= _RUN_BYTES or len(run) >= _RUN_FILES:
            yield run
            run, size = [], 0
    if run:
        yield run
