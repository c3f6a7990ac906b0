"""A directory of the local file system, or of one that is mounted like it, as a storage.

New content is always written to a hidden neighbour first (``.<name>.<uuid>.tmp``), synced, and then
given its name in one step, so that no reader and no crash ever meets half an object:

* ``create`` publishes with ``link(2)``, which refuses a name that is taken. There is no second
  best: ``open(O_EXCL)`` on the final name is exclusive, but shows an empty file until the content
  has been written, and ``rename`` overwrites. A file system without hard links is refused with
  `UnsafeStorageError`, unless the user says that there is one writer (`single_writer`): then a look
  and a ``rename`` have to do.
* ``replace`` publishes with ``rename``, which swaps old for new.

A writer that is killed leaves at most its hidden neighbour. Such leftovers are listed like any
other file, under their own names, so that a clean-up can find them.

Symbolic links are followed as the operating system does, but ``walk`` doesn't descend into linked
directories: what lies there may not belong to the table. Only regular files are objects.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, ClassVar, cast

from airflow_delta.engine.errors import (
    InvalidArgumentError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    UnsafeStorageError,
)
from airflow_delta.engine.storage.base import Capabilities, FileInfo, Level, checked_path
from airflow_delta.engine.storage.checked_file import CheckedFile, CheckedWriter
from airflow_delta.engine.storage.durable import make_directories, sync, sync_directory
from airflow_delta.engine.storage.hidden import hidden_name

__all__ = ["LocalStorage"]

# What the operating system says of a path that names no file.
_NOT_THERE = (FileNotFoundError, NotADirectoryError, IsADirectoryError)

_LINKS_UNSUPPORTED = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})


@dataclass(frozen=True)
class LocalStorage:
    """A storage over a local directory, which needn't exist yet.

    Args:
        root: the absolute path of the directory, without a trailing slash.
        single_writer: whether the user says that there is one writer; see `single_writer`.

    Raises:
        InvalidArgumentError: the root isn't absolute.
    """

    root: str
    single_writer: bool = False
    capabilities: ClassVar[Capabilities] = Capabilities(
        put_if_absent=True, start_after=True, remote=False
    )

    def __post_init__(self) -> None:
        if not self.root.startswith("/"):
            raise InvalidArgumentError(
                f"{self.root!r} isn't the absolute path of a directory", uri=self.root
            )

    @property
    def place(self) -> str:
        """See `Storage.place`: the path with links resolved."""
        return os.path.realpath(self.root)

    def read(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
        """See `Storage.read`."""
        with self._reading("read", path), self._full(path).open("rb") as file:
            file.seek(start)
            return file.read() if length is None else file.read(length)

    def read_many(self, paths: Sequence[str]) -> list[bytes | None]:
        """See `Storage.read_many`; one after the other, as local reads gain little from threads."""
        return [self._read_or_none(path) for path in paths]

    def open(self, path: str, *, size: int | None = None) -> BinaryIO:  # noqa: ARG002
        """See `Storage.open`; the size isn't needed here."""
        with self._reading("open", path):
            # The caller closes it.
            file = self._full(path).open("rb")
        return cast("BinaryIO", CheckedFile(file, lambda: self._reading("read", path)))

    def list(self, directory: str, *, start_after: str = "") -> Iterator[FileInfo]:
        """See `Storage.list`.

        The names are read in one pass when iteration starts; each file is asked for its size and
        time only as iteration reaches it, and one deleted in between is left out. Of two files that
        are made during that pass, one after the other, the system may give the second name alone.
        """
        with self._directory(directory) as descriptor:
            if descriptor is None:
                return
            with self._failures("list", directory), os.scandir(descriptor) as entries:
                # Of a log with a hundred thousand names a reader mostly wants the last few.
                names = [entry.name for entry in entries if entry.name > start_after]
            # Python orders text by code point, and that is the order of the UTF-8 bytes.
            names.sort()
            yield from self._infos(descriptor, names, _prefix(directory))

    def walk(self, directory: str) -> Iterator[FileInfo]:
        """See `Storage.walk`; linked directories are not entered."""
        pending = [directory]
        while pending:
            current = pending.pop()
            prefix = _prefix(current)
            with self._directory(current) as descriptor:
                if descriptor is None:
                    continue
                others = []
                with self._failures("list", current), os.scandir(descriptor) as entries:
                    for entry in entries:
                        if entry.is_dir(follow_symlinks=False):
                            pending.append(prefix + entry.name)
                        else:
                            others.append(entry.name)
                yield from self._infos(descriptor, others, prefix)

    def level(self, directory: str) -> Level:
        """See `Storage.level`."""
        prefix, folders, others = _prefix(directory), [], []
        with self._directory(directory) as descriptor:
            if descriptor is None:
                return Level([], [])
            with self._failures("list", directory), os.scandir(descriptor) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(prefix + entry.name)
                    else:
                        others.append(entry.name)
            return Level([*self._infos(descriptor, others, prefix)], folders)

    def head(self, path: str) -> FileInfo:
        """See `Storage.head`."""
        with self._reading("head", path):
            status = os.stat(self._name(path))  # noqa: PTH116
            if not stat.S_ISREG(status.st_mode):
                raise IsADirectoryError(errno.EISDIR, "not a regular file")
            return _info(path, status)

    def create(self, path: str, data: bytes) -> None:
        """See `Storage.create`."""
        with self._failures("create", path), self.writer(path, overwrite=False) as file:
            file.write(data)

    def replace(self, path: str, data: bytes) -> None:
        """See `Storage.replace`."""
        with self._failures("replace", path), self.writer(path, overwrite=True) as file:
            file.write(data)

    @contextmanager
    def writer(self, path: str, *, overwrite: bool) -> Iterator[BinaryIO]:
        """See `Storage.writer`. Missing directories are made."""
        operation = "replace" if overwrite else "create"
        final = self._full(path)
        temporary = final.with_name(hidden_name(final.name))
        with self._failures(operation, path):
            make_directories(final.parent)
            file = temporary.open("xb")
        try:
            # Not under `_failures`: what the caller raises in the block is the caller's.
            yield cast("BinaryIO", CheckedWriter(file, lambda: self._failures(operation, path)))
            with self._failures(operation, path):
                file.close()
                sync(temporary)
                if overwrite:
                    temporary.replace(final)
                else:
                    self._link(temporary, final, path)
        finally:
            # Of an abandoned file, the rest of the content needn't arrive.
            with suppress(OSError):
                file.close()
            with self._failures(operation, path):
                temporary.unlink(missing_ok=True)
        with self._failures(operation, path):
            sync_directory(final.parent)

    def delete(self, paths: Iterable[str]) -> None:
        """See `Storage.delete`; directories stay, even where they become empty."""
        for path in paths:
            # Without `_failures`, and without a Path: with them the deletion takes twice as long.
            try:
                os.unlink(self._name(path))  # noqa: PTH108
            except _NOT_THERE:
                continue
            except OSError as error:
                raise self._failure("delete", path, error) from error

    def _full(self, path: str) -> Path:
        return Path(self.root, checked_path(path))

    def _name(self, path: str) -> str:
        """The whole path, for calls by the thousand: making a Path takes as long as asking for one."""
        return f"{self.root.rstrip('/')}/{checked_path(path)}"

    def _read_or_none(self, path: str) -> bytes | None:
        # Neither a buffer nor `_reading`: for the small files of a log, they take half of the time.
        try:
            with open(self._name(path), "rb", buffering=0) as file:  # noqa: PTH123
                return file.readall()
        except _NOT_THERE:
            return None
        except OSError as error:
            raise self._failure("read", path, error) from error

    @contextmanager
    def _directory(self, directory: str) -> Iterator[int | None]:
        """A descriptor of a directory, None where there is no such directory.

        By a descriptor and a name the system finds a file sooner than by a whole path.
        """
        with self._failures("list", directory):
            try:
                descriptor = os.open(self._full(directory), os.O_RDONLY | os.O_DIRECTORY)
            except (FileNotFoundError, NotADirectoryError):
                descriptor = None
        if descriptor is None:
            yield None
            return
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _infos(self, directory: int, names: Iterable[str], prefix: str) -> Iterator[FileInfo]:
        for name in names:
            # Without `_failures`, which would take most of the time of a long listing.
            try:
                status = os.stat(name, dir_fd=directory)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise self._failure("list", prefix + name, error) from error
            if stat.S_ISREG(status.st_mode):
                yield _info(prefix + name, status)

    def _link(self, temporary: Path, final: Path, path: str) -> None:
        try:
            final.hardlink_to(temporary)
        except FileExistsError as error:
            # A network file system may repeat a request whose answer was lost, and then reports the
            # name that it has made itself as taken; the second name of our file tells.
            if temporary.stat().st_nlink > 1:
                return
            raise self._exists(path) from error
        except OSError as error:
            if error.errno not in _LINKS_UNSUPPORTED:
                raise
            if self.single_writer:
                if os.path.lexists(final):
                    raise self._exists(path) from None
                temporary.rename(final)
                return
            raise UnsafeStorageError(
                f"{path!r} can't be created: the file system refused a hard link "
                f"({error.strerror}), and without one a new file can't appear both whole and "
                "exclusively; keep the table on a file system with hard links or in an object "
                "store, or say with the storage option 'single_writer' that nobody else writes to it",
                table=self.root,
                path=path,
                operation="create",
            ) from error

    def _exists(self, path: str) -> ObjectExistsError:
        return ObjectExistsError(
            f"create {path!r}: there is such a file already",
            table=self.root,
            path=path,
            operation="create",
        )

    @contextmanager
    def _reading(self, operation: str, path: str) -> Iterator[None]:
        """Turn the absence of a file into the contract's error, and other failures too."""
        with self._failures(operation, path):
            try:
                yield
            except _NOT_THERE as error:
                raise ObjectNotFoundError(
                    f"{operation} {path!r}: there is no such file",
                    table=self.root,
                    path=path,
                    operation=operation,
                ) from error

    @contextmanager
    def _failures(self, operation: str, path: str) -> Iterator[None]:
        """Turn errors of the operating system into errors of the contract."""
        try:
            yield
        except OSError as error:
            raise self._failure(operation, path, error) from error

    def _failure(self, operation: str, path: str, error: OSError) -> StorageError:
        return StorageError(
            f"{operation} {path!r} failed: {error.strerror or error}",
            table=self.root,
            path=path,
            operation=operation,
        )


def _prefix(directory: str) -> str:
    directory = directory.rstrip("/")
    return f"{directory}/" if directory else ""


def _info(path: str, status: os.stat_result) -> FileInfo:
    return FileInfo(path, status.st_size, status.st_mtime_ns // 1_000_000)
