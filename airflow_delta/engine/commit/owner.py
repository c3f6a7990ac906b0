"""`CommitOwner`: the contract of commit owners, which decide which commits of a managed table count.

The file system holds the content of commits; the owner says which of them count. Mostly it is a client of a
service, such as a database. One owner has many tables, so each method gets the table. Every implementation
guarantees, and ``tests/contracts`` checks:

* **Atomic.** Of any number of concurrent `CommitOwner.commit` calls for one version, at most one makes it.
  The others learn that the version is taken. A ratified version never changes.
* **Ordered.** Versions are ratified, and backfilled, one after the other.
* **Complete.** `CommitOwner.get_commits` returns all ratified commits that aren't backfilled. The owner
  tracks a commit until ``<version>.json`` exists.
* **Idempotent.** Backfills, take-overs and forgotten proposals may be repeated, and may race with
  themselves.
* **Clear errors.** `CommitOwnerUnavailableError` means that the owner can't be reached, and that the call
  ratified nothing. `CommitOutcomeUnknownError` means that it may have. `CommitOwnerError` means that the
  owner refuses.
* **Thread-safe.** Methods block. Any number of threads and processes may call them at once. None keeps a
  lock or a lease when it returns. From an event loop, call them in a thread.

Spec: RFC managed-commits, "Commit Owner" and "Commit Owner API".
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
    """A table, with what its commit owner needs to know of it.

    Attributes:
        storage: the table's storage.
        owner: the owner's name: ``delta.managedCommit.commitOwner``.
        conf: ``delta.managedCommit.commitOwnerConf``. When a table is handed over, the engine adds the
            unique ``tableId``. The other keys are the owner's.
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
        """The table's unique id; None if another engine has handed the table over without one."""
        return self.conf.get(TABLE_ID)

    @property
    def location(self) -> str:
        """The table's location, the same for all its spellings (`Storage.canonical_location`)."""
        return self.storage.canonical_location


@dataclass(frozen=True, slots=True)
class CommitResponse:
    """The answer of an owner to a proposed commit.

    Attributes:
        commit: the file that is the version now; None if another commit has taken the version.
        latest_table_version: the newest version that the owner has ratified.
    """

    commit: LogCommit | None
    latest_table_version: int


@dataclass(frozen=True, slots=True)
class GetCommitsResponse:
    """The un-backfilled commits of a table.

    Attributes:
        commits: those that the owner doesn't know to be backfilled: contiguous, ascending by version. The
            first one may be above the requested start, because older ones are backfilled.
        latest_table_version: the newest version that the owner has ratified; -1 if it has ratified none.
    """

    commits: tuple[UnbackfilledCommit, ...]
    latest_table_version: int


class Standing(Enum):
    """Whether an owner has a table.

    ``PROPOSED`` is a promise: the owner takes the table as soon as the commit that hands it over is in the
    log, and can't withdraw that promise. An ``ACTIVE`` owner ratifies commits. A ``RELEASED`` table was
    given back to the file system.
    """

    PROPOSED = "proposed"
    ACTIVE = "active"
    RELEASED = "released"


@dataclass(frozen=True, slots=True)
class OwnerStatus:
    """The relation of an owner to a table, and the versions that it knows.

    Attributes:
        standing: whether the owner has the table.
        latest_version: the newest version that it has ratified, or the version that handed the table over.
        backfilled_version: the newest version that it knows to be backfilled, with all before it.
        unbackfilled: the number of ratified commits that it still tracks.
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

        RFC managed-commits, "Commit Protocol". The owner writes the actions to a commit file, under
        ``_commits`` or in the log, and makes that file the version if no other commit is the version.

        Args:
            table: the table.
            version: the version to make; the one before it must be ratified.
            actions: the whole commit file.
            txn_id: the unique ``txnId`` in its ``commitInfo``. If an answer is lost, the commit is
                recognised by it.
            releases: whether the commit gives the table back to the file system. The owner ratifies nothing
                after it. All versions before it must be backfilled.

        Raises:
            CommitOwnerUnavailableError: the owner can't be reached; nothing was committed.
            CommitOutcomeUnknownError: the owner failed, and it is unknown whether it has ratified the
                commit.
            CommitOwnerError: the owner doesn't have the table, or doesn't take the commit.
            StorageError: the commit file can't be written; nothing was committed.
        """

    def get_commits(
        self, table: ManagedTable, start_version: int = 0, end_version: int | None = None
    ) -> GetCommitsResponse:
        """Return the un-backfilled commits of a table, and its latest version at the same moment.

        RFC managed-commits, "Getting Un-backfilled Commits from Commit Owner".

        Args:
            table: the table.
            start_version: the first version to return.
            end_version: the last version to return; None for the newest.

        Raises:
            CommitOwnerUnavailableError: the owner can't be reached.
            CommitOwnerError: the owner doesn't have the table.
        """

    def backfill_to_version(self, table: ManagedTable, version: int | None = None) -> int:
        """Copy un-backfilled commits into the log, one after the other.

        RFC managed-commits, "Commit Backfills". An existing copy stays as it is.

        Args:
            table: the table.
            version: the last version to backfill; None for all ratified versions.

        Returns:
            The newest version that is backfilled.

        Raises:
            CommitOwnerUnavailableError: the owner can't be reached.
            CommitOwnerError: the owner doesn't have the table, or hasn't ratified the version.
            CorruptLogError: the log has another commit than the ratified one at a version, or a ratified
                one is gone. Facts: version, path.
            StorageError: the store failed. Finished copies stay, and a repetition continues after them.
        """

    def propose(self, table: ManagedTable, version: int) -> None:
        """Agree to own a table from a version on, whose commit isn't made yet.

        RFC managed-commits, "Converting an existing filesystem based table to managed-commit table". Once
        this has returned, the owner takes the table whenever it finds that commit in the log. A new
        proposal for another version replaces the earlier one.

        Args:
            table: the table, with the configuration that the commit will write.
            version: the version that will hand the table over; 0 to create it.

        Raises:
            CommitOwnerUnavailableError: the owner can't be reached.
            CommitOwnerError: the owner doesn't agree.
            InvalidArgumentError: the owner doesn't understand the configuration.
        """

    def take_over(self, table: ManagedTable, version: int) -> None:
        """Record that the commit that hands the table over is in the log.

        Without this call, an owner that has agreed finds the commit when the table is used.

        Raises:
            CommitOwnerUnavailableError: the owner can't be reached.
            CommitOwnerError: the owner never agreed.
        """

    def forget(self, table: ManagedTable, version: int) -> None:
        """Delete the proposal of a table, because the commit that was to hand it over won't be made.

        Raises:
            CommitOwnerUnavailableError: the owner can't be reached.
        """

    def status(self, table: ManagedTable) -> OwnerStatus:
        """Return what the owner knows of a table. It should record nothing: dry runs call it.

        Raises:
            CommitOwnerUnavailableError: the owner can't be reached.
            CommitOwnerError: the owner doesn't have the table.
        """
