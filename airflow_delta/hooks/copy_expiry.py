"""Delete the expired copies of a table that are in the same directory as a new copy."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from airflow_delta.hooks.delta import DeltaHook
from airflow_delta.hooks.progress import log_progress

if TYPE_CHECKING:
    from airflow_delta.copies.marker import CopyMarker
    from airflow_delta.copies.source import CopySource
    from airflow_delta.engine.errors import DeltaError
    from airflow_delta.engine.storage.base import Storage

__all__ = ["ExpiredCopies"]

_LOG = logging.getLogger(__name__)


class ExpiredCopies:
    """The expired copies of a table in the directory that contains a target.

    :param hook: gives access to the table and its copies.
    :param table_uri: the table.
    :param target_uri: the target, which is kept.
    """

    def __init__(self, hook: DeltaHook, *, table_uri: str, target_uri: str) -> None:
        self._hook = hook
        self._table_uri = table_uri
        self._target_uri = target_uri

    def delete(self) -> list[str]:
        """Delete them.

        Only directories with the marker of such a copy are considered (``copies/marker.py``). A copy is
        kept if it contains anything else, or if others have written to it (``copies/deletion.py``,
        `reason_to_keep`). A deletion that was killed or failed is continued by a call at least an hour
        after it began (``copies/deletion_list.py``).

        What can't be read or deleted is a warning, not an error, because the requested copy has been made.

        :returns: the locations of the deleted copies.
        """
        from airflow_delta.copies.deletion import delete_copy
        from airflow_delta.engine.errors import DeltaError

        try:
            expired = self._find()
        except DeltaError as error:
            _LOG.warning("no expired copies beside %s are deleted: %s", self._target_uri, error)
            return []
        deleted = []
        for uri, marker in expired:
            try:
                with log_progress(_LOG):
                    reason = delete_copy(self._hook.table(uri), marker)
            except DeltaError as error:
                reason = str(error)
            if reason is None:
                deleted.append(uri)
                _LOG.info("deleted the expired copy %r of version %s", uri, marker.version)
            else:
                _LOG.warning("the expired copy %r is kept: %s", uri, reason)
        return deleted

    def _find(self) -> list[tuple[str, CopyMarker]]:
        """Find them by their markers.

        :raises DeltaError: the table, or the directory, can't be read.
        """
        from airflow_delta.copies.deletion_list import DELETING
        from airflow_delta.copies.marker import MARKER
        from airflow_delta.copies.source import CopySource
        from airflow_delta.engine.clock import now_ms
        from airflow_delta.engine.errors import DeltaError

        source = self._hook.table(self._table_uri)
        target = self._hook.table(self._target_uri).storage
        parent, _, name = target.root.rpartition("/")
        if parent.endswith(":/"):
            return []  # the target is a whole container
        beside = self._hook.table(parent or "/").storage
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
                if not self._is_copy_of(copied, marker, uri):
                    continue
            except DeltaError as error:
                _LOG.warning("%r is kept: %s", uri, error)
                continue
            location = self._hook.table(uri).storage.canonical_location
            if self._resolved_location(uri, marker.target_uri) != location:
                _LOG.warning(
                    "%r is kept: it is a copy of the expired copy %r", uri, marker.target_uri
                )
            elif all(
                not f"{other}/".startswith(f"{location}/")
                for other in (source.storage.canonical_location, target.canonical_location)
            ):
                found.append((uri, marker))
        return found

    def _is_copy_of(self, copied: CopySource, marker: CopyMarker, uri: str) -> bool:
        """Whether a copy is one of this table, by the id that it has, or had before it was replaced."""
        if marker.table_id == copied.id:
            return True
        if (
            self._resolved_location(copied.table.uri, marker.table_uri)
            != copied.table.storage.canonical_location
        ):
            # A copy of another table; this check doesn't need the log.
            return False
        had = copied.had_id(marker.table_id, marker.version)
        if had is None:
            _LOG.warning(
                "%r is kept: it is a copy of version %d of the table %r at %r, and nobody can know any "
                "more whether that is the one that was replaced there; delete it by hand",
                uri,
                marker.version,
                marker.table_id,
                marker.table_uri,
            )
        return bool(had)

    def _resolved_location(self, uri: str, location: str | None) -> str | None:
        """Resolve a location with the storage options of a URI; None if that isn't possible."""
        from airflow_delta.engine.errors import DeltaError
        from airflow_delta.engine.storage.location import open_storage

        if location is None:
            return None
        try:
            options = self._hook.all_storage_options(uri)
            return open_storage(location, options).canonical_location
        except DeltaError:
            # It is in another kind of store, which doesn't have these options.
            return None


def _read(
    beside: Storage, folders: Sequence[str], file: str
) -> Sequence[bytes | DeltaError | None]:
    """Read a file in each folder; None if there is none, or the error if it can't be read."""
    from airflow_delta.engine.errors import DeltaError

    paths = [f"{folder}/{file}" for folder in folders]
    try:
        return beside.read_many(paths)
    except DeltaError:
        # One by one, so that a folder that can't be read doesn't affect the others.
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
    """Parse the marker of a copy. If a deletion has deleted it already, its list file contains it.

    :raises DeltaError: one of the two can't be read or parsed.
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
