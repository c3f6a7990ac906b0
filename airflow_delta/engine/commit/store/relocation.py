"""How a commit owner learns that a table has moved.

A copy of a table's directory looks the same as a table that has moved, down to its id. If the owner took a
copy for the table, the original could commit no more, and both would go on from the same version. So it
takes an explicit step of whoever has moved it (`LedgerOwner.relocate`), which is refused

* where something that the owner has ratified isn't at the new place: the directory wasn't wholly moved, or
  the original went on since it was copied;
* where the table is still at the old place, as far as that can be looked at.

The old place is only known by what tells it apart (`Storage.place`), which can't be opened. What can be is
the same store at another path: for that the new place says how it is reached. Another store is left alone,
for whose credentials nobody has been asked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from airflow_delta.engine.commit.backfill_files import is_backfilled, is_whole, newest_in_log
from airflow_delta.engine.commit.store.commit_store import Entry
from airflow_delta.engine.commit.store.ownership import is_handed_over
from airflow_delta.engine.commit.store.table_entry import TableBooks
from airflow_delta.engine.errors import InvalidArgumentError, StorageError
from airflow_delta.engine.log.files import commit_path
from airflow_delta.engine.storage.base import Storage

__all__ = ["Opener", "relocate"]

Opener: TypeAlias = Callable[[str], Storage]
"""Opens the storage of a location, by the options that the new place was opened with."""


def relocate(books: TableBooks, opened: Opener) -> str:
    """Note where a table is that has moved; see `LedgerOwner.relocate`."""
    entry = books.known()
    storage, here = books.table.storage, books.table.location
    if entry.location == here:
        return entry.location
    if (found := _missing(storage, entry)) is not None:
        raise books.refusal(
            f"the table with the id {entry.table_id} can't have moved from {entry.location} to {here}: "
            f"{found}. Move all of the table's directory, with its _delta_log and what is in "
            "_delta_log/_commits",
            expected=entry.location,
            found=here,
        )
    before = _opened_before(storage, entry.location, opened)
    if before is not None and _is_at(before, storage, entry):
        raise books.refusal(
            f"the table with the id {entry.table_id} is still at {entry.location}, so that what is at "
            f"{here} is a copy, which can't have its books. If it has moved, delete what is left at the "
            "old place; to make an independent table of the copy, write a version of it to a new table",
            expected=entry.location,
            found=here,
        )
    books.ask(lambda: books.ledger.relocate(entry.table_id, here))
    return entry.location


def _missing(storage: Storage, entry: Entry) -> str | None:
    """What speaks against a table being where a storage is; None for nothing."""
    # Of a log that was cleaned up the first version can be gone, but never the newest ones.
    if is_handed_over(storage, entry) is False:
        return f"version {entry.owned_from} isn't the commit that handed the table over"
    for commit in entry.commits:
        if not (is_whole(storage, commit) or is_backfilled(storage, commit.version)):
            return f"version {commit.version} isn't there"
    newest = max(entry.latest_version, entry.owned_from)
    if not entry.commits and not is_backfilled(storage, newest):
        return f"version {newest} isn't there"
    return None


def _opened_before(storage: Storage, place: str, opened: Opener) -> Storage | None:
    """The storage of another place in the same store; None where it is in another store."""
    location = _location(storage, place)
    if location is None:
        return None
    try:
        before = opened(location)
    except (InvalidArgumentError, StorageError):
        return None
    # A link at the old place may lead to the new one.
    return before if before.place == place else None


def _location(storage: Storage, place: str) -> str | None:
    """What to open to look at a place in the same store; None where it is in another one."""
    if storage.place.startswith("/"):
        return place if place.startswith("/") else None
    path = storage.root.partition("://")[2]
    # What is before that in its place is the store (a service or an endpoint) or, where the place says more
    # of a container than the location, the container.
    for below in (path, path.partition("/")[2]):
        store = storage.place.removesuffix(below)
        if store.endswith("/") and place.startswith(store):
            return storage.root.removesuffix(below) + place.removeprefix(store)
    return None


def _is_at(before: Storage, storage: Storage, entry: Entry) -> bool:
    """Whether the table is in a storage as well as in the one where it is now.

    The commit of the hand-over has its id. Where the log was cleaned up since, the newest commit tells,
    which no two tables have in common.
    """
    try:
        handed_over = is_handed_over(before, entry)
        if handed_over is not None:
            return handed_over
        newest = newest_in_log(storage, entry.owned_from)
        if newest is None:
            return False
        path = commit_path(newest)
        return before.read(path) == storage.read(path)
    except StorageError:
        return False
