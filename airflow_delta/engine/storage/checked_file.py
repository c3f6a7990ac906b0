"""Files of the operating system, or of another library, that fail as the contract says.

Whoever reads Parquet gets a file and reads it later, when the storage has long returned. A disk that
fails then raises a plain ``OSError``, which is also what Arrow raises over content that is damaged;
only an error of another type tells the two apart. And whoever writes it fills a disk in the middle.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["CheckedFile", "CheckedWriter"]


class CheckedFile(io.BufferedIOBase):
    """A read-only seekable file over another one; not for several threads at once.

    Args:
        file: the other one, which is closed with this one.
        failures: gives the context in which it is read, that turns errors into the contract's.
    """

    def __init__(
        self, file: BinaryIO, failures: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._file = file
        self._failures = failures

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def tell(self) -> int:
        """The position of the next read, in bytes."""
        return self._file.tell()

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Move to a position from the start, the current one or the end; it may be past the end.

        Raises:
            ValueError: the position would be negative, or ``whence`` is unknown.
            StorageError: the store failed.
        """
        with self._failures():
            # What `seek` says of a position before the start is an OSError, and not the store's.
            if whence == os.SEEK_SET and offset < 0:
                raise ValueError(f"can't seek to {offset}, before the start of the file")
            return self._file.seek(offset, whence)

    def read(self, size: int | None = -1, /) -> bytes:
        """Up to ``size`` bytes from the current position; all of the rest by default.

        Raises:
            ValueError: the file is closed.
            StorageError: the store failed.
        """
        with self._failures():
            return self._file.read(-1 if size is None else size)

    def read1(self, size: int = -1, /) -> bytes:
        """As `read`."""
        return self.read(size)

    def close(self) -> None:
        """Close both files."""
        try:
            self._file.close()
        finally:
            super().close()


class CheckedWriter(io.BufferedIOBase):
    """A file that only grows, over another one, which stays open when this one is closed.

    Args:
        file: the other one.
        failures: gives the context in which it is written, that turns errors into the contract's.
    """

    def __init__(
        self, file: BinaryIO, failures: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._file = file
        self._failures = failures

    def writable(self) -> bool:
        """True."""
        return True

    def fileno(self) -> int:
        """The descriptor of the other file."""
        return self._file.fileno()

    def tell(self) -> int:
        """The bytes written so far."""
        return self._file.tell()

    def write(self, data: Buffer, /) -> int:
        """Append bytes.

        Raises:
            StorageError: the store failed.
        """
        with self._failures():
            return self._file.write(data)

    def flush(self) -> None:
        """Hand what has been written to the store.

        Raises:
            StorageError: the store failed.
        """
        # `close` calls it too, when the other file may be closed already.
        if not self._file.closed:
            with self._failures():
                self._file.flush()
