"""Hand a table over to a commit owner, and find out whether it was handed over.

A client proposes a table to the owner (`propose`), then writes the commit that hands it over into the log.
That commit counts as soon as it is in the log, before the owner knows of it. So the log decides what a
proposal becomes, and the owner reads it whenever it deals with a table that is only proposed:

==============================================  =====================================================
the log at the version of the proposal          the table
==============================================  =====================================================
a ``metaData`` with the table's id as           is the owner's: the client that sees it first activates
``tableId`` of the owner's configuration        the entry
another commit                                  was changed by another writer first; the proposal stays
                                                until its client withdraws it or proposes again, or
                                                another table is proposed at the same location
nothing                                         isn't the owner's yet, but may become so at any time
nothing, and later versions are there           is the owner's if its metadata says so (`owned`): the
                                                commit was deleted by metadata cleanup
==============================================  =====================================================

A location may have entries of other table ids, even active ones: of a hand-over that was never finished, of
a directory that was deleted and made again, of a table that was released while the owner was out of reach.
No log has their ids any more, so they are unused and don't prevent a hand-over.

Spec: managed-commits.md, "Converting an existing filesystem based table to managed-commit table".
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
    """Return a table's entry, activated first if the log has the commit that hands the table over.

    Raises:
        CommitOwnerUnavailableError: the commit store can't be reached.
        StorageError: the store failed.
    """
    if entry.standing is not Standing.PROPOSED or not is_handed_over(books.table.storage, entry):
        return entry
    books.ask(lambda: books.ledger.activate(entry.table_id))
    return books.entry()


def owned(books: TableBooks, entry: Entry) -> Entry:
    """Like `activated`, for a table whose own metadata has the id of the entry.

    Only a hand-over writes the id into the metadata. So the table is the owner's even where metadata
    cleanup has deleted that commit. The versions in the log count although the owner didn't ratify them.

    Raises:
        CommitOwnerUnavailableError: the commit store can't be reached.
        StorageError: the store failed.
    """
    entry = activated(books, entry)
    if entry.standing is not Standing.PROPOSED:
        return entry
    storage = books.table.storage
    newest = newest_in_log(storage, entry.owned_from)
    # Read again: the commit may have been written in between.
    if newest is None or is_handed_over(storage, entry) is False:
        return entry
    books.ask(lambda: books.ledger.activate(entry.table_id))
    books.observe(newest)
    return books.entry()


def propose(books: TableBooks, version: int) -> None:
    """Agree to own a table; see `CommitOwner.propose`."""
    # A commit store that doesn't exist has no entries; the proposal creates it.
    with suppress(NoBooksError):
        _check_new(books, version)
        _forget_lost(books)
    books.ask(lambda: books.ledger.propose(books.table_id, books.table.location, version))


def _check_new(books: TableBooks, version: int) -> None:
    """Refuse a table id that was handed over before."""
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
    """Delete the proposals at this location for versions that other writers have committed since."""
    ledger = books.ledger
    for entry in books.ask(lambda: ledger.entries_at(books.table.location)):
        if entry.standing is Standing.PROPOSED and entry.table_id != books.table_id:
            _forget_if_lost(books, entry)


def _forget_if_lost(books: TableBooks, entry: Entry) -> None:
    # By version: the client that lost this one may be proposing the same table for the next version.
    if is_handed_over(books.table.storage, entry) is False:
        books.ask(lambda: books.ledger.forget(entry.table_id, entry.owned_from))


def take_over(books: TableBooks, version: int) -> None:
    """Record that a table was handed over; see `CommitOwner.take_over`."""
    entry = activated(books, books.entry())
    if entry.standing is Standing.PROPOSED or entry.owned_from != version:
        raise books.refusal(
            f"{commit_path(version)} doesn't hand over the table with the id {entry.table_id}, which "
            f"the owner has agreed to own from version {entry.owned_from} on: propose first, then put the "
            "commit into the log, with the id in delta.managedCommit.commitOwnerConf",
            version=version,
        )


def forget(books: TableBooks, version: int) -> None:
    """Delete the proposal of a table that won't be handed over; see `CommitOwner.forget`.

    A proposal for another version stays. So does one whose commit is in the log, or may be there: the table
    is the owner's then.
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
    """Make the error for a table that is only proposed."""
    return books.refusal(
        f"the owner {books.table.owner!r} doesn't have the table with the id {entry.table_id} yet: it has "
        f"agreed to own it from version {entry.owned_from} on, but {commit_path(entry.owned_from)} isn't "
        "the commit that hands it over. Commit by the file system",
        version=entry.owned_from,
    )


def is_handed_over(storage: Storage, entry: Entry) -> bool | None:
    """Return whether the commit of an entry's first version has its id; None where there is no commit.

    Raises:
        StorageError: the store failed.
    """
    try:
        data = storage.read(commit_path(entry.owned_from))
    except ObjectNotFoundError:
        return None
    # Only the lines that may be a metaData are parsed: the first commit of a table can hold many adds.
    lines = (line for line in data.split(b"\n") if b'"metaData"' in line)
    return any(_table_id(line, table=storage.root) == entry.table_id for line in lines)


def _table_id(line: bytes, *, table: str) -> str | None:
    """The ``tableId`` in a ``metaData`` action; None where there is none or the line is damaged."""
    try:
        configuration = json.loads(line)["metaData"]["configuration"]
        return TableProperties(configuration, table).commit_owner_conf.get(TABLE_ID)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, InvalidTableError):
        return None
