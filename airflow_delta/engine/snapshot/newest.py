"""Keep the newest snapshot of a table, for processes that write to it repeatedly.

A job that makes a thousand small commits opens the table a thousand times. This module keeps the
last snapshot, and advances it with the new commits; `new_commits` explains when that is correct.

The newest commit is recognised by its size and time. Some remote stores report times in whole
seconds, and one file may replace another within a second. So a commit that was only a few seconds
old when it was seen is recognised by its ``txnId``, which is read again.

The commit owner of a managed table decides which commits are new, and it is queried every time.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeGuard

from airflow_delta.engine.clock import now_ms
from airflow_delta.engine.commit.owner import ManagedTable
from airflow_delta.engine.commit.registry import CommitOwners, OwnedTable
from airflow_delta.engine.errors import ObjectNotFoundError
from airflow_delta.engine.log.commit_file import read_commit_info
from airflow_delta.engine.log.files import Commit, LogCommit
from airflow_delta.engine.model.actions import CommitInfo
from airflow_delta.engine.snapshot.new_commits import commits_after, read_new_commits
from airflow_delta.engine.snapshot.opening import open_newest
from airflow_delta.engine.snapshot.segment_commits import info_of
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.storage.base import Storage

__all__ = ["NewestSnapshot"]

_MOST_BYTES = 32 << 20
"""A snapshot isn't kept in memory if the text of its commits after the checkpoint is longer."""

_SOME_COMMITS = 100
"""After so many new commits, plus as many as there were, the log is searched for a newer checkpoint."""

_YOUNG_MS = 5_000
"""A commit of this age can't be replaced within the same second. Our clock may differ from the
store's."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """The snapshot of a table that is kept, and when it was seen.

    Attributes:
        snapshot: never handed out, and only read: each caller gets a copy.
        most_commits: with more commits after the checkpoint, the table is opened again.
        txn_id: the ``txnId`` of the newest commit; None if it has none or wasn't read.
        seen_ms: a time, in epoch ms, before the newest commit was seen.
    """

    snapshot: Snapshot
    most_commits: int
    txn_id: str | None
    seen_ms: int


class NewestSnapshot:
    """Opens a table once and then follows it. Several threads may use it.

    Args:
        storage: where the table is.
        owners: the commit owners that may know newer versions than the log.
    """

    def __init__(self, storage: Storage, owners: CommitOwners) -> None:
        self._storage = storage
        self._owners = owners
        self._kept: _Kept | None = None

    def get(self) -> Snapshot:
        """The newest snapshot, with its commits parsed; see `open_newest` for the errors.

        The caller will write to it. So it is an error if the commit owner can't be queried for newer
        commits.
        """
        kept = self._advance_kept() or self._open()
        size = sum(commit.size for commit in kept.snapshot.segment.commits)
        self._kept = kept if size <= _MOST_BYTES else None
        return kept.snapshot.duplicate()

    def _open(self) -> _Kept:
        seen_ms = now_ms()
        snapshot = open_newest(self._storage, owners=self._owners, for_writing=True, parsed=True)
        most_commits = 2 * len(snapshot.segment.commits) + _SOME_COMMITS
        known = snapshot.segment.last_commit
        txn_id = None
        if self._is_young(known, seen_ms):
            with suppress(ObjectNotFoundError):
                txn_id = self._txn_id(known)
        return _Kept(snapshot, most_commits, txn_id, seen_ms)

    def _advance_kept(self) -> _Kept | None:
        kept, seen_ms = self._kept, now_ms()
        if kept is None:
            return None
        owned = self._owner_of(kept.snapshot)
        known = kept.snapshot.segment.last_commit
        commits = None if known is None else commits_after(self._storage, known, owned)
        if commits is None or len(kept.snapshot.segment.commits) + len(commits) > kept.most_commits:
            return None
        with suppress(ObjectNotFoundError):  # A cleanup is running.
            if self._may_be_another(kept):
                return None
            if not commits:
                return replace(kept, seen_ms=seen_ms)
            news = read_new_commits(self._storage, commits, table=kept.snapshot.table)
            info = info_of(news.parsed.non_file_actions, commits[-1].version)
            newest = kept.snapshot.advance(news.commits, news.parsed)
            if _table_of(self._owner_of(newest)) != _table_of(owned):
                return None  # The owner has changed: later commits must be looked for elsewhere.
            return _Kept(
                newest,
                kept.most_commits,
                None if info is None else info.txn_id,
                seen_ms,
            )
        return None

    def _owner_of(self, snapshot: Snapshot) -> OwnedTable | None:
        return self._owners.find_owned_table(self._storage, snapshot.protocol, snapshot.metadata)

    def _may_be_another(self, kept: _Kept) -> bool:
        """Whether the newest commit may have been replaced by one of the same size and time."""
        known = kept.snapshot.segment.last_commit
        if not self._is_young(known, kept.seen_ms):
            return False
        return kept.txn_id is None or self._txn_id(known) != kept.txn_id

    def _is_young(self, commit: LogCommit | None, seen_ms: int) -> TypeGuard[Commit]:
        """Whether a commit could still be replaced, when it was seen, by one of the same time."""
        if not (isinstance(commit, Commit) and self._storage.capabilities.remote):
            return False
        return commit.modified_ms % 1000 == 0 and seen_ms - commit.modified_ms < _YOUNG_MS

    def _txn_id(self, commit: Commit) -> str | None:
        info = read_commit_info(self._storage, commit.version, path=commit.path)
        return CommitInfo.from_json(info or {}, version=commit.version).txn_id


def _table_of(owned: OwnedTable | None) -> ManagedTable | None:
    return None if owned is None else owned.table
