"""Find the commit that set a transaction identifier, so that a retry recognises its own commit.

The state has the newest identifier of each application. So if it doesn't know an application, no
commit must be read, unless the table lets identifiers expire: then a checkpoint may have dropped
it. Only the commits show which of them set an identifier, and whether an identifier before the
newest was set at all. Commits below the checkpoint are needed for nothing else. They may be gone or
damaged, and that must not prevent anyone from writing.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from airflow_delta.engine.arrow.json.non_file_actions import find_non_file_actions
from airflow_delta.engine.errors import CorruptLogError, DeltaWarning
from airflow_delta.engine.log.commit_file import read_commits
from airflow_delta.engine.log.files import LogCommit
from airflow_delta.engine.log.listing import list_log
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.storage.base import Storage

__all__ = ["TransactionSearch"]

_RUN_COMMITS = 64
_RUN_BYTES = 16 << 20
"""Commits are read in runs, which end at the first of these two limits."""


@dataclass(frozen=True, slots=True)
class _Searched:
    """The result of a search through the whole log.

    Attributes:
        oldest: the oldest version whose commit exists.
        newest: the newest commit. While it exists unchanged, so do the commits before it.
        found: the newest version that set each identifier: application and number.
    """

    oldest: int
    newest: LogCommit
    found: Mapping[tuple[str, int], int]


class TransactionSearch:
    """Searches a table, without reading any commit twice. Several threads may use it."""

    def __init__(self) -> None:
        self._searched: _Searched | None = None

    def version_of(
        self, snapshot: Snapshot, app_id: str, version: int, *, ascending: bool = False
    ) -> int | None:
        """The table version whose commit set a transaction identifier.

        PROTOCOL.md, "Transaction Identifiers". The commits are searched from the newest back. A
        damaged one is skipped with a `DeltaWarning`.

        Args:
            snapshot: the newest one.
            app_id: the application.
            version: the application's version, as it was set.
            ascending: whether the application's versions only grow, so that no version above its
                newest can have been set.

        Returns:
            The version. If the state has the identifier, but its commit is gone or damaged: the
            oldest version that certainly has it. None if the state doesn't know the application, or
            if no existing, undamaged commit set the identifier.
        """
        newest = snapshot.state.non_file_state.transactions.get(app_id)
        if newest is None and snapshot.properties.set_transaction_retention_ms is None:
            return None
        if newest is not None and ascending and version > newest.version:
            return None
        held = newest is not None and newest.version == version
        commits, searched = self._unsearched(snapshot)
        found: dict[tuple[str, int], int] = {}
        oldest = snapshot.version
        for commit, content in _newest_first(snapshot.storage, commits):
            if content is None:
                break
            oldest = commit.version
            try:
                identifiers = _identifiers(commit, content, table=snapshot.table)
            except CorruptLogError as error:
                if held:
                    # No later commit set it, so this version has it; whether the one before has it
                    # is unknown.
                    return oldest
                _warn(commit, app_id, version, error, table=snapshot.table)
                continue
            for identifier in identifiers:
                found.setdefault(identifier, oldest)
            if (app_id, version) in found:
                return oldest
        if searched is not None:
            oldest, found = searched.oldest, {**searched.found, **found}
        if commits:
            self._searched = _Searched(oldest, commits[-1], found)
        return found.get((app_id, version), oldest if held else None)

    def _unsearched(self, snapshot: Snapshot) -> tuple[Sequence[LogCommit], _Searched | None]:
        """The commits to be searched, and what is known of those before them."""
        searched = self._searched
        if searched is None:
            return snapshot.timeline.commits, None
        start = searched.newest.version
        commits = [commit for commit in snapshot.segment.commits if commit.version >= start]
        if not commits or commits[0].version != start:
            listed = list_log(snapshot.storage, start=start, end=snapshot.version)
            commits = list(listed.commits)
        is_whole = len(commits) == snapshot.version + 1 - start and all(
            commit.version == start + at for at, commit in enumerate(commits)
        )
        if not is_whole or commits[:1] != [searched.newest]:
            return snapshot.timeline.commits, None
        return commits[1:], searched


def _identifiers(commit: LogCommit, content: bytes, *, table: str) -> list[tuple[str, int]]:
    actions = find_non_file_actions([(commit.version, content)], kinds=("txn",), table=table)
    pairs = [(action.value.get("appId"), action.value.get("version")) for action in actions]
    return [(app, v) for app, v in pairs if isinstance(app, str) and isinstance(v, int)]


def _newest_first(
    storage: Storage, commits: Sequence[LogCommit]
) -> Iterator[tuple[LogCommit, bytes | None]]:
    """The commits with their contents; None for one that vanished."""
    for run in _runs(commits):
        yield from zip(run, read_commits(storage, run), strict=True)


def _runs(commits: Sequence[LogCommit]) -> Iterator[list[LogCommit]]:
    run: list[LogCommit] = []
    size = 0
    for commit in reversed(commits):
        run.append(commit)
        size += commit.size
        if size >= _RUN_BYTES or len(run) >= _RUN_COMMITS:
            yield run
            run, size = [], 0
    if run:
        yield run


def _warn(
    commit: LogCommit, app_id: str, version: int, error: CorruptLogError, *, table: str
) -> None:
    warnings.warn(
        f"{table}: {commit.path} is passed over in the search for the transaction {version} of "
        f"{app_id!r} ({error.message})",
        DeltaWarning,
        stacklevel=3,
    )
