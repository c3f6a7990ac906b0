"""Open files below a root of the local file system without following symbolic links.

Anybody who can write to a table's directory can put a link there. A read or a deletion through the link
would reach files to which that writer may have no access. So `Descent` opens each directory below the root
by its name in the one before it, with ``O_NOFOLLOW``, and files likewise. That also excludes links that are
created in between. The root was named by the user; it may be a link, or lie behind one.

The descriptors of the current directory's path stay open, so thousands of files in a directory cost one
descent.
"""

from __future__ import annotations

import errno
import os
import stat
from types import TracebackType
from typing import TYPE_CHECKING

from airflow_delta.engine.storage.durable import sync_directory

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["NOT_FOUND", "Descent", "RefusedError", "read_all", "read_range"]

NOT_FOUND = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
"""The errors of the operating system for a path that names no file."""

# Opening a file in a directory needs no permission to list the directory. Without O_PATH both are required.
_DIRECTORY = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY
# Without O_NONBLOCK, opening a FIFO waits until another process writes into it.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK

_MOST_LEVELS = 128
"""The most descriptors that a descent holds. Tables have a level for each partition column."""

_CHUNK = 1 << 24

_KINDS = (
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class RefusedError(OSError):
    """A storage refuses what the operating system would do: follow a link, or read a FIFO or a device.

    ``strerror`` says what was found, and where. ``filename`` is its path below the root.
    """


class Descent:
    """Opens directories below a root, one after another. A context manager; not for several threads.

    Each method raises `RefusedError`, and the ``OSError`` of the operating system.

    Args:
        root: the absolute path of the root. Links in it are followed.
    """

    __slots__ = ("_current", "_descriptors", "_names", "_root")

    def __init__(self, root: str) -> None:
        self._root = root
        self._names: list[str] = []
        # One more than the names, because the first one is the root's.
        self._descriptors: list[int] = []
        self._current: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._leave(0)

    def enter(self, directory: str, *, make: bool = False) -> int:
        """Open a directory, and return a descriptor for calls with names in it.

        The descriptor is valid until another directory is entered.

        Args:
            directory: the path below the root; empty for the root.
            make: create missing directories below the root, each of them safe from a crash.
        """
        if directory == self._current:
            return self._descriptors[-1]
        self._current = None
        names = [name for name in directory.split("/") if name not in ("", ".")]
        known = 0
        if self._descriptors:
            for name, other in zip(names, self._names, strict=False):
                if name != other:
                    break
                known += 1
            self._leave(known + 1)
        else:
            self._descriptors.append(os.open(self._root, _DIRECTORY))
        for name in names[known:]:
            self._enter_next(name, make=make)
        self._current = directory
        return self._descriptors[-1]

    def open_file(self, path: str) -> tuple[int, int]:
        """Open a regular file for reading; return its descriptor, which the caller closes, and its size."""
        directory, _, name = path.rpartition("/")
        parent = self.enter(directory)
        try:
            descriptor = os.open(name, _FILE, dir_fd=parent)
        except NOT_FOUND:
            raise
        except OSError as error:
            self._refuse_special(name)
            raise error from None
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            raise _make_refusal(status.st_mode, path)
        return descriptor, status.st_size

    def status(self, path: str) -> os.stat_result:
        """Return the status of a regular file."""
        directory, _, name = path.rpartition("/")
        status = os.stat(name, dir_fd=self.enter(directory), follow_symlinks=False)
        if not stat.S_ISREG(status.st_mode):
            raise _make_refusal(status.st_mode, path)
        return status

    def _enter_next(self, name: str, *, make: bool) -> None:
        if len(self._names) >= _MOST_LEVELS:
            raise OSError(errno.ENAMETOOLONG, f"more than {_MOST_LEVELS} directories in each other")
        parent = self._descriptors[-1]
        try:
            descriptor = _open_directory(name, parent)
        except FileNotFoundError:
            if not make:
                raise
            _make_directory(name, parent)
            descriptor = _open_directory(name, parent)
        except OSError as error:
            self._refuse_special(name)
            raise error from None
        self._names.append(name)
        self._descriptors.append(descriptor)

    def _refuse_special(self, name: str) -> None:
        """Raise `RefusedError` if a name in the last directory is a link, a FIFO, a socket or a device."""
        try:
            status = os.stat(name, dir_fd=self._descriptors[-1], follow_symlinks=False)
        except OSError:
            return
        if any(is_kind(status.st_mode) for is_kind, _ in _KINDS):
            raise _make_refusal(status.st_mode, "/".join((*self._names, name)))

    def _leave(self, kept: int) -> None:
        """Close all descriptors except the first ``kept`` ones."""
        del self._names[max(kept - 1, 0) :]
        while len(self._descriptors) > kept:
            os.close(self._descriptors.pop())


def read_all(descriptor: int, size: int) -> bytes:
    """Read all bytes of a file.

    Args:
        descriptor: the file's descriptor, at the start.
        size: the expected number of bytes. If there are more or fewer, all of them are read.
    """
    data = os.read(descriptor, size + 1)
    # A short read shows the end of the file. A second call would take half as long again.
    if len(data) == size:
        return data
    return b"".join((data, *iter(lambda: os.read(descriptor, _CHUNK), b"")))


def read_range(descriptor: int, start: int, length: int) -> bytes:
    """Read a range of a file; it may be shorter at the end of the file.

    Args:
        descriptor: the file's descriptor.
        start: the offset of the first byte.
        length: the most bytes to read.
    """
    chunks, end = [], start + length
    while start < end and (chunk := os.pread(descriptor, min(end - start, _CHUNK), start)):
        chunks.append(chunk)
        start += len(chunk)
    return b"".join(chunks)


def _open_directory(name: str, parent: int) -> int:
    return os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)


def _make_directory(name: str, parent: int) -> None:
    try:
        os.mkdir(name, dir_fd=parent)
    except FileExistsError:
        return  # another process was faster
    sync_directory(".", within=parent)


def _make_refusal(mode: int, path: str) -> OSError:
    """Make the error for a path that isn't a regular file."""
    if stat.S_ISDIR(mode):
        return IsADirectoryError(errno.EISDIR, "not a regular file")
    kind = next((name for is_kind, name in _KINDS if is_kind(mode)), "no file")
    rule = (
        "links aren't followed below the root of a table; put there what it leads to"
        if stat.S_ISLNK(mode)
        else "only regular files are read; remove it"
    )
    return RefusedError(errno.ELOOP, f"{path!r} is {kind}, and {rule}", path)
