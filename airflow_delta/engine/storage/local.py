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

Only regular files are objects, and below the root no symbolic link is followed (`descent`). A link that is
read, or lies on the way to what is read, written or deleted, is a `NotRegularFileError`; so are FIFOs,
sockets and devices. ``list`` has their names, because a reader of a log must not take such a file for one
that isn't there. ``walk`` and ``level``, by which files are found to be deleted, leave them out. ``delete``
deletes a link and never what it leads to; ``replace`` puts an object in its place. The root may be a link.
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
    NotRegularFileError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    UnsafeStorageError,
)
from airflow_delta.engine.storage.base import Capabilities, FileInfo, Level, check_path
from airflow_delta.engine.storage.checked_file import CheckedFile, CheckedWriter
from airflow_delta.engine.storage.descent import (
    NOT_FOUND,
    Descent,
    RefusedError,
    read_all,
    read_range,
)
from airflow_delta.engine.storage.durable import make_directories, sync_directory
from airflow_delta.engine.storage.hidden import make_hidden_name

__all__ = ["LocalStorage"]

_LINKS_UNSUPPORTED = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW


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
    def canonical_location(self) -> str:
        """See `Storage.canonical_location`: the path with links resolved."""
        return os.path.realpath(self.root)

    def read(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
        """See `Storage.read`."""
        # As below without a context for errors, which takes as long as one of the calls.
        try:
            with Descent(self.root) as descent:
                descriptor, size = descent.open_file(check_path(path))
                try:
                    if start == 0 and length is None:
                        return read_all(descriptor, size)
                    return read_range(descriptor, start, size if length is None else length)
                finally:
                    os.close(descriptor)
        except OSError as error:
            raise self._read_failure("read", path, error) from error
        except MemoryError as error:
            raise self._too_large(path) from error

    def read_many(self, paths: Sequence[str]) -> list[bytes | None]:
        """See `Storage.read_many`; one after the other, as local reads gain little from threads."""
        with Descent(self.root) as descent:
            return [self._read_or_none(descent, path) for path in paths]

    def open(self, path: str, *, size: int | None = None) -> BinaryIO:  # noqa: ARG002
        """See `Storage.open`; the size isn't needed here."""
        try:
            with Descent(self.root) as descent:
                # The caller closes it.
                file = os.fdopen(descent.open_file(check_path(path))[0], "rb")
        except OSError as error:
            raise self._read_failure("open", path, error) from error
        return cast("BinaryIO", CheckedFile(file, lambda: self._reading("read", path)))

    def list(self, directory: str, *, start_after: str = "") -> Iterator[FileInfo]:
        """See `Storage.list`; and the module for what isn't a regular file.

        The names are read in one pass when iteration starts; each file is asked for its size and
        time only as iteration reaches it, and one deleted in between is left out. Of two files that
        are made during that pass, one after the other, the system may give the second name alone.

        Raises:
            NotRegularFileError: the directory is a link, or behind one. So do ``walk`` and ``level``.
        """
        with Descent(self.root) as descent, self._directory(descent, directory) as descriptor:
            if descriptor is None:
                return
            with self._failures("list", directory), os.scandir(descriptor) as entries:
                # Of a log with a hundred thousand names a reader mostly wants the last few.
                names = [entry.name for entry in entries if entry.name > start_after]
            # Python orders text by code point, and that is the order of the UTF-8 bytes.
            names.sort()
            prefix = _prefix(directory)
            for name, status in self._statuses(descriptor, names, prefix):
                if not stat.S_ISDIR(status.st_mode):
                    yield _info(prefix + name, status)

    def walk(self, directory: str) -> Iterator[FileInfo]:
        """See `Storage.walk`; linked directories are not entered."""
        pending = [directory]
        with Descent(self.root) as descent:
            while pending:
                current = pending.pop()
                with self._directory(descent, current) as descriptor:
                    if descriptor is not None:
                        folders, names = self._entries(descriptor, current)
                        pending += folders
                        yield from self._regular(descriptor, names, _prefix(current))

    def level(self, directory: str) -> Level:
        """See `Storage.level`."""
        with Descent(self.root) as descent, self._directory(descent, directory) as descriptor:
            if descriptor is None:
                return Level([], [])
            folders, names = self._entries(descriptor, directory)
            return Level([*self._regular(descriptor, names, _prefix(directory))], folders)

    def head(self, path: str) -> FileInfo:
        """See `Storage.head`."""
        try:
            with Descent(self.root) as descent:
                return _info(path, descent.status(check_path(path)))
        except OSError as error:
            raise self._read_failure("head", path, error) from error

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
        directory, _, name = check_path(path).rpartition("/")
        temporary = make_hidden_name(name)
        with Descent(self.root) as descent:
            with self._failures(operation, path):
                make_directories(Path(self.root))
                parent = descent.enter(directory, make=True)
                file = os.fdopen(os.open(temporary, _NEW_FILE, 0o666, dir_fd=parent), "wb")
            try:
                # Not under `_failures`: what the caller raises in the block is the caller's.
                yield cast("BinaryIO", CheckedWriter(file, lambda: self._failures(operation, path)))
                with self._failures(operation, path):
                    file.flush()
                    os.fsync(file.fileno())
                    file.close()
                    if overwrite:
                        os.replace(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
                    else:
                        self._link(temporary, name, parent, path)
            finally:
                # Of an abandoned file, the rest of the content needn't arrive.
                with suppress(OSError):
                    file.close()
                with self._failures(operation, path), suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=parent)
            with self._failures(operation, path):
                sync_directory(".", within=parent)

    def delete(self, paths: Iterable[str]) -> None:
        """See `Storage.delete`; directories stay, even where they become empty."""
        with Descent(self.root) as descent:
            for path in paths:
                directory, _, name = check_path(path).rpartition("/")
                # Without `_failures`: with it the deletion takes twice as long.
                try:
                    os.unlink(name, dir_fd=descent.enter(directory))
                except NOT_FOUND:
                    continue
                except OSError as error:
                    # A log can name what no file can be called: then there is none either.
                    if error.errno == errno.ENAMETOOLONG:
                        continue
                    raise self._failure("delete", path, error) from error

    def _read_or_none(self, descent: Descent, path: str) -> bytes | None:
        # Neither a buffer nor `_reading`: for the small files of a log, they take half of the time.
        try:
            descriptor, size = descent.open_file(check_path(path))
            try:
                return read_all(descriptor, size)
            finally:
                os.close(descriptor)
        except NOT_FOUND:
            return None
        except OSError as error:
            raise self._failure("read", path, error) from error
        except MemoryError as error:
            raise self._too_large(path) from error

    @contextmanager
    def _directory(self, descent: Descent, directory: str) -> Iterator[int | None]:
        """A descriptor of a directory that can be listed, None where there is no such directory."""
        with self._failures("list", directory):
            try:
                parent = descent.enter(check_path(directory))
                descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=parent)
            except (FileNotFoundError, NotADirectoryError):
                descriptor = None
        if descriptor is None:
            yield None
            return
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _entries(self, descriptor: int, directory: str) -> tuple[Sequence[str], Sequence[str]]:
        """The paths of the directories in one, and the names of all else that is there."""
        prefix, folders, names = _prefix(directory), [], []
        with self._failures("list", directory), os.scandir(descriptor) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(prefix + entry.name)
                else:
                    names.append(entry.name)
        return folders, names

    def _regular(self, directory: int, names: Iterable[str], prefix: str) -> Iterator[FileInfo]:
        """The regular files among names."""
        for name, status in self._statuses(directory, names, prefix):
            if stat.S_ISREG(status.st_mode):
                yield _info(prefix + name, status)

    def _statuses(
        self, directory: int, names: Iterable[str], prefix: str
    ) -> Iterator[tuple[str, os.stat_result]]:
        for name in names:
            # Without `_failures`, which would take most of the time of a long listing.
            try:
                yield name, os.stat(name, dir_fd=directory, follow_symlinks=False)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise self._failure("list", prefix + name, error) from error

    def _link(self, temporary: str, name: str, parent: int, path: str) -> None:
        try:
            os.link(temporary, name, src_dir_fd=parent, dst_dir_fd=parent, follow_symlinks=False)
        except FileExistsError as error:
            # A network file system may repeat a request whose answer was lost, and then reports the
            # name that it has made itself as taken; the second name of our file tells.
            if os.stat(temporary, dir_fd=parent, follow_symlinks=False).st_nlink > 1:
                return
            raise self._exists(path) from error
        except OSError as error:
            if error.errno not in _LINKS_UNSUPPORTED:
                raise
            if self.single_writer:
                if _is_taken(name, parent):
                    raise self._exists(path) from None
                os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
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
        try:
            yield
        except OSError as error:
            raise self._read_failure(operation, path, error) from error

    def _read_failure(self, operation: str, path: str, error: OSError) -> StorageError:
        if not isinstance(error, NOT_FOUND):
            return self._failure(operation, path, error)
        return ObjectNotFoundError(
            f"{operation} {path!r}: there is no such file",
            table=self.root,
            path=path,
            operation=operation,
        )

    @contextmanager
    def _failures(self, operation: str, path: str) -> Iterator[None]:
        """Turn errors of the operating system into errors of the contract."""
        try:
            yield
        except OSError as error:
            raise self._failure(operation, path, error) from error

    def _too_large(self, path: str) -> StorageError:
        # A hole takes no space on the disk, and may be larger than any memory.
        return StorageError(
            f"read {path!r} failed: the file doesn't fit into memory; see whether it is what it should be",
            table=self.root,
            path=path,
            operation="read",
        )

    def _failure(self, operation: str, path: str, error: OSError) -> StorageError:
        facts = {"table": self.root, "path": path, "operation": operation}
        message = f"{operation} {path!r} failed: {error.strerror or error}"
        if isinstance(error, RefusedError):
            return NotRegularFileError(message, **facts, found=error.filename)
        return StorageError(message, **facts)


def _is_taken(name: str, parent: int) -> bool:
    try:
        os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _prefix(directory: str) -> str:
    directory = directory.rstrip("/")
    return f"{directory}/" if directory else ""


def _info(path: str, status: os.stat_result) -> FileInfo:
    return FileInfo(path, status.st_size, status.st_mtime_ns // 1_000_000)
