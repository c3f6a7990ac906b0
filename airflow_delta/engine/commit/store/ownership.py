"""Hand a table over to a commit owner, and find out whether it was handed over.

A client first proposes a table to the owner (`propose`). Then it writes the commit that hands the table
over into the log, and informs the owner (`take_over`) or withdraws the proposal (`forget`). That commit
counts as soon as it is in the log. So the log decides what a proposal becomes, and each call for a proposed
table reads it first (`activate_if_handed_over`, `activate_if_owned`; `foresee_ownership` records nothing).

docs/explanation/managed-commits.md says what the log can look like, and what that means.

Spec: RFC managed-commits, "Converting an existing filesystem based table to managed-commit table".
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace

from airflow_delta.engine.commit.backfill_files import find_newest_version
from airflow_delta.engine.commit.owner import Standing
from airflow_delta.engine.commit.store.commit_store import TableEntry
from airflow_delta.engine.commit.store.table_commit_store import TableCommitStore
from airflow_delta.engine.errors import (
    CommitOwnerError,
    CommitStoreMissingError,
    InvalidTableError,
    ObjectNotFoundError,
    StorageError,
)
from airflow_delta.engine.features.managed_commits import TABLE_ID
from airflow_delta.engine.log.files import commit_path
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.storage.base import Storage

__all__ = [
    "activate_if_handed_over",
    "activate_if_owned",
    "foresee_ownership",
    "forget",
    "is_handed_over",
    "make_not_handed_over_error",
    "propose",
    "take_over",
]


def activate_if_handed_over(table_store: TableCommitStore, entry: TableEntry) -> TableEntry:
    """Activate a proposed entry if the log has the commit that hands the table over.

    Returns:
        The table's entry, as it is then.

    Raises:
        CommitOwnerUnavailableError: the commit store can't be reached.
        StorageError: the store failed.
    """
    storage = table_store.table.storage
    if entry.standing is not Standing.PROPOSED or not is_handed_over(storage, entry):
        return entry
    table_store.activate()
    return table_store.load_entry()


def activate_if_owned(table_store: TableCommitStore, entry: TableEntry) -> TableEntry:
    """Like `activate_if_handed_over`, for a table whose own metadata has the id of the entry.

    Only a hand-over writes the id into the metadata. So the table is the owner's even if metadata cleanup
    has deleted that commit. The versions in the log count although the owner didn't ratify them.

    Raises:
        CommitOwnerUnavailableError: the commit store can't be reached.
        StorageError: the store failed.
    """
    owned = foresee_ownership(table_store, entry)
    if owned is entry:
        return entry
    table_store.activate()
    if owned.latest_version > owned.owned_from:
        table_store.observe(owned.latest_version)
    return table_store.load_entry()


def foresee_ownership(table_store: TableCommitStore, entry: TableEntry) -> TableEntry:
    """Return the entry that `activate_if_owned` would record, or the same entry; records nothing.

    Raises:
        StorageError: the store failed.
    """
    if entry.standing is not Standing.PROPOSED:
        return entry
    storage, version = table_store.table.storage, entry.owned_from
    if not is_handed_over(storage, entry):
        newest = find_newest_version(storage, entry.owned_from)
        # Read again: the commit may have been written in between.
        if newest is None or is_handed_over(storage, entry) is False:
            return entry
        version = newest
    return replace(
        entry,
        standing=Standing.ACTIVE,
        latest_version=version,
        backfilled_version=version,
        commits=(),
    )


def propose(table_store: TableCommitStore, version: int) -> None:
    """Agree to own a table; see `CommitOwner.propose`."""
    # A commit store that doesn't exist has no entries; the proposal creates it.
    with suppress(CommitStoreMissingError):
        _check_new(table_store, version)
        _forget_lost_proposals(table_store)
    table_store.propose(version)


def _check_new(table_store: TableCommitStore, version: int) -> None:
    """Refuse a table id that was handed over before."""
    entry = table_store.find_entry()
    if entry is None:
        return
    entry = activate_if_handed_over(table_store, entry)
    if entry.standing is not Standing.PROPOSED:
        raise table_store.make_error(
            f"the table with the id {entry.table_id} was handed over before, with version "
            f"{entry.owned_from}: an id can be used once. Use a new tableId to hand the table over again",
            version=version,
        )


def _forget_lost_proposals(table_store: TableCommitStore) -> None:
    """Delete the proposals at this location for versions that other writers have committed since.

    Entries with other ids don't prevent a hand-over, even active ones: no log has these ids any more. They
    are left by a hand-over that was never finished, by a directory that was deleted and created again, or
    by a table that was released while the owner couldn't be reached.
    """
    for entry in table_store.list_entries_here():
        if entry.standing is Standing.PROPOSED and entry.table_id != table_store.table_id:
            _forget_if_lost(table_store, entry)


def _forget_if_lost(table_store: TableCommitStore, entry: TableEntry) -> None:
    # Only for this version: the client that lost it may be proposing the same table for the next one.
    if is_handed_over(table_store.table.storage, entry) is False:
        table_store.forget(entry)


def take_over(table_store: TableCommitStore, version: int) -> None:
    """Record that a table was handed over; see `CommitOwner.take_over`."""
    entry = activate_if_handed_over(table_store, table_store.load_entry())
    if entry.standing is Standing.PROPOSED or entry.owned_from != version:
        raise table_store.make_error(
            f"{commit_path(version)} doesn't hand over the table with the id {entry.table_id}, which "
            f"the owner has agreed to own from version {entry.owned_from} on: propose first, then put the "
            "commit into the log, with the id in delta.managedCommit.commitOwnerConf",
            version=version,
        )


def forget(table_store: TableCommitStore, version: int) -> None:
    """Delete the proposal of a table that won't be handed over; see `CommitOwner.forget`.

    A proposal for another version stays. So does one whose commit is in the log, or may be there: the table
    is the owner's then.
    """
    entry, location = table_store.find_entry(), table_store.table.location
    if entry is None or entry.owned_from != version or entry.location != location:
        return
    try:
        current = activate_if_handed_over(table_store, entry)
    except StorageError:
        return
    if current.standing is Standing.PROPOSED:
        table_store.forget(entry)


def make_not_handed_over_error(
    table_store: TableCommitStore, entry: TableEntry
) -> CommitOwnerError:
    """Make the error for a table that is only proposed."""
    return table_store.make_error(
        f"the owner {table_store.table.owner!r} doesn't have the table with the id {entry.table_id} yet: "
        f"it has agreed to own it from version {entry.owned_from} on, but {commit_path(entry.owned_from)} "
        "isn't the commit that hands it over. Commit by the file system",
        version=entry.owned_from,
    )


def is_handed_over(storage: Storage, entry: TableEntry) -> bool | None:
    """Return whether the commit of an entry's first version has its id; None if there is no such commit.

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
    """Return the ``tableId`` in a ``metaData`` action; None if it has none or the line is damaged."""
    try:
        configuration = json.loads(line)["metaData"]["configuration"]
        return TableProperties(configuration, table).commit_owner_conf.get(TABLE_ID)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, InvalidTableError):
        return None
