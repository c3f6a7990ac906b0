"""Put a checkpoint under a name that other writers may use, and recognise one's own file.

A checkpoint with the classic name is created only if there is none: otherwise a file could be replaced
while somebody reads it. A client that gets no answer to its put sends it again, and then gets the error
that the file exists. In this case the existing file is compared with what was written. If another writer
has written the same bytes, the file is taken for one's own, which does no harm.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from airflow_delta.engine.errors import ObjectExistsError
from airflow_delta.engine.storage.base import Storage

__all__ = ["TrackedFile", "open_idempotent_writer", "put_idempotently"]


class TrackedFile:
    """A file that is being written; its last bytes are remembered.

    The footer of a Parquet file is written last, in one call. It contains the position, the length
    and statistics of each part of the file. So a file of the same size with the same end is the
    same file.

    Args:
        file: the file to write to.

    Attributes:
        end: the bytes that were written last.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.end = b""

    def write(self, data: bytes) -> int:
        """Write, as to any file."""
        self.end = data
        return self._file.write(data)

    def tell(self) -> int:
        """The number of bytes written so far."""
        return self._file.tell()


@contextmanager
def open_idempotent_writer(storage: Storage, path: str, *, replaces: bool) -> Iterator[TrackedFile]:
    """Open a file to stream a checkpoint into. It is published as a whole if the block succeeds.

    Args:
        storage: the table's storage.
        path: the checkpoint's name.
        replaces: whether an existing file of that name is replaced.

    Raises:
        ObjectExistsError: there is another file, which must not be replaced.
        StorageError: the store failed.
    """
    written: tuple[int, bytes] | None = None
    try:
        with storage.writer(path, overwrite=replaces) as file:
            own = TrackedFile(file)
            yield own
            written = own.tell(), bytes(own.end)
    except ObjectExistsError:
        if written is None or not _is_there(storage, path, *written):
            raise


def put_idempotently(storage: Storage, path: str, content: bytes) -> None:
    """Put a checkpoint whose content is known.

    Raises:
        ObjectExistsError: there is another file.
        StorageError: the store failed.
    """
    try:
        storage.create(path, content)
    except ObjectExistsError:
        if storage.read(path) != content:
            raise


def _is_there(storage: Storage, path: str, size: int, end: bytes) -> bool:
    return (
        storage.head(path).size == size
        and storage.read(path, start=size - len(end), length=len(end)) == end
    )
