"""`CommitOwner`: the contract of whoever decides which commits of a managed table succeeded.

managed-commits.md, "Commit Owner" and "Commit Owner API". The file system stays the source of truth for
what a commit says; the owner is the one for whether it counts. A commit owner has a client side, which is
what this contract is about, and mostly a service behind it, such as a database.

Every method gets the table as its first argument, because one owner has many tables. What every
implementation guarantees, and ``tests/contracts`` checks:

* **Atomic.** Of any number of concurrent `CommitOwner.commit` calls for one version at most one makes it;
  the others learn that the version is taken. What it has answered with stays so: a version, once
  ratified, is that commit for ever.
* **Ordered.** A version is ratified only when the one before it is, and backfilled only when the one
  before it is backfilled.
* **Complete.** `CommitOwner.get_commits` tells of all ratified commits that aren't backfilled, or else
  that they are backfilled by now: an un-backfilled commit is tracked until ``<version>.json`` is there.
* **Idempotent.** To backfill, to take over a table and to forget a proposal may be repeated, and may race
  with themselves.
* **Told apart.** The answer of an owner that can't be reached is `CommitOwnerUnavailableError`; then
  nothing was ratified by the call. Where that can't be said of a commit, it is
  `CommitOutcomeUnknownError`. Everything else that an owner refuses is a `CommitOwnerError`.
* **Async-safe.** Methods block; any number of threads and processes may call them at once, and none keeps
  a lock or a lease when it returns. From an event loop call them in a thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from airflow_delta.engine.features.managed_commits import TABLE_ID
from airflow_delta.engine.log.files import LogCommit, UnbackfilledCommit
from airflow_delta.engine.storage.base import Storage

__all__ = [
    "CommitOwner",
    "CommitResponse",
    "GetCommitsResponse",
    "ManagedTable",
    "OwnerStatus",
    "Standing",
]


@dataclass(frozen=True, slots=True)
class ManagedTable:
    """A table as its commit owner is told of it.

    Attributes:
        storage: where the table is.
        owner: the name of its owner: ``delta.managedCommit.commitOwner``.
        conf: ``delta.managedCommit.commitOwnerConf``. The engine puts ``tableId`` into it when a table is
            handed over, a text that no other table has; the rest is the owner's.
    """

    storage: Storage = field(repr=False)
    owner: str
    conf: Mapping[str, str]

    @property
    def uri(self) -> str:
        """The table's location as the user named it; for messages."""
        return self.storage.root

    @property
    def table_id(self) -> str | None:
        """What tells the table from others; None where another engine has handed it over without."""
        return self.conf.get(TABLE_ID)

    @property
    def location(self) -> str:
        """The table's location, spelled alike by everybody who means the same place (`Storage.place`)."""
        return self.storage.place


@dataclass(frozen=True, slots=True)
class CommitResponse:
    """What an owner answers to a proposed commit.

    Attributes:
        commit: the file that is the version now; None where another commit has taken the version.
        latest_table_version: the newest version that the owner has ratified.
    """

    commit: LogCommit | None
    latest_table_version: int


@dataclass(frozen=True, slots=True)
class GetCommitsResponse:
    """What an owner tells of the newest commits.

    Attributes:
        commits: those that aren't backfilled, as far as the owner knows: contiguous, ascending by version.
            The first one may be above what was asked for, where older ones are backfilled.
        latest_table_version: the newest version that the owner has ratified; -1 where it never has.
    """

    commits: tuple[UnbackfilledCommit, ...]
    latest_table_version: int


class Standing(Enum):
    """How an owner stands to a table.

    ``PROPOSED`` is a promise: the owner will take the table as soon as the commit that hands it over is
    in the log, and may not go back on that afterwards.
    """

    PROPOSED = "proposed"
    ACTIVE = "active"
    RELEASED = "released"


@dataclass(frozen=True, slots=True)
class OwnerStatus:
    """What an owner knows of a table.

    Attributes:
        standing: whether it takes commits.
        latest_version: the newest version that it has ratified, or with which it got the table.
        backfilled_version: all versions up to this one are backfilled, as it knows.
        unbackfilled: how many ratified commits it still tracks.
    """

    standing: Standing
    latest_version: int
    backfilled_version: int
    unbackfilled: int


