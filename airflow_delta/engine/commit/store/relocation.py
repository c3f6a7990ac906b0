"""Record in the commit store that a table has moved (`StoreBackedOwner.relocate`).

A copy of a table's directory looks the same as a table that has moved, down to its id. If the owner took a
copy for the table, the original couldn't commit any more, and both would continue from the same version. So
a user has to say that the table has moved. That is refused

* if a ratified commit isn't at the new location: only a part of the directory was moved, or the original
  got more commits after it was copied;
* if the table is still at the old location. This is checked if both locations are in the same store, with
  the storage options of the new one. There are no credentials for another store.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from airflow_delta.engine.commit.backfill_files import find_newest_version, is_backfilled, is_intact
from airflow_delta.engine.commit.store.commit_store import TableEntry
from airflow_delta.engine.commit.store.ownership import is_handed_over
from airflow_delta.engine.commit.store.table_commit_store import TableCommitStore
from airflow_delta.engine.errors import InvalidArgumentError, StorageError
from airflow_delta.engine.log.files import commit_path
from airflow_delta.engine.storage.base import Storage

__all__ = ["Opener", "relocate"]

Opener: TypeAlias = Callable[[str], Storage]
"""Opens the storage of a location with the options of the new one."""


def relocate(table_store: TableCommitStore, open_location: Opener) -> str:
    """Record the new location of a table; see `StoreBackedOwner.relocate`."""
    entry = table_store.load_entry_anywhere()
    storage, here = table_store.table.storage, table_store.table.location
    if entry.location == here:
        return entry.location
    if (found := _missing(storage, entry)) is not None:
        raise table_store.make_error(
            f"the table with the id {entry.table_id} can't have moved from {entry.location} to {here}: "
            f"{found}. Move all of the table's directory, with its _delta_log and all files in "
            "_delta_log/_commits",
            expected=entry.location,
            found=here,
        )
    old = _open_old_location(storage, entry.location, open_location)
    if old is not None and _is_at(old, storage, entry):
        raise table_store.make_error(
            f"the table with the id {entry.table_id} is still at {entry.location}, so {here} is a copy, "
            "and only the original can be committed to. If the table has moved, delete what is left at "
            "the old location; to make an independent table of the copy, write a version of it to a new "
            "table",
            expected=entry.location,
            found=here,
        )
    table_store.relocate()
    return entry.location


def _missing(storage: Storage, entry: TableEntry) -> str | None:
    """Return which part of a table a storage lacks; None if it has all of it."""
    # Metadata cleanup may have deleted the first version, but never the newest.
    if is_handed_over(storage, entry) is False:
        return f"version {entry.owned_from} isn't the commit that handed the table over"
    for commit in entry.commits:
        if not (is_intact(storage, commit) or is_backfilled(storage, commit.version)):
            return f"version {commit.version} isn't there"
    newest = max(entry.latest_version, entry.owned_from)
    if not entry.commits and not is_backfilled(storage, newest):
        return f"version {newest} isn't there"
    return None


def _open_old_location(storage: Storage, location: str, open_location: Opener) -> Storage | None:
    """Open the old location of a table.

    Args:
        storage: the storage of the new location.
        location: the old canonical location.
        open_location: opens a location of the same store.

    Returns:
        The storage; None if the location is in another store, can't be opened, or is a link to another one.
    """
    uri = _find_uri(storage, location)
    if uri is None:
        return None
    try:
        old = open_location(uri)
    except (InvalidArgumentError, StorageError):
        return None
    # A link at the old location may lead to the new one.
    return old if old.canonical_location == location else None


def _find_uri(storage: Storage, location: str) -> str | None:
    """Return the URI or path of a canonical location; None if it isn't in the store of the storage."""
    if storage.canonical_location.startswith("/"):
        return location if location.startswith("/") else None
    path = storage.root.partition("://")[2]
    # A canonical location begins with the store (a service or an endpoint). It may have more before the
    # path than the URI has, such as the account of a container.
    for below in (path, path.partition("/")[2]):
        store = storage.canonical_location.removesuffix(below)
        if store.endswith("/") and location.startswith(store):
            return storage.root.removesuffix(below) + location.removeprefix(store)
    return None


def _is_at(old: Storage, new: Storage, entry: TableEntry) -> bool:
    """Return whether the table at the new location is at its old location, too.

    The commit of the hand-over has the table's id. If metadata cleanup has deleted it, the newest commits
    are compared, because no two tables have the same one.
    """
    try:
        handed_over = is_handed_over(old, entry)
        if handed_over is not None:
            return handed_over
        newest = find_newest_version(new, entry.owned_from)
        if newest is None:
            return False
        path = commit_path(newest)
        return old.read(path) == new.read(path)
    except StorageError:
        return False
