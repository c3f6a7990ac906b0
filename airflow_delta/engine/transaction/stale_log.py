"""Refuse to create a table where files of a former table's log are left.

A checkpoint, a checksum or a commit of the former table would join the log of the new one as soon as the
new one reaches that version, and readers would read the old state.
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

__all__ = ["check_no_stale_log"]


def check_no_stale_log(storage: Storage) -> None:
    """Check that no file of a former log is left where a table is to be created.

    A log with version 0 passes: it is a table, and the commit of version 0 will fail by itself.

    Raises:
        TableAlreadyExistsError: there is a table whose first commits were cleaned up.
        InvalidTableError: the log directory has files of a log, but not its first commit. Facts: path.
        StorageError: the store failed.
    """
    stale = [
        info.path
        for info in storage.list(LOG_DIRECTORY)
        if info.path == LAST_CHECKPOINT_PATH or parse_log_file(info) is not None
    ]
    if not stale or commit_path(0) in stale:
        return
    try:
        latest = find_latest_version(storage)
    except TableNotFoundError:
        raise _stale_log(stale, storage.root) from None
    raise TableAlreadyExistsError(
        "there is a table already, made by another writer; open it instead",
        table=storage.root,
        version=latest,
    )


def _stale_log(stale: Sequence[str], table: str) -> InvalidTableError:
    return InvalidTableError(
        f"there is no table, but {stale[0]} and {len(stale) - 1} more files of a former log, "
        f"which would become part of a new one; delete what is in {LOG_DIRECTORY} before a table is "
        "created here",
        table=table,
        path=stale[0],
    )
