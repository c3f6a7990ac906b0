"""Who makes the next version of a table: the file system, its commit owner, or one after the other.

That follows from who manages the commits of the table before and after the commit:

=============  ============  ====================================================================
before         after         the commit
=============  ============  ====================================================================
file system    file system   is put into the log, if it isn't there (`filesystem`)
owner          same owner    goes to the owner
none, or       owner         takes two phases: the owner agrees, the commit is put into the log, if
file system                  it isn't there, and the owner is told. Where another writer was faster
                             the owner is told to forget it
owner          file system   goes to the owner as well, once all before it are backfilled. It is the
                             last one that the owner ratifies, and is backfilled at once
owner          another one   isn't made: see ``features/managed_commits.py``
=============  ============  ====================================================================

**The owner may be down when it is to be told** that it has got the table. It finds out by itself, since
it has agreed before. So that is a `DeltaWarning`, and the commit is made. That it isn't told to forget a
table does no harm either: it takes none whose log doesn't say so.

**The last commit of an owner may be ratified and not backfilled**, if the client dies in between, or the
store fails. The owner takes no more commits, and whoever only lists the log sees the table as managed.
Whoever asks the owner learns of that commit, and puts it into the log before his own (`finish_release`).

Spec: managed-commits.md, from "Converting an existing filesystem based table to managed-commit table" to
"Converting a managed-commit table to filesystem table".
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from airflow_delta.engine.commit.backfill_files import backfill_commits
from airflow_delta.engine.commit.filesystem import FileSystemCommitter
from airflow_delta.engine.commit.post_commit import warn_afterwards
from airflow_delta.engine.commit.registry import OwnedTable
from airflow_delta.engine.errors import CommitOwnerError, DeltaError, StorageError
from airflow_delta.engine.log.files import LogCommit, UnbackfilledCommit, commit_path
from airflow_delta.engine.storage.base import Storage

__all__ = ["Committer", "committer_for", "finish_release"]


class Committer(Protocol):
    """Makes versions of a table."""

    def commit(self, version: int, data: bytes, *, txn_id: str) -> str | None:
        """Try to make a version.

        Args:
            version: the version to make; the one before it must exist.
            data: the whole commit file.
            txn_id: the ``txnId`` in its ``commitInfo``, which no other transaction has.

        Returns:
            The file that is the version now, below the table's root: that in the log, or one that isn't
            backfilled yet. None where another writer has made the version.

        Raises:
            CommitOwnerUnavailableError: the commit owner can't be reached; nothing was committed.
            CommitOwnerError: the commit owner doesn't take the commit.
            UnsafeStorageError: the store can't create exclusively; nothing was committed.
            StorageError: the store failed, and the commit was not made.
            CommitOutcomeUnknownError: whether the commit was made, or is still going to be, can't be told.
            CorruptLogError: a commit before it can't be backfilled; nothing was committed.
        """


def committer_for(
    storage: Storage, *, before: OwnedTable | None, after: OwnedTable | None
) -> Committer:
    """Who makes the next version of a table; see the module.

    Args:
        storage: where the table is.
        before: the table with its owner as the version before has it; None for a table that the file
            system manages, and for a new one.
        after: the table with its owner as the commit leaves it; the owner before, or none, where there
            was one.
    """
    if before is None:
        committer = FileSystemCommitter(storage, table=storage.root)
        return committer if after is None else _TakingOver(committer, after)
    return _Releasing(storage, before) if after is None else _Owned(before)


def finish_release(storage: Storage, commits: Sequence[LogCommit]) -> None:
    """Backfill what the former owner of a table has left, so that commits can follow in the log.

    May be repeated, and may race with itself.

    Args:
        storage: where the table is.
        commits: the newest ones of a table that the file system manages, ascending. Those before one that
            is in the log are there as well, even if they weren't when somebody looked.

    Raises:
        CorruptLogError: the log has another commit in the place of one, or one is gone.
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
class _Owned:
    """Has the commit owner make versions."""

    owned: OwnedTable

    def commit(self, version: int, data: bytes, *, txn_id: str) -> str | None:
        """See `Committer`."""
        owner, table = self.owned.owner, self.owned.table
        commit = owner.commit(table, version, data, txn_id=txn_id).commit
        return None if commit is None else commit.path


@dataclass(frozen=True, slots=True)
class _TakingOver:
    """Makes the version that gives a table to a commit owner."""

    committer: Committer
    owned: OwnedTable

    def commit(self, version: int, data: bytes, *, txn_id: str) -> str | None:
        """See `Committer`. Where the outcome is unknown the owner stands by its promise."""
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
        except Exception as error:  # noqa: BLE001 - owners are anybody's, and the commit is made
            warn_afterwards(
                f"{table.uri}: version {version} gives the table to the commit owner {table.owner!r}, who "
                f"couldn't be told ({error}); it finds out when the table is used"
            )
        return path

    def _forget(self, version: int) -> None:
        # A proposal that is left over is a promise about a commit that there never will be.
        with suppress(CommitOwnerError):
            self.owned.owner.forget(self.owned.table, version)


@dataclass(frozen=True, slots=True)
class _Releasing:
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
            warn_afterwards(
                f"{table.uri}: version {version} takes the table back from the commit owner "
                f"{table.owner!r}, but couldn't be backfilled ({error.message}). Other engines can't "
                "write to the table before that is done, by DeltaTable.backfill or the next commit of this "
                "one"
            )
            return commit.path
        return commit_path(version)
