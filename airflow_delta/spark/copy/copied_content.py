"""Check the bytes of a file that is copied: it must be a Parquet file or a deletion vector file.

A malicious writer could put the path of a foreign file into the log, so that a clone copies it to a
location that the writer can read. `FileAccess` checks the path; this module checks the content.
Parquet begins and ends with a magic number. A deletion vector file has a version byte and then
frames with size and CRC-32 only.

Spec: PROTOCOL.md, "Deletion Vector File Storage Format".
"""

from __future__ import annotations

import struct
import zlib
from typing import Literal, Protocol, TypeAlias

from airflow_delta.engine.deletion_vectors.file_format import check_version
from airflow_delta.engine.errors import DeletionVectorError, InvalidTableError

__all__ = ["Content", "ContentCheck", "content_check"]

Content: TypeAlias = Literal["parquet", "deletion vectors", "other"]
"""The expected kind of a file; ``other`` is a format without a magic number, such as CSV."""

_MAGIC, _ENCRYPTED = b"PAR1", b"PARE"
_NUMBER = struct.Struct(">I")


class ContentCheck(Protocol):
    """Checks the bytes of a file, in order."""

    def update(self, chunk: bytes) -> None:
        """Check the next bytes.

        Raises:
            InvalidTableError: the file isn't of the expected kind.
        """

    def finish(self) -> None:
        """Check that the file is complete.

        Raises:
            InvalidTableError: see `update`.
        """


def content_check(content: Content, *, table: str, path: str) -> ContentCheck:
    """Create the check for a file.

    Args:
        content: the expected kind of the file.
        table: the location of the table whose log names it, for errors.
        path: its path, for errors.
    """
    if content == "parquet":
        return _Parquet(table, path)
    return _Vectors(table, path) if content == "deletion vectors" else _Anything()


class _Anything:
    def update(self, chunk: bytes) -> None:
        """Accept any bytes."""

    def finish(self) -> None:
        """Accept any end."""


class _Parquet:
    def __init__(self, table: str, path: str) -> None:
        self._table, self._path = table, path
        self._first = self._last = b""
        self._size = 0

    def update(self, chunk: bytes) -> None:
        """Check the first four bytes, and keep the last four."""
        if len(self._first) < len(_MAGIC):
            self._first += chunk[: len(_MAGIC) - len(self._first)]
            if len(self._first) == len(_MAGIC) and self._first not in (_MAGIC, _ENCRYPTED):
                raise self._error()
        self._last = (self._last + chunk[-len(_MAGIC) :])[-len(_MAGIC) :]
        self._size += len(chunk)

    def finish(self) -> None:
        """Check the last four bytes."""
        # A shorter file could pass with one magic number counted as both.
        if self._size < 3 * len(_MAGIC) or self._last != self._first:
            raise self._error()

    def _error(self) -> InvalidTableError:
        return _not_copied(self._table, self._path, "no Parquet file, as data files must be")


class _Vectors:
    def __init__(self, table: str, path: str) -> None:
        self._table, self._path = table, path
        self._unread = b""
        self._left = self._crc = 0
        self._state = "version"

    def update(self, chunk: bytes) -> None:
        """Check the sizes and checksums of the frames."""
        view = memoryview(self._unread + chunk)
        self._unread = b""
        while view:
            if self._state == "version":
                self._check_version(bytes(view[:1]))
                view = view[1:]
            elif self._state == "data":
                data = view[: self._left]
                self._crc = zlib.crc32(data, self._crc)
                self._left -= len(data)
                view = view[len(data) :]
                self._state = "data" if self._left else "crc"
            elif len(view) < _NUMBER.size:
                self._unread = bytes(view)
                return
            else:
                self._number(_NUMBER.unpack_from(view)[0])
                view = view[_NUMBER.size :]

    def finish(self) -> None:
        """Check that no frame is cut off."""
        if self._state != "size" or self._unread:
            raise self._error()

    def _check_version(self, first: bytes) -> None:
        try:
            check_version(first)
        except DeletionVectorError as error:
            raise self._error() from error
        self._state = "size"

    def _number(self, number: int) -> None:
        if self._state == "size":
            if not number:
                raise self._error()
            self._left, self._crc, self._state = number, 0, "data"
        elif number != self._crc:
            raise self._error()
        else:
            self._state = "size"

    def _error(self) -> InvalidTableError:
        return _not_copied(self._table, self._path, "no complete deletion vector file")


def _not_copied(table: str, path: str, what: str) -> InvalidTableError:
    return InvalidTableError(
        f"the file {path!r}, which the log names, isn't copied: it is {what}; the table is damaged, or "
        "somebody wants your worker to copy a file that doesn't belong to the table",
        table=table,
        path=path,
    )
