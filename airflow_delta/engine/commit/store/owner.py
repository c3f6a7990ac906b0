"""`StoreBackedOwner`: a commit owner that records its ratified commits in a `CommitStore`.

A commit is

1. refused if the log or the commit store has its version already,
2. written to a file under ``_commits``,
3. ratified: one atomic step of the commit store makes this file the version, if it is the next one,
4. backfilled with all ratified commits before it, if the policy says so (`backfill_policy`).

From step 3 on the commit is made, and failures are only warnings. There is no lock and no lease: a client
may die between any two steps, and the next one repairs what it has left.
docs/explanation/managed-commits.md has the reasons and a table of failures.

Spec: RFC managed-commits, "Commit Protocol", choice 1; choice 2 with the policy ``"direct"``.
"""

from __future__ import annotations

from airflow_delta.engine.commit.owner import (
    CommitResponse,
    GetCommitsResponse,
    ManagedTable,
    OwnerStatus,
    Standing,
)
from airflow_delta.engine.commit.store.acceptance import accept_log
from airflow_delta.engine.commit.store.backfill_policy import BackfillPolicy, check_conf
from airflow_delta.engine.commit.store.catch_up import backfill, catch_up, check_backfilled
from airflow_delta.engine.commit.store.commit_store import CommitStore
from airflow_delta.engine.commit.store.ownership import (
    activate_if_owned,
    foresee_ownership,
    forget,
    make_not_handed_over_error,
    propose,
    take_over,
)
from airflow_delta.engine.commit.store.ratification import Proposal, make_version
from airflow_delta.engine.commit.store.relocation import Opener, relocate
from airflow_delta.engine.commit.store.table_commit_store import TableCommitStore
from airflow_delta.engine.errors import InvalidTableError
from airflow_delta.engine.storage.location import open_storage

__all__ = ["StoreBackedOwner"]