class CommitOwner(Protocol):
    """Ratifies the commits of managed tables. See the module for the contract."""

    def commit(
        self,
        table: ManagedTable,
        version: int,
        actions: bytes,
        *,
        txn_id: str,
        releases: bool = False,
    ) -> CommitResponse:
        """Make a version of a table.

        managed-commits.md, "Commit Protocol". The owner writes the actions to a commit file, un-backfilled
        or backfilled as it likes, and makes that file the version if nobody else has made it.

        Args:
            table: the table.
            version: the version to make; the one before it must be ratified.
            actions: the whole commit file.
            txn_id: the ``txnId`` in its ``commitInfo``, which no other transaction has; by it an answer
                that got lost is found again.
            releases: whether the commit gives the table back to the file system: the owner ratifies
                nothing after it. All versions before it must be backfilled.

        Raises:
            CommitOwnerUnavailableError: the owner can't be reached; nothing was committed.
            CommitOutcomeUnknownError: the owner failed, and whether it has ratified the commit can't be
                told.
            CommitOwnerError: the owner doesn't have the table, or doesn't take the commit.
            StorageError: the commit file can't be written; nothing was committed.
        """

    def get_commits(
        self, table: ManagedTable, start_version: int = 0, end_version: int | None = None
    ) -> GetCommitsResponse:
        """The un-backfilled commits of a table.

        managed-commits.md, "Getting Un-backfilled Commits from Commit Owner". Commits and latest version
        are of one moment.

        Args:
            table: the table.
            start_version: the first version of interest.
            end_version: the last version of interest; None for the newest.

        Raises:
            CommitOwnerUnavailableError: the owner can't be reached.
            CommitOwnerError: the owner doesn't have the table.
        """

    def backfill_to_version(self, table: ManagedTable, version: int | None = None) -> int:
        """Copy un-backfilled commits to their place in the log, one after the other.

        managed-commits.md, "Commit Backfills". A copy that is there is left as it is.

        Args:
            table: the table.
            version: the last version to be backfilled; None for all that are ratified by now.

        Returns:
            The newest version that is backfilled.

        Raises:
            CommitOwnerUnavailableError: the owner can't be reached.
            CommitOwnerError: the owner doesn't have the table, or hasn't ratified the version.
            CorruptLogError: the log has another commit in the place of a ratified one, or a ratified one
                is gone. Facts: version, path.
            StorageError: the store failed. What is backfilled by then stays, and a repetition goes on.
        """

    def propose(self, table: ManagedTable, version: int) -> None:
        """Agree to own a table from the commit of a version on, which is yet to be made.

        managed-commits.md, "Converting an existing filesystem based table to managed-commit table". Once
        this has returned, the owner takes the table whenever it sees that commit in the log. To propose
        again for another version takes the place of the proposal before.

        Args:
            table: the table, with the configuration that the commit will write.
            version: the version that will hand the table over; 0 to create it.

        Raises:
            CommitOwnerUnavailableError: the owner can't be reached.
            CommitOwnerError: it doesn't agree.
            InvalidArgumentError: the configuration isn't one that it understands.
        """

    def take_over(self, table: ManagedTable, version: int) -> None:
        """Learn that the commit that hands the table over is in the log.

        It is only told sooner so: an owner that has agreed finds out by itself when the table is used.

        Raises:
            CommitOwnerUnavailableError: the owner can't be reached.
            CommitOwnerError: it never agreed.
        """

    def forget(self, table: ManagedTable, version: int) -> None:
        """Learn that the commit that was to hand the table over will never be in the log.

        Raises:
            CommitOwnerUnavailableError: the owner can't be reached.
        """

    def status(self, table: ManagedTable) -> OwnerStatus:
        """What the owner knows of a table.

        Raises:
            CommitOwnerUnavailableError: the owner can't be reached.
            CommitOwnerError: the owner doesn't have the table.
        """
