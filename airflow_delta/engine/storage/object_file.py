"""A seekable file over range requests, so that Parquet readers can read from an object store.

A request costs a round trip of tens of milliseconds, in which a megabyte can be sent. So the first read
fetches an object of up to a megabyte as a whole. For a larger object, each request fetches at least a
megabyte, because the columns of a checkpoint are close together.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable

__all__ = ["ObjectFile"]

_READ_AHEAD = 1024 * 1024


class ObjectFile(io.BufferedIOBase):
    """A read-only file over a function that reads ranges; not for several threads at once.

    Args:
        read_range: reads ``length`` bytes from ``start``.
        size: the size of the object in bytes.
    """

    def __init__(self, read_range: Callable[[int, int], bytes], *, size: int) -> None:
        self._read_range = read_range
        self._size = size
        self._position = 0
        self._buffer = b""
        self._buffer_start = 0

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def tell(self) -> int:
        """The position of the next read, in bytes."""
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Move to a position from the start, the current one or the end; it may be past the end.

        Raises:
            ValueError: the position would be negative, or ``whence`` is unknown.
        """
        bases = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}
        if whence not in bases:
            raise ValueError(f"unknown whence {whence!r}: expected 0, 1 or 2")
        position = bases[whence] + offset
        if position < 0:
            raise ValueError(f"can't seek to {position}, before the start of the file")
        self._position = position
        return position

    def read(self, size: int | None = -1, /) -> bytes:
        """Read up to ``size`` bytes from the current position; by default all of the rest.

        Raises:
            ValueError: the file is closed.
            StorageError: as `Storage.read`.
        """
        if self.closed:
            raise ValueError("read of a closed file")
        left = max(self._size - self._position, 0)
        length = left if size is None or size < 0 else min(size, left)
        if length == 0:
            return b""
        offset = self._position - self._buffer_start
        if offset < 0 or offset + length > len(self._buffer):
            self._fetch(length)
            offset = self._position - self._buffer_start
        self._position += length
        return self._buffer[offset : offset + length]

    def read1(self, size: int = -1, /) -> bytes:
        """Like `read`."""
        return self.read(size)

    def _fetch(self, length: int) -> None:
        self._buffer_start = 0 if self._size <= _READ_AHEAD else self._position
        wanted = min(max(length, _READ_AHEAD), self._size - self._buffer_start)
        self._buffer = self._read_range(self._buffer_start, wanted)