class StoreBackedOwner:
    """A `CommitOwner` that keeps the ratified commits of its tables in a commit store.

    It has no state of its own. Any number of owners, in any number of processes, may share a commit store.

    Args:
        commit_store: stores which commits are ratified.
    """

    def __init__(self, commit_store: CommitStore) -> None:
        self._commit_store = commit_store

    def commit(
        self,
        table: ManagedTable,
        version: int,
        actions: bytes,
        *,
        txn_id: str,
        releases: bool = False,
    ) -> CommitResponse:
        """Make a version of a table; see `CommitOwner.commit`.

        A commit that is repeated with the same ``txn_id`` is recognised.

        Raises:
            CommitOwnerUnavailableError: the commit store can't be reached; nothing was committed.
            CommitOutcomeUnknownError: the commit store failed, and it is unknown whether the commit was
                made.
            CommitOwnerError: the owner doesn't have the table, or the version before isn't made.
            CorruptLogError: the log has another commit than the ratified one at a version; nothing was
                committed.
            InvalidTableError: the backfill policy in the table's configuration is invalid.
            StorageError: the store failed; nothing was committed.
        """
        policy = _read_policy(table, releases=releases)
        table_store = TableCommitStore(self._commit_store, table)
        return make_version(table_store, Proposal(version, actions, txn_id, releases), policy)

    def get_commits(
        self, table: ManagedTable, start_version: int = 0, end_version: int | None = None
    ) -> GetCommitsResponse:
        """Return the un-backfilled commits of a table; see `CommitOwner.get_commits`.

        Raises:
            CommitOwnerUnavailableError: the commit store can't be reached.
            CommitOwnerError: the owner doesn't have the table.
            StorageError: the store failed; only possible if the table wasn't used since the hand-over.
        """
        table_store = TableCommitStore(self._commit_store, table)
        entry = activate_if_owned(table_store, table_store.load_entry())
        if entry.standing is Standing.PROPOSED:
            return GetCommitsResponse((), -1)
        wanted = tuple(
            commit
            for commit in entry.commits
            if start_version <= commit.version
            and (end_version is None or commit.version <= end_version)
        )
        return GetCommitsResponse(wanted, entry.latest_version)

    def backfill_to_version(self, table: ManagedTable, version: int | None = None) -> int:
        """Backfill commits; see `CommitOwner.backfill_to_version`.

        Raises:
            CommitOwnerUnavailableError: the commit store can't be reached.
            CommitOwnerError: the owner doesn't have the table, or hasn't ratified the version.
            CorruptLogError: the log has another commit than the ratified one at a version, a ratified one
                is gone, or the log lacks backfilled ones. Facts: version, path, owner, latest.
            StorageError: the store failed.
        """
        table_store = TableCommitStore(self._commit_store, table)
        entry = activate_if_owned(table_store, table_store.load_entry())
        if version is not None and version > entry.latest_version:
            entry = catch_up(table_store, entry, version)
        if entry.standing is Standing.PROPOSED:
            raise make_not_handed_over_error(table_store, entry)
        target = entry.latest_version if version is None else version
        if target > entry.latest_version:
            raise table_store.make_error(
                f"version {target} can't be backfilled: the newest version that the owner "
                f"{table.owner!r} has ratified is {entry.latest_version}",
                version=target,
                latest=entry.latest_version,
            )
        check_backfilled(table_store, entry)
        due = [commit for commit in entry.commits if commit.version <= target]
        backfill(table_store, due, latest=entry.latest_version)
        return max(target, entry.backfilled_version)

    def propose(self, table: ManagedTable, version: int) -> None:
        """Agree to own a table; see `CommitOwner.propose`.

        Raises:
            CommitOwnerUnavailableError: the commit store can't be reached.
            CommitOwnerError: the table's id was handed over before, or there is none.
            InvalidArgumentError: the configuration has an unknown key or an invalid policy.
            StorageError: the store failed.
        """
        table_store = TableCommitStore(self._commit_store, table)
        check_conf(table.conf, owner=table.owner, table=table.uri)
        propose(table_store, version)

    def take_over(self, table: ManagedTable, version: int) -> None:
        """Record that a table was handed over, if the log proves it; see `CommitOwner.take_over`.

        Raises:
            CommitOwnerUnavailableError: the commit store can't be reached.
            CommitOwnerError: the owner never agreed, or the commit of that version isn't a hand-over.
            StorageError: the store failed.
        """
        take_over(TableCommitStore(self._commit_store, table), version)

    def forget(self, table: ManagedTable, version: int) -> None:
        """Delete the proposal of a table that won't be handed over; see `CommitOwner.forget`.

        Raises:
            CommitOwnerUnavailableError: the commit store can't be reached.
        """
        forget(TableCommitStore(self._commit_store, table), version)

    def status(self, table: ManagedTable) -> OwnerStatus:
        """Return what the commit store has recorded of a table; see `CommitOwner.status`.

        Records nothing, not even that the table was handed over.

        Raises:
            CommitOwnerUnavailableError: the commit store can't be reached.
            CommitOwnerError: the owner doesn't have the table.
            StorageError: the store failed; only possible if the table wasn't used since the hand-over.
        """
        table_store = TableCommitStore(self._commit_store, table)
        entry = foresee_ownership(table_store, table_store.load_entry())
        return OwnerStatus(
            entry.standing, entry.latest_version, entry.backfilled_version, len(entry.commits)
        )

    def relocate(self, table: ManagedTable, *, opened: Opener = open_storage) -> str:
        """Record that a table has moved to the location where it is opened now.

        A copy looks the same as a table that has moved. So call this after the move, once the old location
        is gone and while nobody commits; all that the owner has ratified must be at the new location. The
        old location is checked if it is in the same store.

        Args:
            table: the table at its new location.
            opened: opens a location of the same store, to check the old one; by default with
                credentials of the environment, without storage options.

        Returns:
            The location that the owner had recorded (`ManagedTable.location`).

        Raises:
            CommitOwnerUnavailableError: the commit store can't be reached.
            CommitOwnerError: the owner doesn't have the table, not all of it is at the new location, or it
                is still at the old one.
            StorageError: the store failed.
        """
        return relocate(TableCommitStore(self._commit_store, table), opened)

    def accept_log(self, table: ManagedTable, version: int, *, dry_run: bool = False) -> int:
        """Give up ratified commits that are lost, so that the table can be used again.

        Use it if the log lacks ratified commits and nothing can be restored: the table's directory was
        restored to an older state, or un-backfilled commits are gone. Ratified commits that follow the log
        without a gap are backfilled first. Then the given version is the newest one. It is refused if a
        newer one can be kept. If the log has another commit than the ratified one at a version, the log's
        stays.

        **All versions above it are given up for good**, and their numbers are used again for other commits,
        although readers may have seen them. Streaming queries, sensors and jobs that have read them have to
        start again. So first restore what can be restored, and stop all writers.

        Args:
            table: the table.
            version: the newest version that is left.
            dry_run: only check whether the version would be accepted, and record nothing.

        Returns:
            The newest version that was ratified, the last one that is given up.

        Raises:
            CommitOwnerUnavailableError: the commit store can't be reached.
            CommitOwnerError: the owner doesn't have the table, no ratified commit is missing, or another
                version is the newest one left; the message says which, and what is missing.
            StorageError: the store failed.
        """
        return accept_log(TableCommitStore(self._commit_store, table), version, dry_run=dry_run)


def _read_policy(table: ManagedTable, *, releases: bool) -> BackfillPolicy:
    # All clients read the policy for a version from the version before it. So no version is committed both
    # by ratification and directly.
    try:
        return BackfillPolicy.of(table.conf, table=table.uri)
    except InvalidTableError:
        if not releases:
            raise
        # A table must be able to leave its owner even if its policy is invalid.
        return BackfillPolicy()
