"""Read and write ``_delta_log/_last_vacuum_info``, the last version whose removed files have been vacuumed.

Delta Spark writes this line of JSON, and a ``LITE`` vacuum, its or ours, begins after that version::

    {"latestCommitVersionOutsideOfRetentionWindow":7}

A full vacuum of Delta Spark deletes the number, so that the next ``LITE`` one needs the whole log. Our full
vacuum writes it, because it has looked at all files. The file is a hint: if it can't be read it counts as
missing, if it can't be written that is a `DeltaWarning`.
"""

from __future__ import annotations

import json
import warnings

from airflow_delta.engine.errors import DeltaWarning, StorageError
from airflow_delta.engine.log.hint_file import UnusableHintError, read_hint
from airflow_delta.engine.storage.base import Storage

__all__ = ["LAST_VACUUM", "read_last_vacuum", "write_last_vacuum"]

LAST_VACUUM = "_delta_log/_last_vacuum_info"
"""The path of the file, below the table's root."""

_MOST_BYTES = 1 << 16

_VERSION = "latestCommitVersionOutsideOfRetentionWindow"


def read_last_vacuum(storage: Storage) -> int | None:
    """Read the last version whose removed files have been vacuumed; None if unknown.

    Raises:
        StorageError: the store failed.
    """
    try:
        content = json.loads(read_hint(storage, LAST_VACUUM, most_bytes=_MOST_BYTES) or b"null")
    except (UnusableHintError, ValueError, RecursionError):
        return None
    version = content.get(_VERSION) if isinstance(content, dict) else None
    return version if type(version) is int and version >= 0 else None


def write_last_vacuum(storage: Storage, version: int) -> None:
    """Write the last version whose removed files have been vacuumed."""
    text = json.dumps({_VERSION: version}, separators=(",", ":"))
    try:
        storage.replace(LAST_VACUUM, f"{text}\n".encode())
    except StorageError as error:
        warnings.warn(
            f"{storage.root}: the vacuum is done, but {LAST_VACUUM} can't be written "
            f"({error.message}); the next lite vacuum reads more of the log than necessary",
            DeltaWarning,
            stacklevel=2,
        )
