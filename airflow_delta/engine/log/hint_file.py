"""Read the optional files of a log: hints, which are small and never needed.

A wrong hint must cost no more than a warning, nor more memory or time than a right one. So a file
that is larger than its writers make it isn't read, nor is a link or a FIFO.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_delta.engine.errors import NotRegularFileError, ObjectNotFoundError

if TYPE_CHECKING:
    from airflow_delta.engine.storage.base import Storage

__all__ = ["UnusableHintError", "read_hint"]


class UnusableHintError(Exception):
    """The reason why a hint isn't read, as the end of a sentence."""


def read_hint(storage: Storage, path: str, *, most_bytes: int) -> bytes | None:
    """Read a hint; None if there is no such file.

    Args:
        storage: the table's storage.
        path: the file.
        most_bytes: the largest size that the hint can have.

    Raises:
        UnusableHintError: the file is larger, or no regular file.
        StorageError: the store failed.
    """
    try:
        data = storage.read(path, length=most_bytes + 1)
    except ObjectNotFoundError:
        return None
    except NotRegularFileError as error:
        if error.found != path:
            raise  # Without the directory there is no log either.
        raise UnusableHintError(f"it is no regular file ({error.message})") from error
    if len(data) > most_bytes:
        raise UnusableHintError(f"it has more than {most_bytes:,} bytes")
    return data
