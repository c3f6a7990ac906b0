"""Record in the ledger that a table has moved (`LedgerOwner.relocate`).

A copy of a table's directory looks the same as a table that has moved, down to its id. If the owner took a
copy for the table, the original couldn't commit any more, and both would go on from the same version. So a
user has to say that the table has moved, and that is refused

* where a ratified commit isn't at the new location: only a part of the directory was moved, or the original
  got more commits after it was copied;
* where the table is still at the old location, as far as that can be checked.

The ledger has the old location as `Storage.place`, which can't be opened by itself. It is checked where it
lies in the same store as the new one, with its options; there are no credentials for another store.
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
"""Opens the storage of a location with the options of the new one."""


def relocate(books: TableBooks, opened: Opener) -> str:
    """Record the new location of a table; see `LedgerOwner.relocate`."""
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
            "old location; to make an independent table of the copy, write a version of it to a new table",
            expected=entry.location,
            found=here,
        )
    books.ask(lambda: books.ledger.relocate(entry.table_id, here))
    return entry.location


def _missing(storage: Storage, entry: Entry) -> str | None:
    """Return why a table can't be what lies in a storage; None if it can."""
    # Metadata cleanup may have deleted the first version, but never the newest.
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
    """Open another location of the same store; None where it is in another store or can't be opened."""
    location = _location(storage, place)
    if location is None:
        return None
    try:
        before = opened(location)
    except (InvalidArgumentError, StorageError):
        return None
    # A link at the old location may lead to the new one.
    return before if before.place == place else None


def _location(storage: Storage, place: str) -> str | None:
    """Return the URI or path of a place in the same store; None where it is in another one."""
    if storage.place.startswith("/"):
        return place if place.startswith("/") else None
    path = storage.root.partition("://")[2]
    # A place begins with the store (a service or an endpoint), or with the container where it has more to
    # say of that than the location.
    for below in (path, path.partition("/")[2]):
        store = storage.place.removesuffix(below)
        if store.endswith("/") and place.startswith(store):
            return storage.root.removesuffix(below) + place.removeprefix(store)
    return None


def _is_at(before: Storage, storage: Storage, entry: Entry) -> bool:
    """Return whether the table is in the storage of its old location as well as in the new one.

    The commit of the hand-over has its id. Where metadata cleanup has deleted that, the newest commits are
    compared, which no two tables have in common.
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
