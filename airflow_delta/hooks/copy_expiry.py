"""Delete the copies of a table that have expired, beside a copy that is made."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from airflow_delta.hooks.delta import DeltaHook

if TYPE_CHECKING:
    from airflow_delta.copies.marker import CopyMarker
    from airflow_delta.copies.source import CopySource
    from airflow_delta.engine.errors import DeltaError
    from airflow_delta.engine.storage.base import Storage

__all__ = ["delete_expired_copies"]

_LOG = logging.getLogger(__name__)


def delete_expired_copies(hook: DeltaHook, *, table_uri: str, target_uri: str) -> list[str]:
    """Delete copies of a table that lie in the same directory as a target, and have expired.

    Only what says of itself that it is such a copy (``copies/marker.py``) is looked at, and it
    stays where anything else is there, or others have written to it
    (``copy_deletion.reason_to_keep``). A deletion that was killed, or fails, goes on with a call an
    hour after it began or later (``copies/deletion_list.py``).

    Nothing that can't be read or deleted is an error, but each is a warning: the copy that was asked for is
    made, and whoever needs it shall have it.

    :param table_uri: the table.
    :param target_uri: the target, which stays.
    :returns: the places of the copies that were deleted.
    """
    from airflow_delta.copies.deletion import delete_copy
    from airflow_delta.engine.errors import DeltaError

    try:
        expired = _expired_copies(hook, table_uri, target_uri)
    except DeltaError as error:
        _LOG.warning("no expired copies beside %s are deleted: %s", target_uri, error)
        return []
    deleted = []
    for uri, marker in expired:
        try:
            reason = delete_copy(hook.table(uri), marker)
        except DeltaError as error:
            reason = str(error)
        if reason is None:
            deleted.append(uri)
            _LOG.info("deleted the expired copy %r of version %s", uri, marker.version)
        else:
            _LOG.warning("the expired copy %r stays: %s", uri, reason)
    return deleted


def _expired_copies(
    hook: DeltaHook, table_uri: str, target_uri: str
) -> list[tuple[str, CopyMarker]]:
    """The places beside a target that say of themselves that they may be deleted.

    :raises DeltaError: the table, or the directory, can't be read.
    """
    from airflow_delta.copies.deletion_list import DELETING
    from airflow_delta.copies.marker import MARKER
    from airflow_delta.copies.request import now_ms
    from airflow_delta.copies.source import CopySource
    from airflow_delta.engine.errors import DeltaError

    source, target = hook.table(table_uri), hook.table(target_uri).storage
    parent, _, name = target.root.rpartition("/")
    if parent.endswith(":/"):
        return []  # the target is a container of its own
    beside = hook.table(parent or "/").storage
    folders = [folder for folder in beside.level("").folders if folder != name]
    copied, now = CopySource(source, source.snapshot()), now_ms()
    found = []
    markers, lists = (_read(beside, folders, file) for file in (MARKER, DELETING))
    for folder, content, deletion in zip(folders, markers, lists, strict=True):
        uri = f"{parent}/{folder}"
        try:
            marker = _marker(content, deletion)
            if marker is None or (deletion is None and not marker.has_expired(now)):
                continue
            if not _is_copy_of(hook, copied, marker, uri):
                continue
        except DeltaError as error:
            _LOG.warning("%r stays: %s", uri, error)
            continue
        place = hook.table(uri).storage.place
        if _place(hook, uri, marker.target_uri) != place:
            _LOG.warning("%r stays: it is a copy of the expired copy %r", uri, marker.target_uri)
        elif all(
            not f"{other}/".startswith(f"{place}/")
            for other in (source.storage.place, target.place)
        ):
            found.append((uri, marker))
    return found


def _read(
    beside: Storage, folders: Sequence[str], file: str
) -> Sequence[bytes | DeltaError | None]:
    """A file of each folder; None where there is none, or why it can't be read."""
    from airflow_delta.engine.errors import DeltaError

    paths = [f"{folder}/{file}" for folder in folders]
    try:
        return beside.read_many(paths)
    except DeltaError:
        # It doesn't tell which: one folder in which one may not read keeps no other copy.
        return [_read_one(beside, path) for path in paths]


def _read_one(beside: Storage, path: str) -> bytes | DeltaError | None:
    from airflow_delta.engine.errors import DeltaError, ObjectNotFoundError

    try:
        return beside.read(path)
    except ObjectNotFoundError:
        return None
    except DeltaError as error:
        return error


def _marker(
    content: bytes | DeltaError | None, deletion: bytes | DeltaError | None
) -> CopyMarker | None:
    """The marker of a place; a deletion takes it before its own file, which tells it as well.

    :raises DeltaError: one of the two can't be read, or is none.
    """
    from airflow_delta.copies.deletion_list import DeletionList
    from airflow_delta.copies.marker import CopyMarker
    from airflow_delta.engine.errors import DeltaError

    if isinstance(content, DeltaError):
        raise content
    if isinstance(deletion, DeltaError):
        raise deletion
    if content is not None:
        return CopyMarker.from_json(content)
    return None if deletion is None else DeletionList.from_json(deletion).marker


def _is_copy_of(hook: DeltaHook, copied: CopySource, marker: CopyMarker, uri: str) -> bool:
    """Whether a copy is one of this table, by the id that it has, or had before it was replaced."""
    if marker.table_id == copied.id:
        return True
    if _place(hook, copied.table.uri, marker.table_uri) != copied.table.storage.place:
        # One of another table: it doesn't take a look into the log to tell.
        return False
    had = copied.had_id(marker.table_id, marker.version)
    if had is None:
        _LOG.warning(
            "%r stays: it is a copy of version %d of the table %r at %r, and nobody can tell any more "
            "whether that is the one that was replaced there; delete it by hand",
            uri,
            marker.version,
            marker.table_id,
            marker.table_uri,
        )
    return bool(had)


def _place(hook: DeltaHook, uri: str, location: str | None) -> str | None:
    """The place that a location means in the store of a URI; None where it means none."""
    from airflow_delta.engine.errors import DeltaError
    from airflow_delta.engine.storage.location import open_storage

    if location is None:
        return None
    try:
        return open_storage(location, hook.storage_options(uri)).place
    except DeltaError:
        # It is of another kind of store, for which the options of this one are none.
        return None
