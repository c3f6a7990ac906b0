"""Give a checkpoint a name that others may give to theirs, and know one's own again.

A checkpoint of the classic name is put only if there is none: whoever reads another writer's would have
it replaced under his eyes. But a client that gets no answer to its put sends it again, and is told then
that there is one: its own. What is there is looked at in that case alone, and costs nothing otherwise.

Two writers of the same version may make the same file, byte for byte. Each takes it for its own then,
which is as good.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from airflow_delta.engine.errors import ObjectExistsError
from airflow_delta.engine.storage.base import Storage

__all__ = ["OwnFile", "own_file", "put_own"]


class OwnFile:
    """A file in the making of which one remembers how it ends.

    Parquet files are written with their footer at last and at once. It tells of each piece of the file
    where it lies, how long it is, and what values are in it: a file of the same size and the same end
    is the same.

    Args:
        file: where the content goes.

    Attributes:
        end: what was written last.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.end = b""

    def write(self, data: bytes) -> int:
        """Write, as to any file."""
        self.end = data
        return self._file.write(data)

    def tell(self) -> int:
        """How much has been written, in bytes."""
        return self._file.tell()


@contextmanager
def own_file(storage: Storage, path: str, *, replaces: bool) -> Iterator[OwnFile]:
    """A file to stream a checkpoint into: published whole where the block ends well.

    Args:
        storage: the table's storage.
        path: the checkpoint's name.
        replaces: whether one of that name is to be replaced.

    Raises:
        ObjectExistsError: there is another one, which isn't to be replaced.
        StorageError: the store failed.
    """
    written: tuple[int, bytes] | None = None
    try:
        with storage.writer(path, overwrite=replaces) as file:
            own = OwnFile(file)
            yield own
            written = own.tell(), bytes(own.end)
    except ObjectExistsError:
        if written is None or not _is_there(storage, path, *written):
            raise


def put_own(storage: Storage, path: str, content: bytes) -> None:
    """Put a checkpoint whose content is known.

    Raises:
        ObjectExistsError: there is another one.
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
