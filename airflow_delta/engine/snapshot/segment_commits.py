"""The commits after a checkpoint, read when they are needed and only as far as needed.

Commits are read while earlier ones are parsed (`commit_texts`), so the text of a long log is never in
memory as a whole. Of the file actions, only the wanted columns stay in memory, or all if the text is very
short (`_WHOLE_BYTES`). If it is short (`_KEPT_BYTES`), it is kept between the first call, which searches it
for a few non-file actions, and the second, which parses the file actions.

The first call on short commits doesn't need Arrow, which is imported for the others; ``snapshot.py`` says
why.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from airflow_delta.engine.arrow.json.exact import NonFileAction
from airflow_delta.engine.arrow.json.non_file_actions import find_non_file_actions
from airflow_delta.engine.errors import CorruptLogError
from airflow_delta.engine.log.compacted import unreconciled
from airflow_delta.engine.log.files import CompactedCommits, LogCommit
from airflow_delta.engine.model.actions import CommitInfo
from airflow_delta.engine.model.checkpoint_kinds import find_repeated_action
from airflow_delta.engine.snapshot.commit_texts import (
    commit_texts,
    compacted_versions,
    unusual_paths,
)
from airflow_delta.engine.storage.base import Storage

if TYPE_CHECKING:
    from airflow_delta.engine.arrow.json.reader import ParsedCommits
    from airflow_delta.engine.replay.reconcile import ReconciledCommits

__all__ = [
    "SegmentCommits",
    "check_reconciled",
    "info_of",
    "parse_commit_files",
    "parse_common_columns",
]

_KEPT_BYTES = 32 << 20
"""The most text to keep between reading the metadata and reading the files."""

_WHOLE_BYTES = 4 << 20
"""The most text of which all columns of the files are parsed at once. Opening a table parses its commits,
so that a scan, which needs statistics too, reads and parses nothing again."""

_SMALL_BYTES = 16 << 10
"""Commits with less text have few actions, such as those made during another commit."""

_STATE_KINDS = ("protocol", "metaData", "txn", "domainMetadata")
"""The actions that are part of the state; ``commitInfo`` and ``cdc`` belong to their commit alone."""

_COMMON_COLUMNS = (
    "path",
    "partitionValues",
    "size",
    "modificationTime",
    "dataChange",
    "deletionVector",
)
"""The columns that nearly every caller needs. The first reading of the files parses them, so that
the next caller needn't read again. Statistics and tags are most of a commit's text."""


class SegmentCommits:
    """The reconciled actions of the commits after a checkpoint.

    All methods raise `ObjectNotFoundError` if a commit vanished since it was listed, and
    `CorruptLogError` if one breaks the protocol.

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
        self._paths = unusual_paths(commits)
        self._compacted = compacted_versions(commits)
        self._kept: list[tuple[int, bytes]] | None = None
        self._non_file_actions: tuple[NonFileAction, ...] | None = None
        self._files: ReconciledCommits | None = None
        self._columns: frozenset[str] | None = frozenset()

    def name_of(self, version: int) -> str:
        """The name, for messages, of the file from which an action of a version was read."""
        return self._paths.get(version) or f"commit {version}"

    def non_file_actions(self) -> tuple[NonFileAction, ...]:
        """The non-file actions that are part of the state, in log order."""
        if self._non_file_actions is None:
            is_long = self._num_bytes > _KEPT_BYTES
            if not is_long:
                self._kept = list(self._contents())
            non_file_actions = find_non_file_actions(
                self._contents(),
                kinds=_STATE_KINDS,
                table=self._table,
                paths=self._paths,
                is_long=is_long,
            )
            check_reconciled(non_file_actions, self._compacted, table=self._table)
            self._non_file_actions = non_file_actions
        return self._non_file_actions

    def files(self, columns: Sequence[str] | None) -> ReconciledCommits:
        """The reconciled file actions.

        Args:
            columns: the columns needed; None for all.
        """
        wanted = None if columns is None else frozenset(columns)
        enough = self._columns is None or (wanted is not None and wanted <= self._columns)
        if self._files is None or not enough:
            from airflow_delta.engine.replay.reconcile import reconcile_commits

            parsed = None
            if wanted is not None and self._num_bytes <= _WHOLE_BYTES:
                # What is wrong in a column that isn't wanted is no error yet.
                with suppress(CorruptLogError):
                    parsed, wanted = self._parse(None), None
            if parsed is None:
                parsed = self._parse(wanted)
            self._kept = None
            check_reconciled(parsed.non_file_actions, self._compacted, table=self._table)
            self._non_file_actions = parsed.non_file_actions
            self._files = reconcile_commits(
                parsed.files, table=self._table, compactions=self._compacted
            )
            self._columns = None if wanted is None else wanted | {*_COMMON_COLUMNS}
        return self._files

    def advance(
        self, commits: Sequence[LogCommit | CompactedCommits], news: ParsedCommits
    ) -> SegmentCommits:
        """The commits of a later version, without reading anything again.

        Args:
            commits: the commits of the later version.
            news: the actions of the new commits; see `parse_common_columns`.
        """
        later = SegmentCommits(self._storage, commits, table=self._table)
        if self._files is not None or not self._commits:
            from airflow_delta.engine.replay.reconcile import reconcile_further

            later._files = reconcile_further(self.files(_COMMON_COLUMNS), news.files)
            later._columns = frozenset(_COMMON_COLUMNS)
        return later

    def _parse(self, wanted: frozenset[str] | None) -> ParsedCommits:
        from airflow_delta.engine.arrow.json.reader import parse_commits

        return parse_commits(
            self._contents(),
            columns=None if wanted is None else sorted({*_COMMON_COLUMNS, *wanted}),
            kinds=_STATE_KINDS,
            table=self._table,
            paths=self._paths,
        )

    @property
    def _num_bytes(self) -> int:
        return sum(commit.size for commit in self._commits)

    def _contents(self) -> Iterable[tuple[int, bytes]]:
        if self._kept is not None:
            return self._kept
        return commit_texts(self._storage, self._commits, table=self._table)


