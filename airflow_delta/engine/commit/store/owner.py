"""`LedgerOwner`: a commit owner whose books are a `Ledger`, in a database or anywhere else.

managed-commits.md, "Commit Protocol", choice 1: a commit is

1. refused if the log has its version already, or the books do,
2. written to a file under ``_commits``,
3. **ratified**: one atomic step of the ledger makes the file the version, if it is the next one,
4. backfilled with all that are ratified before it, if the policy (`backfill_policy`) says so.

From step 3 on the commit is made, and whatever fails afterwards is a `DeltaWarning`. There is no lock and
no lease. The client can die between any two steps; what it leaves is mended by whoever comes next:

===========================================  =====================================  =====================
the client dies                              what is left                           mended
===========================================  =====================================  =====================
before a commit is ratified                  a file that is no version              by metadata cleanup
after it is ratified                         a version that only the owner knows    by the next backfill,
                                             of; it tells everybody who asks        anybody's
in between two copies of a backfill          fewer of those                         by the next backfill
after a copy, before the books know of it    a version in the log and the books     by the next backfill,
                                                                                    which compares them
after the commit that gives a table back     a table that nobody commits to, whose  by whoever asks the
is ratified                                  last version the owner tells           owner, and backfills
after a table was proposed                   a promise                              needs no mending
after its hand-over is in the log            a table that is the owner's, and the   by whoever uses it
                                             books don't say so                     first (`ownership`)
after a direct commit is in the log          books that lag behind the log          by the next commit
after a direct commit that gives a table     books that say the table is the        needs no mending: no
back is in the log                           owner's; the log says it isn't         log has its id
===========================================  =====================================  =====================

**Answers that get lost.** The ledger may ratify and not be able to say so. Asked again it recognises the
file by its uuid. If it doesn't answer, or doesn't track the commit any more, the log or the books tell by
the ``txnId`` whose commit the version is; so the same commit can also be sent again as a whole. Where even
that can't be told, it is a `CommitOutcomeUnknownError`.

**The log comes before the books.** ``<version>.json`` proves a version, even if the books don't know of it,
because they were restored from a backup. They catch up then, up to what the log proves. That the log and
the books have different commits for a version can only come from a writer who hasn't asked the owner;
then backfills and commits are refused, because two histories can't be put together.

**Direct commits** (choice 2 of the protocol) are put-if-absent into the log, which decides, and the books
follow it. All clients that want to make a version know the policy from the version before it, so that none
can be made in both ways.
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
from airflow_delta.engine.commit.store.catch_up import abreast, backfill, check_backfilled
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
    """A `CommitOwner` that keeps its books in a ledger.

    It has no state of its own: any number of them may share a ledger, in any number of processes.

    Args:
        ledger: the books.
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

        Sent again with the same ``txn_id``, a commit that was made is recognised.

        Raises:
            CommitOwnerUnavailableError: the books can't be reached; nothing was committed.
            CommitOutcomeUnknownError: the books failed, and whether the commit was made can't be told.
            CommitOwnerError: the owner doesn't have the table, or the version before isn't made.
            CorruptLogError: the log has another commit in the place of a ratified one; nothing was
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
        """The un-backfilled commits of a table; see `CommitOwner.get_commits`.

        Raises:
            CommitOwnerUnavailableError: the books can't be reached.
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
            CommitOwnerUnavailableError: the books can't be reached.
            CommitOwnerError: the owner doesn't have the table, or hasn't ratified the version.
            CorruptLogError: the log has another commit in the place of a ratified one, a ratified one is
                gone, or the log is behind the books. Facts: version, path, owner, latest.
            StorageError: the store failed.
        """
        books = TableBooks(self._ledger, table)
        entry = owned(books, books.entry())
        if version is not None and version > entry.latest_version:
            entry = abreast(books, entry, version)
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
            CommitOwnerUnavailableError: the books can't be reached.
            CommitOwnerError: the table's id was handed over before, or there is none.
            InvalidArgumentError: the configuration has a key that means nothing here, or no policy.
            StorageError: the store failed.
        """
        books = TableBooks(self._ledger, table)
        check_conf(table.conf, owner=table.owner, table=table.uri)
        propose(books, version)

    def take_over(self, table: ManagedTable, version: int) -> None:
        """Learn that a table was handed over; see `CommitOwner.take_over`. The log is asked for proof.

        Raises:
            CommitOwnerUnavailableError: the books can't be reached.
            CommitOwnerError: the owner never agreed, or the commit of that version isn't a hand-over.
            StorageError: the store failed.
        """
        take_over(TableBooks(self._ledger, table), version)

    def forget(self, table: ManagedTable, version: int) -> None:
        """Learn that a table won't be handed over; see `CommitOwner.forget`.

        Raises:
            CommitOwnerUnavailableError: the books can't be reached.
        """
        forget(TableBooks(self._ledger, table), version)

    def status(self, table: ManagedTable) -> OwnerStatus:
        """What the books say of a table; see `CommitOwner.status`.

        Raises:
            CommitOwnerUnavailableError: the books can't be reached.
            CommitOwnerError: the owner doesn't have the table.
            StorageError: the store failed; only of a table that was handed over and not used since.
        """
        books = TableBooks(self._ledger, table)
        entry = owned(books, books.entry())
        return OwnerStatus(
            entry.standing, entry.latest_version, entry.backfilled_version, len(entry.commits)
        )

    def relocate(self, table: ManagedTable, *, opened: Opener = open_storage) -> str:
        """Note that a table has moved to where it is opened now.

        A copy looks the same as a table that has moved. So this is for whoever has moved it to say, once
        the old place is gone and while nobody commits; then all that the owner has ratified must be at the
        new place. The old place is looked at if it is in the same store.

        Args:
            table: the table at its new place.
            opened: opens a location of the same store, to look at the old place; by itself with what the
                environment knows, and without storage options.

        Returns:
            Where the owner had it before (`ManagedTable.location`).

        Raises:
            CommitOwnerUnavailableError: the books can't be reached.
            CommitOwnerError: the owner doesn't have the table, not all of it is at the new place, or it is
                still at the old one.
            StorageError: the store failed.
        """
        return relocate(TableBooks(self._ledger, table), opened)

    def accept_log(self, table: ManagedTable, version: int) -> int:
        """Give up ratified commits that are lost, so that the table can be used again.

        For when the log is behind the books, and nothing can be restored: the table's directory was set
        back to an older state, or files of commits that weren't backfilled are gone. The books then say
        what the log says: a version is the newest one, and the next commit makes the one after it.

        **All versions above it are given up for good**, including what is still there of them: readers may
        have seen them, and their numbers are used again, for other commits. Whoever has kept something of
        them (a streaming query, a sensor, a job that goes on from a version) has to start anew. So restore
        what can be restored before; stop all writers; and name the version, which isn't taken if more than
        that can be kept. What is left of the ratified commits, as far as they follow the log without a gap,
        is backfilled first.

        Where the log has another commit than the ratified one, that of the log is what stays.

        Args:
            table: the table.
            version: the newest version that is left.

        Returns:
            The newest version that was ratified; those up to it are given up.

        Raises:
            CommitOwnerUnavailableError: the books can't be reached.
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
        # That nobody can commit by it must not keep the table from getting rid of it.
        return BackfillPolicy()
