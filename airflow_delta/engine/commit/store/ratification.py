"""Make a commit a version of a table whose commit owner keeps a ledger; called by `LedgerOwner`.

`make_version` is one attempt, from the look at the log to the response for the client. It writes the
un-backfilled commit, has the ledger ratify it, and backfills it if the policy says so; or it writes the
commit directly into the log.

Where the ledger doesn't answer, the ``txnId`` of the version's commit decides which client made it; that
commit is found through the ledger or in the log.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from airflow_delta.engine.commit.backfill_files import write_unbackfilled
from airflow_delta.engine.commit.filesystem import FileSystemCommitter
from airflow_delta.engine.commit.owner import CommitResponse, Standing
from airflow_delta.engine.commit.post_commit import warn_afterwards
from airflow_delta.engine.commit.store.backfill_policy import BackfillPolicy
from airflow_delta.engine.commit.store.catch_up import backfill, catch_up
from airflow_delta.engine.commit.store.commit_store import Entry
from airflow_delta.engine.commit.store.ownership import not_handed_over, owned
from airflow_delta.engine.commit.store.table_entry import TableBooks
from airflow_delta.engine.errors import (
    CommitOutcomeUnknownError,
    CommitOwnerError,
    CommitOwnerUnavailableError,
    CorruptLogError,
    ObjectNotFoundError,
    StorageError,
)
from airflow_delta.engine.log.commit_file import read_commit_info
from airflow_delta.engine.log.files import Commit, LogCommit, UnbackfilledCommit, commit_path

__all__ = ["Proposal", "make_version"]

_ASKED = 3
"""How many times ratification is tried while the ledger doesn't answer."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A commit that a client proposes as the next version.

    Attributes:
        version: the proposed version.
        actions: the whole commit file.
        txn_id: the ``txnId`` in its ``commitInfo``.
        releases: whether the commit returns the table to file system commits.
    """

    version: int
    actions: bytes
    txn_id: str
    releases: bool


def make_version(books: TableBooks, proposal: Proposal, policy: BackfillPolicy) -> CommitResponse:
    """Try to make a version; see `LedgerOwner.commit`."""
    version = proposal.version
    entry = catch_up(books, owned(books, books.entry()), version)
    if entry.standing is not Standing.PROPOSED and version <= entry.latest_version:
        return CommitResponse(_own_or_none(books, entry, proposal), entry.latest_version)
    _check_next(books, entry, version)
    if policy.direct:
        return _commit_directly(books, entry, proposal)
    if proposal.releases:
        backfill(books, entry.commits, latest=entry.latest_version)
    commit = write_unbackfilled(books.table.storage, version, proposal.actions)
    taken = _ratified(books, commit, proposal)
    if taken is not None:
        return taken
    if proposal.releases:
        return CommitResponse(_backfilled(books, [commit], proposal), version)
    if policy.is_due(version):
        due = [*entry.commits, commit]
        return CommitResponse(_backfilled(books, due, proposal), version)
    return CommitResponse(commit, version)


def _check_next(books: TableBooks, entry: Entry, version: int) -> None:
    """Make sure that a version above the newest one may be made."""
    owner, latest = books.table.owner, entry.latest_version
    if entry.standing is Standing.PROPOSED:
        raise not_handed_over(books, entry)
    if entry.standing is Standing.RELEASED:
        raise books.refusal(
            f"the owner {owner!r} doesn't take version {version}: it has given the table back to the file "
            f"system with version {latest}. Backfill that version, if it isn't in the log yet, and open "
            "the table anew",
            version=version,
            latest=latest,
        )
    if version > latest + 1:
        raise books.refusal(
            f"the owner {owner!r} doesn't take version {version}: the newest version that it has ratified "
            f"is {latest}, and {commit_path(version - 1)} isn't there to prove that there are more. If its "
            "books were restored from a backup, the commits ratified since and not backfilled are lost; "
            "open the table anew",
            version=version,
            latest=latest,
        )


def _ratified(
    books: TableBooks, commit: UnbackfilledCommit, proposal: Proposal
) -> CommitResponse | None:
    """Let the ledger ratify a commit; None if it did, else the response to a client that was too late."""
    failure: CommitOwnerUnavailableError | None = None
    for _ in range(_ASKED):
        try:
            if books.ask(
                lambda: books.ledger.ratify(books.table_id, commit, releases=proposal.releases)
            ):
                return None
            break
        except CommitOwnerUnavailableError as error:
            failure = error
    response = _not_ratified(books, proposal, failure)
    ours = response.commit is not None and response.commit.path == commit.path
    return None if ours else response


def _not_ratified(
    books: TableBooks, proposal: Proposal, failure: CommitOwnerUnavailableError | None
) -> CommitResponse:
    """Find out which client made the version, where the ledger hasn't confirmed that ours did.

    Args:
        books: the table's entry in the commit store.
        proposal: our commit.
        failure: why the ledger didn't answer; None if it did. Without an answer it may have ratified our
            commit all the same, or may still do so.

    Raises:
        CommitOutcomeUnknownError: it can't be found out.
        CommitOwnerError: nobody has made the version, and ours isn't taken.
        StorageError: the store failed; our commit wasn't ratified.
    """
    version = proposal.version
    try:
        entry = books.entry()
        if version <= entry.latest_version:
            return CommitResponse(_own(books, entry, proposal), entry.latest_version)
    except StorageError as error:
        if failure is None:
            raise
        raise _unknown(books, proposal, failure) from error
    except CommitOwnerError:
        if failure is None:
            raise
        return _told_by_log(books, proposal, failure)
    if failure is not None:
        raise _unknown(books, proposal, failure)
    _check_next(books, entry, version)
    raise books.refusal(
        f"the owner {books.table.owner!r} hasn't ratified version {version}, although it is the next one: "
        f"its books have versions up to {entry.backfilled_version} as backfilled; try again",
        version=version,
        latest=entry.latest_version,
    )


def _told_by_log(
    books: TableBooks, proposal: Proposal, failure: CommitOwnerUnavailableError
) -> CommitResponse:
    """Find out from the log which client made the version, while the owner is out of reach."""
    try:
        # Another client may have backfilled it.
        commit = _own_in_log(books, proposal)
    except StorageError as error:
        raise _unknown(books, proposal, failure) from error
    return CommitResponse(commit, proposal.version)


def _unknown(
    books: TableBooks, proposal: Proposal, failure: CommitOwnerUnavailableError
) -> CommitOutcomeUnknownError:
    return CommitOutcomeUnknownError(
        f"the owner {books.table.owner!r} failed while it was to ratify version {proposal.version} "
        f"({failure.message}), and nothing tells whether it did: look for txnId {proposal.txn_id} in that "
        "version, once the owner is there again, before trying again",
        table=books.table.uri,
        version=proposal.version,
        txn_id=proposal.txn_id,
    )


def _own_or_none(books: TableBooks, entry: Entry, proposal: Proposal) -> LogCommit | None:
    """Like `_own`, for a version that existed before this attempt."""
    try:
        return _own(books, entry, proposal)
    except ObjectNotFoundError:
        # So old that the log was cleaned up since.
        return None


def _own(books: TableBooks, entry: Entry, proposal: Proposal) -> LogCommit | None:
    """Return the commit of an existing version if it is ours; None if another client made it.

    Raises:
        StorageError: it can't be read.
    """
    tracked = next((each for each in entry.commits if each.version == proposal.version), None)
    if tracked is None:
        return _own_in_log(books, proposal)
    return tracked if _is_own(books, proposal, tracked.path) else None


def _own_in_log(books: TableBooks, proposal: Proposal) -> LogCommit | None:
    path = commit_path(proposal.version)
    return _in_log(proposal) if _is_own(books, proposal, path) else None


def _is_own(books: TableBooks, proposal: Proposal, path: str) -> bool:
    try:
        info = read_commit_info(books.table.storage, proposal.version, path=path)
    except CorruptLogError:
        # It can't be parsed, and so isn't what we wrote.
        return False
    return info is not None and info.get("txnId") == proposal.txn_id


def _in_log(proposal: Proposal) -> Commit:
    """Describe our commit in the log, with this machine's time; readers use in-commit timestamps."""
    version, now_ms = proposal.version, time.time_ns() // 1_000_000
    return Commit(version, commit_path(version), len(proposal.actions), now_ms)


