"""How a commit becomes a version of a table whose owner keeps a ledger; `LedgerOwner` tells the rest.

What is here is one attempt, from the look at the log to the answer for the client:

* `make_version`: un-backfilled, ratified by the ledger, and backfilled if the policy says so; or directly
  into the log;
* the answers that a ledger doesn't give: whose a version is then is read from the ``txnId`` of its commit,
  where the books or the log have it.
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
from airflow_delta.engine.commit.store.catch_up import abreast, backfill
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
"""How often a ledger is asked to ratify, if it doesn't answer."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A commit that is to be made.

    Attributes:
        version: the version it is to be.
        actions: the whole commit file.
        txn_id: the ``txnId`` in its ``commitInfo``.
        releases: whether it gives the table back to the file system.
    """

    version: int
    actions: bytes
    txn_id: str
    releases: bool


def make_version(books: TableBooks, proposal: Proposal, policy: BackfillPolicy) -> CommitResponse:
    """Try to make a version; see `LedgerOwner.commit`."""
    version = proposal.version
    entry = abreast(books, owned(books, books.entry()), version)
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
    """Have a commit ratified: None if it was, the answer to its client if it's too late for that."""
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
    """Whose the version is, if the ledger hasn't said that it is ours.

    Args:
        books: the books of the table.
        proposal: our commit.
        failure: why the ledger hasn't answered once; then it may have ratified our commit all the same,
            or still do so.

    Raises:
        CommitOutcomeUnknownError: there is no telling.
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
    """Whose the version is, of an owner that is out of reach: another client may have backfilled it."""
    try:
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
    """As `_own`, of a version that was there before we came."""
    try:
        return _own(books, entry, proposal)
    except ObjectNotFoundError:
        # So old that the log was cleaned up since.
        return None


def _own(books: TableBooks, entry: Entry, proposal: Proposal) -> LogCommit | None:
    """The file of a version that is made, if it is our commit; None if it is another one.

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
    """Our commit in the log. Its time is by the clock here; in-commit timestamps are what counts."""
    version, now_ms = proposal.version, time.time_ns() // 1_000_000
    return Commit(version, commit_path(version), len(proposal.actions), now_ms)


def _commit_directly(books: TableBooks, entry: Entry, proposal: Proposal) -> CommitResponse:
    """Put a commit into the log, which decides; and then into the books."""
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
    """The file of our commit, the newest one, after an attempt to backfill it with those before it."""
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
