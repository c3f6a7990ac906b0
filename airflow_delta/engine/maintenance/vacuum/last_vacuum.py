"""``_delta_log/_last_vacuum_info``: up to which version the files that the log names have been vacuumed.

Delta Spark leaves it, and a ``LITE`` vacuum, its or ours, begins after that version. It is a line of JSON::

    {"latestCommitVersionOutsideOfRetentionWindow":7}

A full vacuum of Delta Spark takes the number away, so that the next ``LITE`` one has to have the log from
its begin. Ours writes it: having looked at every file it has looked at those as well.

No more than a hint: without it there is more to read. So one that can't be read counts as none, and one
that can't be written is a `DeltaWarning`.
"""

from __future__ import annotations

import json
import warnings

from airflow_delta.engine.errors import DeltaWarning, StorageError
from airflow_delta.engine.log.hint_file import UnusableHintError, read_hint
from airflow_delta.engine.storage.base import Storage

__all__ = ["LAST_VACUUM", "read_last_vacuum", "write_last_vacuum"]

LAST_VACUUM = "_delta_log/_last_vacuum_info"
"""The file."""

_MOST_BYTES = 1 << 16

_VERSION = "latestCommitVersionOutsideOfRetentionWindow"


def read_last_vacuum(storage: Storage) -> int | None:
    """The last version whose removed files have been vacuumed; None where that isn't known.

    Raises:
        StorageError: the store failed.
    """
    try:
        told = json.loads(read_hint(storage, LAST_VACUUM, most_bytes=_MOST_BYTES) or b"null")
    except (UnusableHintError, ValueError, RecursionError):
        return None
    version = told.get(_VERSION) if isinstance(told, dict) else None
    return version if type(version) is int and version >= 0 else None


def write_last_vacuum(storage: Storage, version: int) -> None:
    """Leave the last version whose removed files have been vacuumed."""
    text = json.dumps({_VERSION: version}, separators=(",", ":"))
    try:
        storage.replace(LAST_VACUUM, f"{text}\n".encode())
    except StorageError as error:
        warnings.warn(
            f"{storage.root}: the vacuum is done, but {LAST_VACUUM} can't be written "
            f"({error.message}); the next lite vacuum reads more of the log than it would have to",
            DeltaWarning,
            stacklevel=2,
        )
