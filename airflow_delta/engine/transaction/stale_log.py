"""Refuse to create a table over what is left of a former one.

A checkpoint, a checksum or a commit of a former table would join the log of the new one as soon as
the new one comes to that version: readers would take the old state for the new (edge case E17).
"""

from __future__ import annotations

from collections.abc import Sequence

from airflow_delta.engine.errors import (
    InvalidTableError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from airflow_delta.engine.log.files import (
    LAST_CHECKPOINT_PATH,
    LOG_DIRECTORY,
    commit_path,
    parse_log_file,
)
from airflow_delta.engine.log.newest import find_latest_version
from airflow_delta.engine.storage.base import Storage

__all__ = ["check_no_remains"]


def check_no_remains(storage: Storage) -> None:
    """Make sure that the log of a table to be created begins with nothing.

    A log with a first commit passes: it is a table, and the commit that would create it again finds
    that out by itself.

    Raises:
        TableAlreadyExistsError: there is a table whose first commits were cleaned up.
        InvalidTableError: the log directory holds files of a log without a beginning. Facts: path.
        StorageError: the store failed.
    """
    remains = [
        info.path
        for info in storage.list(LOG_DIRECTORY)
        if info.path == LAST_CHECKPOINT_PATH or parse_log_file(info) is not None
    ]
    if not remains or commit_path(0) in remains:
        return
    try:
        latest = find_latest_version(storage)
    except TableNotFoundError:
        raise _remains(remains, storage.root) from None
    raise TableAlreadyExistsError(
        "there is a table already, made by another writer; open it instead",
        table=storage.root,
        version=latest,
    )


def _remains(remains: Sequence[str], table: str) -> InvalidTableError:
    return InvalidTableError(
        f"there is no table, but {remains[0]} and {len(remains) - 1} more files of a former log, "
        f"which would become part of a new one; delete what is in {LOG_DIRECTORY} before a table is "
        "created here",
        table=table,
        path=remains[0],
    )
