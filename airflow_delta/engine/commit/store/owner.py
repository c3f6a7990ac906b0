"""`LedgerOwner`: a commit owner that keeps which commits are ratified in a `Ledger`, such as a database.

Spec: managed-commits.md, "Commit Protocol", choice 1. A commit is

1. refused if the log or the ledger has its version already,
2. written to a file under ``_commits``,
3. **ratified**: one atomic step of the ledger makes the file the version, if it is the next one,
4. backfilled with all that are ratified before it, if the policy (`backfill_policy`) says so.

From step 3 on the commit is made; what fails afterwards is a `DeltaWarning`. There is no lock and no lease.
A client may die between any two steps:

===========================================  =====================================  =====================
the client dies                              what is left                           repaired by
===========================================  =====================================  =====================
before a commit is ratified                  a file that is no version              metadata cleanup
after it is ratified                         a version that readers get from the    the next backfill, of
                                             owner alone                            any client
in between two copies of a backfill          fewer copies                           the next backfill
after a copy, before it is recorded          a version in the log and the ledger    the next backfill,
                                                                                    which compares them
after the commit that releases a table       a table that nobody commits to; its    the next client, which
is ratified                                  last version is with the owner alone   backfills it
after a table was proposed                   a proposal                             nobody needs to
after its hand-over is in the log            a table that is the owner's, and is    the next client
                                             only proposed in the ledger            (`ownership`)
after a direct commit is in the log          a ledger that is behind the log        the next commit
after a direct commit that releases a        an active entry in the ledger          nobody needs to: no
table is in the log                                                                 log has its id
===========================================  =====================================  =====================

* A ledger may ratify a commit and its response be lost. On the next try it recognises the file by its uuid.
  If it doesn't respond, the ``txnId`` of the version decides whose it is (`ratification`), so that a client
  can also repeat a whole commit. Where that can't be read either, it raises `CommitOutcomeUnknownError`.
* The log is right where the ledger is behind it (`catch_up`). If they have different commits at a version,
  a writer has gone past the owner; backfills and commits are refused then: two histories can't be joined.
* Direct commits (choice 2 of the protocol) are put-if-absent into the log, and recorded afterwards. All
  clients read the policy for a version from the version before it, so that none is committed in both ways.
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
from airflow_delta.engine.commit.store.commit_store import Ledger
from airflow_delta.engine.commit.store.ownership import (
    forget,
    not_handed_over,
    owned,
    propose,
    take_over,
)
from airflow_delta.engine.commit.store.ratification import Proposal, make_version
from airflow_delta.engine.commit.store.relocation import Opener, relocate
from airflow_delta.engine.commit.store.table_entry import TableBooks
from airflow_delta.engine.errors import InvalidTableError
from airflow_delta.engine.storage.location import open_storage

__all__ = ["LedgerOwner"]


class LedgerOwner:
    """A `CommitOwner` that keeps the ratified commits of its tables in a ledger.

    It has no state of its own: any number of them, in any number of processes, may share a ledger.

    Args:
        ledger: stores which commits are ratified.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

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
            CommitOwnerUnavailableError: the ledger can't be reached; nothing was committed.
            CommitOutcomeUnknownError: the ledger failed; whether the commit was made can't be found out.
            CommitOwnerError: the owner doesn't have the table, or the version before isn't made.
            CorruptLogError: the log has another commit than the ratified one at a version; nothing was
                committed.
            InvalidTableError: the policy in the table's configuration isn't one.
            StorageError: the store failed; nothing was committed.
        """
        policy = _policy(table, releases=releases)
        books = TableBooks(self._ledger, table)
        return make_version(books, Proposal(version, actions, txn_id, releases), policy)

    def get_commits(
        self, table: ManagedTable, start_version: int = 0, end_version: int | None = None
    ) -> GetCommitsResponse:
        """Return the un-backfilled commits of a table; see `CommitOwner.get_commits`.

        Raises:
            CommitOwnerUnavailableError: the ledger can't be reached.
            CommitOwnerError: the owner doesn't have the table.
            StorageError: the store failed; only of a table that was handed over and not used since.
        """
        books = TableBooks(self._ledger, table)
        entry = owned(books, books.entry())
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
            CommitOwnerUnavailableError: the ledger can't be reached.
            CommitOwnerError: the owner doesn't have the table, or hasn't ratified the version.
            CorruptLogError: the log has another commit than the ratified one at a version, a ratified one
                is gone, or the log lacks backfilled ones. Facts: version, path, owner, latest.
            StorageError: the store failed.
        """
        books = TableBooks(self._ledger, table)
        entry = owned(books, books.entry())
        if version is not None and version > entry.latest_version:
            entry = catch_up(books, entry, version)
        if entry.standing is Standing.PROPOSED:
            raise not_handed_over(books, entry)
        target = entry.latest_version if version is None else version
        if target > entry.latest_version:
            raise books.refusal(
                f"version {target} can't be backfilled: the newest version that the owner "
                f"{table.owner!r} has ratified is {entry.latest_version}",
                version=target,
                latest=entry.latest_version,
            )
        check_backfilled(books, entry)
        due = [commit for commit in entry.commits if commit.version <= target]
        backfill(books, due, latest=entry.latest_version)
        return max(target, entry.backfilled_version)

    def propose(self, table: ManagedTable, version: int) -> None:
        """Agree to own a table; see `CommitOwner.propose`.

        Raises:
            CommitOwnerUnavailableError: the ledger can't be reached.
            CommitOwnerError: the table's id was handed over before, or there is none.
            InvalidArgumentError: the configuration has an unknown key, or a value that is no policy.
            StorageError: the store failed.
        """
        books = TableBooks(self._ledger, table)
        check_conf(table.conf, owner=table.owner, table=table.uri)
        propose(books, version)

    def take_over(self, table: ManagedTable, version: int) -> None:
        """Record that a table was handed over, if the log proves it; see `CommitOwner.take_over`.

        Raises:
            CommitOwnerUnavailableError: the ledger can't be reached.
            CommitOwnerError: the owner never agreed, or the commit of that version isn't a hand-over.
            StorageError: the store failed.
        """
        take_over(TableBooks(self._ledger, table), version)

    def forget(self, table: ManagedTable, version: int) -> None:
        """Delete the proposal of a table that won't be handed over; see `CommitOwner.forget`.

        Raises:
            CommitOwnerUnavailableError: the ledger can't be reached.
        """
        forget(TableBooks(self._ledger, table), version)

    def status(self, table: ManagedTable) -> OwnerStatus:
        """Return what the ledger has recorded of a table; see `CommitOwner.status`.

        Raises:
            CommitOwnerUnavailableError: the ledger can't be reached.
            CommitOwnerError: the owner doesn't have the table.
            StorageError: the store failed; only of a table that was handed over and not used since.
        """
        books = TableBooks(self._ledger, table)
        entry = owned(books, books.entry())
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
            opened: opens a location of the same store, to check the old one; by default with credentials
                of the environment, without storage options.

        Returns:
            The location that the owner had recorded (`ManagedTable.location`).

        Raises:
            CommitOwnerUnavailableError: the ledger can't be reached.
            CommitOwnerError: the owner doesn't have the table, not all of it is at the new location, or it
                is still at the old one.
            StorageError: the store failed.
        """
        return relocate(TableBooks(self._ledger, table), opened)

    def accept_log(self, table: ManagedTable, version: int) -> int:
        """Give up ratified commits that are lost, so that the table can be used again.

        Use it where the log lacks ratified commits and nothing can be restored: the table's directory was
        restored to an older state, or un-backfilled commits are gone. Ratified commits that follow the log
        without a gap are backfilled first; then the named version is the newest, and the next commit makes
        the one after it.

        **All versions above it are given up for good**, and their numbers are used again for other commits,
        although readers may have seen them. Streaming queries, sensors and jobs that have read them have to
        start again. So first restore what can be restored, and stop all writers. A version is refused if a
        newer one can be kept.

        Where the log has another commit than the ratified one, the log's stays.

        Args:
            table: the table.
            version: the newest version that is left.

        Returns:
            The newest version that was ratified; those up to it are given up.

        Raises:
            CommitOwnerUnavailableError: the ledger can't be reached.
            CommitOwnerError: the owner doesn't have the table, nothing that it has ratified is missing, or
                it is another version that is the newest one left; the message says which, and what is
                missing.
            StorageError: the store failed.
        """
        return accept_log(TableBooks(self._ledger, table), version)


def _policy(table: ManagedTable, *, releases: bool) -> BackfillPolicy:
    try:
        return BackfillPolicy.of(table.conf, table=table.uri)
    except InvalidTableError:
        if not releases:
            raise
        # A table must be able to leave an owner by whose policy nobody can commit.
        return BackfillPolicy()
