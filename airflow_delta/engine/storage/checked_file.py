"""Files over other files, whose errors are those of the storage contract.

A caller may read or write a file long after the storage has returned it. If the disk fails then, Python
raises a plain ``OSError``. Arrow raises the same type for damaged content, so the types must differ.
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
    """A read-only, seekable file over another one; not for several threads at once.

    Args:
        file: the other file. It is closed with this one.
        translate_errors: makes the context manager that turns errors into those of the contract.
    """

    def __init__(
        self, file: BinaryIO, translate_errors: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._file = file
        self._translate_errors = translate_errors

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
        with self._translate_errors():
            # For a position before the start, `seek` raises an OSError that isn't a failure of the store.
            if whence == os.SEEK_SET and offset < 0:
                raise ValueError(f"can't seek to {offset}, before the start of the file")
            return self._file.seek(offset, whence)

    def read(self, size: int | None = -1, /) -> bytes:
        """Read up to ``size`` bytes from the current position; by default all of the rest.

        Raises:
            ValueError: the file is closed.
            StorageError: the store failed.
        """
        with self._translate_errors():
            return self._file.read(-1 if size is None else size)

    def read1(self, size: int = -1, /) -> bytes:
        """Like `read`."""
        return self.read(size)

    def close(self) -> None:
        """Close both files."""
        try:
            self._file.close()
        finally:
            super().close()


class CheckedWriter(io.BufferedIOBase):
    """An append-only file over another one, which stays open when this one is closed.

    Args:
        file: the other file.
        translate_errors: makes the context manager that turns errors into those of the contract.
    """

    def __init__(
        self, file: BinaryIO, translate_errors: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._file = file
        self._translate_errors = translate_errors

    def writable(self) -> bool:
        """True."""
        return True

    def fileno(self) -> int:
        """The descriptor of the other file."""
        return self._file.fileno()

    def tell(self) -> int:
        """The number of bytes written so far."""
        return self._file.tell()

    def write(self, data: Buffer, /) -> int:
        """Append bytes.

        Raises:
            StorageError: the store failed.
        """
        with self._translate_errors():
            return self._file.write(data)

    def flush(self) -> None:
        """Pass buffered bytes to the store.

        Raises:
            StorageError: the store failed.
        """
        # `close` calls it, too. Then the other file may be closed already.
        if not self._file.closed:
            with self._translate_errors():
                self._file.flush()
