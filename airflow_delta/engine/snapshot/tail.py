"""The commits after a checkpoint: the tail of a segment, read when asked for and as far as asked.

The commits are read in runs of bounded size while earlier ones are parsed, so that the text of a
long log is never in memory as a whole; only the wanted columns of its file actions stay.

Whoever opens a table asks for protocol and metadata, and perhaps for nothing else, or else for the
files later. The text of a tail of moderate size is kept in between: the first question costs a search
for a few lines, the second the parsing, and no commit is read twice. The text of a longer tail isn't
kept; both questions are answered by one reading then.

The first question needs no Arrow, which is imported for the second; see ``snapshot.py`` for why.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from airflow_delta.engine.arrow.json_exact import SmallAction
from airflow_delta.engine.arrow.json_small import find_small_actions
from airflow_delta.engine.errors import ObjectNotFoundError
from airflow_delta.engine.log.files import Commit, CompactedCommits, LogCommit
from airflow_delta.engine.storage.base import Storage

if TYPE_CHECKING:
    from airflow_delta.engine.arrow.json_actions import ParsedCommits
    from airflow_delta.engine.replay.reconcile import ReconciledTail

__all__ = ["Tail", "read_tail"]

_RUN_BYTES = 16 << 20
_RUN_FILES = 256

_KEPT_BYTES = 128 << 20
"""The most text to keep between the question for the metadata and the one for the files."""

_STATE_KINDS = ("protocol", "metaData", "txn", "domainMetadata")
"""The actions that are part of the state; ``commitInfo`` and ``cdc`` belong to their commit alone."""

_LIGHT = ("path", "partitionValues", "size", "modificationTime", "dataChange", "deletionVector")
"""What nearly every question needs: parsed at the first reading of the files, so that the next
question needn't read again. Statistics and tags are most of a commit's text."""


class Tail:
    """The state that the commits after a checkpoint bring.

    All methods raise `ObjectNotFoundError` where a commit vanished since it was listed, and
    `CorruptLogError` where one breaks the protocol.

    Args:
        storage: where the log is.
        commits: ascending by version.
        table: the table's location, for errors.
    """

    def __init__(
        self, storage: Storage, commits: Sequence[LogCommit | CompactedCommits], *, table: str
    ) -> None:
        self._storage = storage
        self._commits = commits
        self._table = table
        self._paths = _unusual_paths(commits)
        self._kept: list[tuple[int, bytes]] | None = None
        self._small: tuple[SmallAction, ...] | None = None
        self._files: ReconciledTail | None = None
        self._columns: frozenset[str] | None = frozenset()

    def name_of(self, version: int) -> str:
        """What to call the file that an action of a version was read from, in messages."""
        return self._paths.get(version) or f"commit {version}"

    def small(self) -> tuple[SmallAction, ...]:
        """The actions of the state that aren't about files, in log order."""
        if self._small is None:
            if sum(commit.size for commit in self._commits) > _KEPT_BYTES:
                self.files(_LIGHT)
            else:
                self._kept = list(self._contents())
                self._small = find_small_actions(
                    self._kept, kinds=_STATE_KINDS, table=self._table, paths=self._paths
                )
        assert self._small is not None
        return self._small

    def files(self, columns: Sequence[str] | None) -> ReconciledTail:
        """The file actions, reconciled among themselves.

        Args:
            columns: columns that there must be; None for all.
        """
        wanted = None if columns is None else frozenset(columns)
        enough = self._columns is None or (wanted is not None and wanted <= self._columns)
        if self._files is None or not enough:
            from airflow_delta.engine.arrow.json_actions import parse_commits
            from airflow_delta.engine.replay.reconcile import reconcile_tail

            parsed = parse_commits(
                self._contents(),
                columns=None if wanted is None else sorted({*_LIGHT, *wanted}),
                kinds=_STATE_KINDS,
                table=self._table,
                paths=self._paths,
            )
            self._kept = None
            self._small = parsed.small
            self._files = reconcile_tail(parsed.files, table=self._table)
            self._columns = None if wanted is None else wanted | {*_LIGHT}
        return self._files

    def _contents(self) -> Iterable[tuple[int, bytes]]:
        if self._kept is not None:
            return self._kept
        return _contents(self._storage, self._commits, self._table)


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
    from airflow_delta.engine.arrow.json_actions import parse_commits

    return parse_commits(
        _contents(storage, commits, table),
        columns=columns,
        table=table,
        paths=_unusual_paths(commits),
    )


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


def _unusual_paths(commits: Sequence[LogCommit | CompactedCommits]) -> dict[int, str]:
    """The files that don't have the name of a commit, by the version they are read as."""
    return {_version(file): file.path for file in commits if not isinstance(file, Commit)}


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
