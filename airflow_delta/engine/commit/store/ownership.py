"""How a commit owner gets a table, and how it notices that it has got one.

managed-commits.md, "Converting an existing filesystem based table to managed-commit table". A hand-over is
a commit of the file system: it counts as soon as it is in the log, whether the owner has been told or not.
So the log decides what becomes of a proposal, and the owner looks there whenever it has to do with a table
that it has agreed to take:

==============================================  =====================================================
the log at the version of the proposal          the table
==============================================  =====================================================
a ``metaData`` with the table's id as           is the owner's: the entry becomes active, by whoever
``tableId`` of the owner's configuration        sees it first
another commit                                  was changed by another writer first; the proposal stays
                                                until its client says to forget it or proposes anew, or
                                                the next one comes to propose a table there
nothing                                         isn't the owner's yet, and may be at any time
nothing, and later versions are there           is the owner's, if its metadata says so (`owned`): the
                                                commit was there, and was cleaned up
==============================================  =====================================================

The log may be between two states while it is looked at, so one read of the commit tells them apart.

A location may have entries of other ids, even active ones: a hand-over that was never finished, a directory
that was deleted and a table made anew in its place, a table that was given back without the owner being
told. Nobody can use those any more, since no log has their ids, and they don't keep a table from being
handed over. Of two that are proposed at the same time, the log takes one. A client that has lost may be
proposing anew for the next version while somebody else finds its version taken: so what is forgotten is
a proposal for a version, and never the one for the next.
"""

from __future__ import annotations

import json
from contextlib import suppress

from airflow_delta.engine.commit.backfill_files import newest_in_log
from airflow_delta.engine.commit.owner import Standing
from airflow_delta.engine.commit.store.commit_store import Entry
from airflow_delta.engine.commit.store.table_entry import TableBooks
from airflow_delta.engine.errors import (
    CommitOwnerError,
    InvalidTableError,
    NoBooksError,
    ObjectNotFoundError,
    StorageError,
)
from airflow_delta.engine.features.managed_commits import TABLE_ID
from airflow_delta.engine.log.files import commit_path
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.storage.base import Storage

__all__ = [
    "activated",
    "forget",
    "is_handed_over",
    "not_handed_over",
    "owned",
    "propose",
    "take_over",
]


def activated(books: TableBooks, entry: Entry) -> Entry:
    """The entry of a table; active, if it was proposed and the log tells that it was handed over.

    Raises:
        CommitOwnerUnavailableError: the books can't be reached.
        StorageError: the store failed.
    """
    if entry.standing is not Standing.PROPOSED or not is_handed_over(books.table.storage, entry):
        return entry
    books.ask(lambda: books.ledger.activate(entry.table_id))
    return books.entry()


def owned(books: TableBooks, entry: Entry) -> Entry:
    """As `activated`, of a table whose own metadata has told the id of the entry.

    Only a hand-over puts an id into a table's metadata. So where its commit isn't in the log any more, as
    the log was cleaned up since, the table is the owner's all the same; and what the log has of it the
    owner didn't make, but has to go by.

    Raises:
        CommitOwnerUnavailableError: the books can't be reached.
        StorageError: the store failed.
    """
    entry = activated(books, entry)
    if entry.standing is not Standing.PROPOSED:
        return entry
    storage = books.table.storage
    newest = newest_in_log(storage, entry.owned_from)
    # Looked at again, as the commit may have come in between.
    if newest is None or is_handed_over(storage, entry) is False:
        return entry
    books.ask(lambda: books.ledger.activate(entry.table_id))
    books.observe(newest)
    return books.entry()


def propose(books: TableBooks, version: int) -> None:
    """Agree to own a table; see `CommitOwner.propose`."""
    # Books that aren't there have nothing to say, and are begun by this.
    with suppress(NoBooksError):
        _check_new(books, version)
        _forget_lost(books)
    books.ask(lambda: books.ledger.propose(books.table_id, books.table.location, version))


def _check_new(books: TableBooks, version: int) -> None:
    """Make sure that a table wasn't handed over before."""
    entry = books.find()
    if entry is None:
        return
    entry = activated(books, entry)
    if entry.standing is not Standing.PROPOSED:
        raise books.refusal(
            f"the table with the id {entry.table_id} was handed over with version "
            f"{entry.owned_from} before: an id is for one time. Use a new tableId to hand it over "
            "again",
            version=version,
        )


def _forget_lost(books: TableBooks) -> None:
    """Forget what was proposed at the same place for versions that others have made since."""
    ledger = books.ledger
    for entry in books.ask(lambda: ledger.entries_at(books.table.location)):
        if entry.standing is Standing.PROPOSED and entry.table_id != books.table_id:
            _forget_if_lost(books, entry)


def _forget_if_lost(books: TableBooks, entry: Entry) -> None:
    if is_handed_over(books.table.storage, entry) is False:
        books.ask(lambda: books.ledger.forget(entry.table_id, entry.owned_from))


def take_over(books: TableBooks, version: int) -> None:
    """Learn that a table was handed over; see `CommitOwner.take_over`."""
    entry = activated(books, books.entry())
    if entry.standing is Standing.PROPOSED or entry.owned_from != version:
        raise books.refusal(
            f"{commit_path(version)} doesn't hand over the table with the id {entry.table_id}, which "
            f"the owner has agreed to own from version {entry.owned_from} on: propose first, then put the "
            "commit into the log, with the id in delta.managedCommit.commitOwnerConf",
            version=version,
        )


def forget(books: TableBooks, version: int) -> None:
    """Learn that a table won't be handed over; see `CommitOwner.forget`.

    A proposal for another version stays, and so does one whose commit is in the log after all, or may be:
    an owner must not go back on that.
    """
    entry = books.find()
    if entry is None or entry.owned_from != version or entry.location != books.table.location:
        return
    try:
        left = activated(books, entry).standing is Standing.PROPOSED
    except StorageError:
        return
    if left:
        books.ask(lambda: books.ledger.forget(entry.table_id, version))


def not_handed_over(books: TableBooks, entry: Entry) -> CommitOwnerError:
    """The error for a table that is only proposed."""
    return books.refusal(
        f"the owner {books.table.owner!r} doesn't have the table with the id {entry.table_id} yet: it has "
        f"agreed to own it from version {entry.owned_from} on, but {commit_path(entry.owned_from)} isn't "
        "the commit that hands it over. Commit by the file system",
        version=entry.owned_from,
    )


def is_handed_over(storage: Storage, entry: Entry) -> bool | None:
    """Whether the commit of an entry's first version names its id; None where there is no commit.

    Raises:
        StorageError: the store failed.
    """
    try:
        data = storage.read(commit_path(entry.owned_from))
    except ObjectNotFoundError:
        return None
    # The commit that makes a table may hold many file actions, whose texts may hold the word as well.
    lines = (line for line in data.split(b"\n") if b'"metaData"' in line)
    return any(_table_id(line, table=storage.root) == entry.table_id for line in lines)


def _table_id(line: bytes, *, table: str) -> str | None:
    """The ``tableId`` in a ``metaData`` action; None where there is none, or no telling."""
    try:
        configuration = json.loads(line)["metaData"]["configuration"]
        return TableProperties(configuration, table).commit_owner_conf.get(TABLE_ID)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, InvalidTableError):
        return None
