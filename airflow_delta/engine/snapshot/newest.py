"""The newest snapshot of a table, for whoever asks for it again and again.

A job that makes a thousand small commits opens the table a thousand times. The last snapshot is kept
here, and carried on by the commits that are new; see `new_commits` for what makes that right.
"""

from __future__ import annotations

from contextlib import suppress

from airflow_delta.engine.errors import ObjectNotFoundError
from airflow_delta.engine.log.files import Commit
from airflow_delta.engine.snapshot.new_commits import commits_after, read_new_commits
from airflow_delta.engine.snapshot.opening import open_newest
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.storage.base import Storage

__all__ = ["NewestSnapshot"]

_MOST_BYTES = 32 << 20
"""A snapshot whose commits after the checkpoint have more text than this isn't kept in memory."""

_SOME_COMMITS = 100
"""After so many new commits, and as many as there were, the log is looked at for a newer checkpoint."""


class NewestSnapshot:
    """Opens a table once and then follows it. May be asked by several threads.

    Args:
        storage: where the table is.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        # What is kept is given to nobody, and only ever read: each caller gets a copy.
        self._kept: tuple[Snapshot, int] | None = None

    def get(self) -> Snapshot:
        """The newest snapshot, its commits parsed; see `open_newest` for the errors."""
        snapshot, most_commits = self._followed() or self._opened()
        size = sum(commit.size for commit in snapshot.segment.commits)
        self._kept = (snapshot, most_commits) if size <= _MOST_BYTES else None
        return snapshot.copied()

    def _opened(self) -> tuple[Snapshot, int]:
        snapshot = open_newest(self._storage, parsed=True)
        return snapshot, 2 * len(snapshot.segment.commits) + _SOME_COMMITS

    def _followed(self) -> tuple[Snapshot, int] | None:
        if self._kept is None:
            return None
        snapshot, most_commits = self._kept
        known = snapshot.segment.last_commit
        commits = commits_after(self._storage, known) if isinstance(known, Commit) else None
        if commits is None or len(snapshot.segment.commits) + len(commits) > most_commits:
            return None
        if not commits:
            return self._kept
        with suppress(ObjectNotFoundError):  # a cleanup runs
            news = read_new_commits(self._storage, commits, table=snapshot.table)
            return snapshot.carried_on(news), most_commits
        return None
