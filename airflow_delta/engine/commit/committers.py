"""Choose who makes the next version of a table: the file system, its commit owner, or one after the other.

=============  ============  =====================================================================
before         after         the commit
=============  ============  =====================================================================
file system    file system   is created in the log, if it doesn't exist (`filesystem`)
owner          same owner    goes to the owner
file system,   owner         hands the table over: the owner agrees, the commit is created in the
or no table                  log, and the owner is informed. If another writer was faster, the
                             owner forgets the table
owner          file system   goes to the owner, too, and is its last one; it is backfilled at once
owner          other owner   isn't made: see ``features/managed_commits.py``
=============  ============  =====================================================================

Spec: RFC managed-commits, "Converting an existing filesystem based table to managed-commit table",
"Converting a managed-commit table to filesystem table".
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from airflow_delta.engine.commit.backfill_files import backfill_commits
from airflow_delta.engine.commit.filesystem import FileSystemCommitter
from airflow_delta.engine.commit.post_commit import warn_after_commit
from airflow_delta.engine.commit.registry import OwnedTable
from airflow_delta.engine.errors import CommitOwnerError, DeltaError, StorageError
from airflow_delta.engine.log.files import LogCommit, UnbackfilledCommit, commit_path
from airflow_delta.engine.storage.base import Storage

__all__ = ["Committer", "choose_committer", "finish_release"]


class Committer(Protocol):
    """Makes versions of a table."""

    def commit(self, version: int, data: bytes, *, txn_id: str) -> str | None:
        """Try to make a version.

        Args:
            version: the version to make; the one before it must exist.
            data: the whole commit file.
            txn_id: the ``txnId`` in its ``commitInfo``, which no other transaction has.

        Returns:
            The path of the commit file below the table's root: the file in the log, or one that isn't
            backfilled yet. None if another writer has made the version.

        Raises:
            CommitOwnerUnavailableError: the commit owner can't be reached; nothing was committed.
            CommitOwnerError: the commit owner doesn't take the commit.
            UnsafeStorageError: the store can't create exclusively; nothing was committed.
            StorageError: the store failed, and the commit was not made.
            CommitOutcomeUnknownError: it is unknown whether the commit was made, or still will be.
            CorruptLogError: an earlier commit can't be backfilled; nothing was committed.
        """


def choose_committer(
    storage: Storage, *, before: OwnedTable | None, after: OwnedTable | None
) -> Committer:
    """Choose who makes the next version of a table; see the module.

    Args:
        storage: the table's storage.
        before: the table and its owner in the version before; None if the file system manages the table, or
            if it is new.
        after: the table and its owner after the commit. If ``before`` has an owner, it is the same one or
            None.
    """
    if before is None:
        committer = FileSystemCommitter(storage, table=storage.root)
        return committer if after is None else _HandOverCommitter(committer, after)
    return _ReleaseCommitter(storage, before) if after is None else _OwnerCommitter(before)


def finish_release(storage: Storage, commits: Sequence[LogCommit]) -> None:
    """Backfill the commits that the former owner of a table has left, so that others can follow in the log.

    The last commit of an owner may be ratified and not backfilled, if its client died in between or the
    store failed. Then the owner takes no more commits, and clients that only list the log see the table as
    managed. A client that asks the owner learns of the commit, and backfills it before its own.

    It may be repeated, and may race with itself.

    Args:
        storage: the table's storage.
        commits: the newest commits of a table that the file system manages, ascending. All commits before
            one that is in the log are in the log, too.

    Raises:
        CorruptLogError: the log has another commit for a version, or a commit is gone.
        StorageError: the store failed.
    """
    left: list[UnbackfilledCommit] = []
    for commit in reversed(commits):
        if not isinstance(commit, UnbackfilledCommit):
            break
        left.append(commit)
    if left:
        backfill_commits(storage, left[::-1])


@dataclass(frozen=True, slots=True)
class _OwnerCommitter:
    """Lets the commit owner make versions."""

    owned: OwnedTable

    def commit(self, version: int, data: bytes, *, txn_id: str) -> str | None:
        """See `Committer`."""
        owner, table = self.owned.owner, self.owned.table
        commit = owner.commit(table, version, data, txn_id=txn_id).commit
        return None if commit is None else commit.path


@dataclass(frozen=True, slots=True)
class _HandOverCommitter:
    """Makes the version that hands a table over to a commit owner."""

    committer: Committer
    owned: OwnedTable

    def commit(self, version: int, data: bytes, *, txn_id: str) -> str | None:
        """See `Committer`. If the outcome is unknown, the owner keeps its promise to take the table."""
        owner, table = self.owned.owner, self.owned.table
        owner.propose(table, version)
        try:
            path = self.committer.commit(version, data, txn_id=txn_id)
        except StorageError:
            self._forget(version)
            raise
        if path is None:
            self._forget(version)
            return None
        try:
            owner.take_over(table, version)
        except Exception as error:  # noqa: BLE001 - an owner may raise anything, and the commit is made
            # The owner has agreed, so it finds the commit in the log when the table is used.
            warn_after_commit(
                f"{table.uri}: version {version} gives the table to the commit owner {table.owner!r}, "
                f"which couldn't be informed ({error}); it finds out when the table is used"
            )
        return path

    def _forget(self, version: int) -> None:
        # If that fails, no harm is done: the owner takes no table whose log doesn't hand it over.
        with suppress(CommitOwnerError):
            self.owned.owner.forget(self.owned.table, version)


@dataclass(frozen=True, slots=True)
class _ReleaseCommitter:
    """Makes the version that takes a table back from its commit owner."""

    storage: Storage
    owned: OwnedTable

    def commit(self, version: int, data: bytes, *, txn_id: str) -> str | None:
        """See `Committer`."""
        owner, table = self.owned.owner, self.owned.table
        owner.backfill_to_version(table, version - 1)
        commit = owner.commit(table, version, data, txn_id=txn_id, releases=True).commit
        if commit is None:
            return None
        try:
            finish_release(self.storage, [commit])
        except DeltaError as error:
            warn_after_commit(
                f"{table.uri}: version {version} takes the table back from the commit owner "
                f"{table.owner!r}, but couldn't be backfilled ({error.message}). Other engines can't write "
                "to the table until DeltaTable.backfill or the next commit of this engine has backfilled "
                "it"
            )
            return commit.path
        return commit_path(version)