def parse_commit_files(
    storage: Storage,
    commits: Sequence[LogCommit | CompactedCommits],
    *,
    columns: tuple[str, ...] | None,
    table: str,
    small: bool = False,
) -> ParsedCommits:
    """Read and parse commits (and compactions that stand for commits).

    Args:
        storage: where the log is.
        commits: ascending by version.
        columns: the columns of file actions to keep; None for all.
        table: the table's location, for errors.
        small: see `parse_commits`.

    Raises:
        ObjectNotFoundError: a file vanished since it was listed.
        CorruptLogError: a file breaks the protocol.
    """
    from airflow_delta.engine.arrow.json.reader import parse_commits

    return parse_commits(
        commit_texts(storage, commits, table=table),
        columns=columns,
        table=table,
        paths=unusual_paths(commits),
        small=small,
    )


def check_reconciled(
    actions: Iterable[NonFileAction], compactions: Mapping[int, str], *, table: str
) -> None:
    """Refuse a compaction that has a non-file action twice that reconciled actions have once.

    Args:
        actions: the actions of all commits and compactions.
        compactions: the versions whose actions come from a compaction, with its path.
        table: the table's location, for errors.

    Raises:
        CorruptLogError: a compaction has, for example, a second protocol or a second transaction of
            an application. Facts: version, path.
    """
    if not compactions:
        return
    found: dict[int, list[tuple[str, Mapping[str, Any]]]] = {version: [] for version in compactions}
    for action in actions:
        if action.version in found:
            found[action.version].append((action.kind, action.value))
    for version, said in found.items():
        twice = find_repeated_action(said)
        if twice is not None:
            raise unreconciled(twice, version=version, path=compactions[version], table=table)


def info_of(actions: Iterable[NonFileAction], version: int) -> CommitInfo | None:
    """The ``commitInfo`` of a version among actions; None if there is none."""
    for action in actions:
        if action.version == version and action.kind == "commitInfo":
            return CommitInfo.from_json(action.value, version=version)
    return None


def parse_common_columns(
    storage: Storage, commits: Sequence[LogCommit | CompactedCommits], *, table: str
) -> ParsedCommits:
    """As `parse_commit_files`, with the columns that `SegmentCommits` always keeps."""
    small = sum(commit.size for commit in commits) < _SMALL_BYTES
    return parse_commit_files(storage, commits, columns=_COMMON_COLUMNS, table=table, small=small)
