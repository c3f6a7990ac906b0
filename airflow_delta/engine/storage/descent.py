"""Reach files below a root of the local file system without following a symbolic link.

Whoever can write to a table's directory can put a link there. A read or a deletion that went through it
would reach files that the table's writer may have no right to. So below the root each directory is opened
by its name in the one before it, with ``O_NOFOLLOW``, and a file likewise; a link that is put there in the
meantime isn't followed either. The root itself, which the user named, may be a link or lie behind one.

Of the directories that lead to the last one the descriptors stay open: thousands of files in one
directory cost one descent.
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
"""What the operating system says of a path that names no file."""

# To search a directory for a name takes no right to list it. Systems without O_PATH ask for both.
_DIRECTORY = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY
# Without O_NONBLOCK, to open a FIFO waits until somebody writes into it.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK

_MOST_LEVELS = 128
"""As many descriptors a descent holds at most. Tables have a level for each partition column."""

_CHUNK = 1 << 24

_KINDS = (
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class RefusedError(OSError):
    """What the operating system would do, and a table's storage doesn't: follow a link, read a FIFO.

    Its ``strerror`` says what was found, and where; its ``filename`` is the path of that below the root.
    """


class Descent:
    """Opens directories below a root, one after another. A context manager; not for several threads.

    Each method raises ``OSError``, as the calls that it makes, and `RefusedError`.

    Args:
        root: the absolute path of the root, in which links are followed.
    """

    __slots__ = ("_current", "_descriptors", "_names", "_root")

    def __init__(self, root: str) -> None:
        self._root = root
        self._names: list[str] = []
        # One more than names: the first is the root's.
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
        """A descriptor of a directory, to be searched for names, until another one is entered.

        Args:
            directory: its path below the root; empty for the root.
            make: make the directories below the root that aren't there, each of them safe from a crash.
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
        """A new descriptor of a regular file, for reading, and its size. The caller closes it."""
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
            raise _refusal(status.st_mode, path)
        return descriptor, status.st_size

    def status(self, path: str) -> os.stat_result:
        """What the system knows of a regular file."""
        directory, _, name = path.rpartition("/")
        status = os.stat(name, dir_fd=self.enter(directory), follow_symlinks=False)
        if not stat.S_ISREG(status.st_mode):
            raise _refusal(status.st_mode, path)
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
        """Raise the right error where a name in the last directory can't be opened for what it is."""
        try:
            status = os.stat(name, dir_fd=self._descriptors[-1], follow_symlinks=False)
        except OSError:
            return
        if any(is_kind(status.st_mode) for is_kind, _ in _KINDS):
            raise _refusal(status.st_mode, "/".join((*self._names, name)))

    def _leave(self, kept: int) -> None:
        """Close all descriptors but the first ones."""
        del self._names[max(kept - 1, 0) :]
        while len(self._descriptors) > kept:
            os.close(self._descriptors.pop())


def read_all(descriptor: int, size: int) -> bytes:
    """All bytes of a file.

    Args:
        descriptor: of the file, at its begin.
        size: how many bytes it should have; what it has is read, however many.
    """
    data = os.read(descriptor, size + 1)
    # One byte less than asked for shows the end; to ask for it once more takes half as long again.
    if len(data) == size:
        return data
    return b"".join((data, *iter(lambda: os.read(descriptor, _CHUNK), b"")))


def read_range(descriptor: int, start: int, length: int) -> bytes:
    """Some bytes of a file, as many as there are.

    Args:
        descriptor: of the file.
        start: where the first one is.
        length: how many there are at most.
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
        return  # somebody else was faster
    sync_directory(".", within=parent)


def _refusal(mode: int, path: str) -> OSError:
    """The error for what isn't a regular file."""
    if stat.S_ISDIR(mode):
        return IsADirectoryError(errno.EISDIR, "not a regular file")
    kind = next((name for is_kind, name in _KINDS if is_kind(mode)), "no file")
    rule = (
        "links aren't followed below the root of a table; put there what it leads to"
        if stat.S_ISLNK(mode)
        else "only regular files are read; remove it"
    )
    return RefusedError(errno.ELOOP, f"{path!r} is {kind}, and {rule}", path)
