"""Find the latest version of a table with few requests.

A caller that polls knows the version that it saw last. Versions have no gaps, so one request for the next
commit shows whether there is a newer version, without a listing.

Only a commit owner knows un-backfilled commits, so they aren't considered here; `proposed` finds out
whether there can be any.

Spec: PROTOCOL.md, "Delta Log Entries", "Last Checkpoint File".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_delta.engine.errors import TableNotFoundError
from airflow_delta.engine.log.files import LOG_DIRECTORY, commit_path
from airflow_delta.engine.log.last_checkpoint import read_last_checkpoint
from airflow_delta.engine.log.listing import list_log
from airflow_delta.engine.log.segment import check_version
from airflow_delta.engine.storage.base import exists

if TYPE_CHECKING:
    from airflow_delta.engine.storage.base import Storage

__all__ = ["find_latest_version"]

_PROBES = 8
"""New commits to look up one by one; for more, a listing is cheaper."""


def find_latest_version(
    storage: Storage, known: int | None = None, *, confirm: bool = False
) -> int:
    """Find the latest version in the log directory.

    Args:
        storage: the table's storage.
        known: a version that exists or has existed. Later commits are looked up by name.
        confirm: if nothing new is found, check that ``known`` itself still exists (one more
            request), and list the log if it doesn't. A caller that polls should do so now and then,
            and whenever it has slept for longer than logs are retained: if a cleanup has deleted
            the next commit, it would never see a new version.

    Raises:
        TableNotFoundError: there is no log.
        InvalidArgumentError: ``known`` is not a version.
        StorageError: the store failed.
    """
    if known is None:
        return _listed_latest(storage)
    check_version(known, table=storage.root)
    latest = known
    while latest - known < _PROBES:
        if not exists(storage, commit_path(latest + 1)):
            if latest == known and confirm and not exists(storage, commit_path(known)):
                return _listed_latest(storage)
            return latest
        latest += 1
    listed = list_log(storage, start=latest).latest
    return latest if listed is None else max(latest, listed)


def _listed_latest(storage: Storage) -> int:
    hint = read_last_checkpoint(storage)
    # A hint past the end of the log gives an empty listing.
    latest = None if hint is None else list_log(storage, start=hint.version).latest
    if latest is None:
        latest = list_log(storage).latest
    if latest is None:
        raise TableNotFoundError(
            f"there is no Delta table: no commit and no checkpoint in {LOG_DIRECTORY}; check the "
            "location, or create the table first",
            table=storage.root,
        )
    return latest