def _commit_directly(books: TableBooks, entry: Entry, proposal: Proposal) -> CommitResponse:
    """Write a commit into the log, which decides whose it is, then record it in the commit store."""
    version, storage = proposal.version, books.table.storage
    backfill(books, entry.commits, latest=entry.latest_version)
    committer = FileSystemCommitter(storage, table=books.table.uri)
    made = committer.commit(version, proposal.actions, txn_id=proposal.txn_id)
    try:
        if made and proposal.releases:
            # A ledger ends a table only together with a commit that it tracks.
            commit = write_unbackfilled(storage, version, proposal.actions)
            books.ask(lambda: books.ledger.ratify(books.table_id, commit, releases=True))
        books.observe(version)
    except Exception as error:  # noqa: BLE001 - the version is there; nothing may make it look failed
        warn_afterwards(
            f"{books.table.uri}: version {version} is there, but the books of the owner "
            f"{books.table.owner!r} can't be brought up to date ({error}); the next commit does it"
        )
    return CommitResponse(_in_log(proposal) if made else None, version)


def _backfilled(
    books: TableBooks, commits: Sequence[UnbackfilledCommit], proposal: Proposal
) -> LogCommit:
    """Try to backfill our commit and those before it; return where our commit is afterwards."""
    ours = commits[-1]
    try:
        backfill(books, commits, {ours.path: proposal.actions}, latest=ours.version)
    except CommitOwnerUnavailableError as error:
        warn_afterwards(
            f"{books.table.uri}: version {ours.version} is there and backfilled, but that couldn't be "
            f"noted ({error}); the next backfill does it"
        )
    except Exception as error:  # noqa: BLE001 - the version is there; nothing may make it look failed
        warn_afterwards(
            f"{books.table.uri}: version {ours.version} is there, but couldn't be backfilled as it should "
            f"be ({error}); the next backfill goes on from there"
        )
        return ours
    return _in_log(proposal)
