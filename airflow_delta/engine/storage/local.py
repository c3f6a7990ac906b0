"""A directory of the local file system, or of one that is mounted like it, as a storage.

New content is written to a hidden file in the same directory (``.<name>.<uuid>.tmp``), synced, and then
published under its name in one step: by ``link(2)``, which fails if the name exists, or by ``rename`` to
replace it. So neither a reader nor a crash ever finds half an object. A killed writer leaves its hidden
file, which is listed under its name, so that a clean-up can find it.

Only regular files are objects, and below the root no symbolic link is followed (`descent`).
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
        root: the absolute path of the directory, without a trailing slash. It may be a link.
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
        # Without a context manager for errors, which takes as long as one of the calls.
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
                # The caller closes the file.
                file = os.fdopen(descent.open_file(check_path(path))[0], "rb")
        except OSError as error:
            raise self._read_failure("open", path, error) from error
        return cast(
            "BinaryIO", CheckedFile(file, lambda: self._translate_read_errors("read", path))
        )

    def list(self, directory: str, *, start_after: str = "") -> Iterator[FileInfo]:
        """See `Storage.list`.

        The names are read in one pass when iteration starts. Size and time of a file are read when
        iteration reaches it, and a file that was deleted in between is left out. If two files are created
        during that pass, one after the other, the system may return only the second name.

        Names of links and FIFOs are included: a reader of a log must not take such a file for a missing
        one. ``walk`` and ``level`` leave them out, because they are used to find files to delete.

        Raises:
            NotRegularFileError: the directory is a link, or behind one. ``walk`` and ``level`` raise it,
                too.
        """
        with Descent(self.root) as descent, self._directory(descent, directory) as descriptor:
            if descriptor is None:
                return
            with self._translate_errors("list", directory), os.scandir(descriptor) as entries:
                # A log may have a hundred thousand names, and a reader mostly needs the last few.
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
        with self._translate_errors("create", path), self.writer(path, overwrite=False) as file:
            file.write(data)

    def replace(self, path: str, data: bytes) -> None:
        """See `Storage.replace`."""
        with self._translate_errors("replace", path), self.writer(path, overwrite=True) as file:
            file.write(data)

    @contextmanager
    def writer(self, path: str, *, overwrite: bool) -> Iterator[BinaryIO]:
        """See `Storage.writer`. Missing directories are made."""
        operation = "replace" if overwrite else "create"
        directory, _, name = check_path(path).rpartition("/")
        temporary = make_hidden_name(name)
        with Descent(self.root) as descent:
            with self._translate_errors(operation, path):
                make_directories(Path(self.root))
                parent = descent.enter(directory, make=True)
                file = os.fdopen(os.open(temporary, _NEW_FILE, 0o666, dir_fd=parent), "wb")
            try:
                # Not inside `_translate_errors`: errors that the caller raises in the block stay as they
                # are.
                yield cast(
                    "BinaryIO", CheckedWriter(file, lambda: self._translate_errors(operation, path))
                )
                with self._translate_errors(operation, path):
                    file.flush()
                    os.fsync(file.fileno())
                    file.close()
                    if overwrite:
                        os.replace(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
                    else:
                        self._link(temporary, name, parent, path)
            finally:
                # An abandoned file needn't be complete.
                with suppress(OSError):
                    file.close()
                with self._translate_errors(operation, path), suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=parent)
            with self._translate_errors(operation, path):
                sync_directory(".", within=parent)

    def delete(self, paths: Iterable[str]) -> None:
        """See `Storage.delete`. A link is deleted, not its target. Directories stay, even empty ones."""
        with Descent(self.root) as descent:
            for path in paths:
                directory, _, name = check_path(path).rpartition("/")
                # Without `_translate_errors`, which would double the time of a deletion.
                try:
                    os.unlink(name, dir_fd=descent.enter(directory))
                except NOT_FOUND:
                    continue
                except OSError as error:
                    # A log can contain a name that is too long for a file, so there is no such file.
                    if error.errno == errno.ENAMETOOLONG:
                        continue
                    raise self._failure("delete", path, error) from error

    def _read_or_none(self, descent: Descent, path: str) -> bytes | None:
        # Without a buffer and `_translate_read_errors`: for the small files of a log, they would take half
        # of the time.
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
        """Open a directory for listing, and yield its descriptor; None if it doesn't exist."""
        with self._translate_errors("list", directory):
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
        """Return the paths of the directories in a directory, and the names of everything else in it."""
        prefix, folders, names = _prefix(directory), [], []
        with self._translate_errors("list", directory), os.scandir(descriptor) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(prefix + entry.name)
                else:
                    names.append(entry.name)
        return folders, names

    def _regular(self, directory: int, names: Iterable[str], prefix: str) -> Iterator[FileInfo]:
        """Yield the regular files among names in a directory."""
        for name, status in self._statuses(directory, names, prefix):
            if stat.S_ISREG(status.st_mode):
                yield _info(prefix + name, status)

    def _statuses(
        self, directory: int, names: Iterable[str], prefix: str
    ) -> Iterator[tuple[str, os.stat_result]]:
        for name in names:
            # Without `_translate_errors`, which would take most of the time of a long listing.
            try:
                yield name, os.stat(name, dir_fd=directory, follow_symlinks=False)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise self._failure("list", prefix + name, error) from error

    def _link(self, temporary: str, name: str, parent: int, path: str) -> None:
        # ``open(O_EXCL)`` on the final name would be exclusive, too, but shows an empty file until the
        # content is written. ``rename`` overwrites.
        try:
            os.link(temporary, name, src_dir_fd=parent, dst_dir_fd=parent, follow_symlinks=False)
        except FileExistsError as error:
            # A network file system may repeat a request whose answer was lost, and then report that its own
            # new name exists. Then our file has two names.
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
    def _translate_read_errors(self, operation: str, path: str) -> Iterator[None]:
        """Turn errors of a read into those of the contract, also that of a missing file."""
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
    def _translate_errors(self, operation: str, path: str) -> Iterator[None]:
        """Turn errors of the operating system into those of the contract."""
        try:
            yield
        except OSError as error:
            raise self._failure(operation, path, error) from error

    def _too_large(self, path: str) -> StorageError:
        # A sparse file takes no space on the disk, and may be larger than the memory.
        return StorageError(
            f"read {path!r} failed: the file doesn't fit into memory; check whether it is the right file",
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
