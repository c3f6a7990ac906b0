"""The latest version of a table, for as few requests as it can be had.

A caller who polls knows the version it saw last. Versions have no gaps, so asking for the next
commit by name is enough: one request while nothing is new, cheaper than any listing. Who lags so
far behind that cleanup has taken the next commit would hear "nothing new" for ever; such a caller
asks to ``confirm``.

Un-backfilled commits are not seen here: only their commit owner knows them, and `proposed` tells whether
there can be any.

Spec: PROTOCOL.md, "Delta Log Entries", "Last Checkpoint File".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_delta.engine.errors import ObjectNotFoundError, TableNotFoundError
from airflow_delta.engine.log.files import LOG_DIRECTORY, commit_path
from airflow_delta.engine.log.last_checkpoint import read_last_checkpoint
from airflow_delta.engine.log.listing import list_log
from airflow_delta.engine.log.segment import check_version

if TYPE_CHECKING:
    from airflow_delta.engine.storage.base import Storage

__all__ = ["find_latest_version"]

_PROBES = 8
"""How many new commits are asked for one by one before a listing is the better deal."""


def find_latest_version(
    storage: Storage, known: int | None = None, *, confirm: bool = False
) -> int:
    """The latest version that the log directory holds.

    Args:
        storage: the table's storage.
        known: a version that exists or has existed. Commits after it are asked for by name.
        confirm: where nothing new is found, make sure that ``known`` itself is still there (one
            more request), and list the log where it is gone. A caller who polls does so now and
            then, and whenever it has slept for longer than logs are kept.

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
        if not _exists(storage, latest + 1):
            if latest == known and confirm and not _exists(storage, known):
                return _listed_latest(storage)
            return latest
        latest += 1
    listed = list_log(storage, start=latest).latest
    return latest if listed is None else max(latest, listed)


def _exists(storage: Storage, version: int) -> bool:
    try:
        storage.head(commit_path(version))
    except ObjectNotFoundError:
        return False
    return True


def _listed_latest(storage: Storage) -> int:
    hint = read_last_checkpoint(storage)
    # A hint that points past the end of the log finds nothing there.
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
