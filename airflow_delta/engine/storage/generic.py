"""Any other store that fsspec supports (HDFS, SFTP, archives, …), for reading.

The store must list directories and return modification times, because the log needs both; HTTP and FTP
don't. Storage options are the arguments of fsspec's file system.

fsspec can't create an object exclusively in all of its file systems: ``mode="create"`` checks whether the
object exists and then writes it, which two writers can do at the same time. Commits wouldn't be safe, so
this storage writes nothing. If the user says that there is one writer (`single_writer`), `open_generic`
returns a `GenericWriter`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any, BinaryIO, ClassVar, NoReturn, TypeAlias, cast

import fsspec
from fsspec.implementations.local import LocalFileSystem

from airflow_delta.engine.errors import (
    InvalidArgumentError,
    NotRegularFileError,
    ObjectNotFoundError,
    StorageError,
    UnsafeStorageError,
)
from airflow_delta.engine.public_text import (
    has_password,
    hide_user_of,
    without_password,
    without_user,
)
from airflow_delta.engine.storage.base import Capabilities, FileInfo, Level, check_path
from airflow_delta.engine.storage.checked_file import CheckedFile
from airflow_delta.engine.storage.descent import Descent, RefusedError
from airflow_delta.engine.storage.single_writer import drop_single_writer, is_single_writer
from airflow_delta.engine.storage.store_arguments import CREDENTIAL_PROVIDER

__all__ = ["GenericStorage", "open_generic"]

_Entry: TypeAlias = Mapping[str, Any]
"""fsspec's description of a file or directory."""

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MILLISECOND = timedelta(milliseconds=1)

# The names of the modification time in fsspec's file systems. The last one is for members of ZIP archives.
_TIME_KEYS = (
    "mtime",
    "LastModified",
    "last_modified",
    "modified",
    "updated",
    "created",
    "date_time",
)


def open_generic(uri: str, options: Mapping[str, object]) -> GenericStorage:
    """Make the storage of a location that fsspec supports. Some file systems connect here.

    Args:
        uri: the location.
        options: the arguments of the file system, and ``single_writer``. Without that option, the storage
            is for reading.

    Raises:
        InvalidArgumentError: fsspec doesn't know the scheme, or the file system doesn't know an option, or
            needs one that is missing.
        StorageError: a package that the file system needs isn't installed, the file system can't connect,
            or the archive is damaged.
    """
    # The top of a file system has nothing but slashes after its scheme.
    root = uri if uri.rstrip("/").endswith(":") else uri.rstrip("/")
    arguments = drop_single_writer(options)
    if CREDENTIAL_PROVIDER in arguments:
        raise InvalidArgumentError(
            f"{without_user(uri)!r}: the storage option {CREDENTIAL_PROVIDER!r} is for S3, GCS and Azure; "
            "the file systems of fsspec take other arguments",
            option=CREDENTIAL_PROVIDER,
        )
    kind: type[GenericStorage] = GenericStorage
    if is_single_writer(options, uri=uri):
        from airflow_delta.engine.storage.generic_writer import GenericWriter

        kind = GenericWriter
    scheme = uri.partition(":")[0]
    # Classes that a user has registered are only in the registry. The others are only in the list, until
    # used.
    if scheme not in fsspec.registry and scheme not in fsspec.available_protocols():
        raise InvalidArgumentError(
            f"{uri!r}: unknown scheme {scheme!r}: expected a path or one of file, memory, s3, s3a, "
            "gs, gcs, abfs, abfss, az, or a scheme that fsspec knows or that was registered with it",
            uri=uri,
        )
    try:
        file_system, path = fsspec.url_to_fs(root, **arguments)
    except (ImportError, OSError) as error:
        reason = hide_user_of(uri, str(error))
        raise StorageError(f"{uri!r} can't be opened: {reason}", operation="open") from (
            None if has_password(uri) else error
        )
    except (AttributeError, TypeError, ValueError):
        # The error may show the values of options, which may be secrets. So it isn't the cause of ours.
        raise InvalidArgumentError(
            f"{uri!r}: fsspec's file system {scheme!r} can't be opened with this location and these "
            f"storage options: {', '.join(sorted(arguments)) or 'none'}; expected those that its "
            "documentation names",
            uri=uri,
        ) from None
    except Exception as error:  # noqa: BLE001 - raised as one of ours
        # File systems have their own types of errors, such as for a damaged archive or a failed handshake.
        reason = hide_user_of(uri, str(error))
        raise StorageError(
            f"{uri!r} can't be opened: {type(error).__name__}: {reason}", operation="open"
        ) from (None if has_password(uri) else error)
    return kind(root, file_system, path.rstrip("/") or path[:1])


@dataclass(frozen=True, repr=False)
class GenericStorage:
    """A storage for reading below one location of an fsspec file system.

    Args:
        root: the location as the user wrote it.
        file_system: fsspec's file system.
        base: the location's path in the file system, without a trailing slash. At the top of a file system
            it is empty, or a slash if the paths there begin with one.
    """

    root: str
    file_system: Any
    base: str
    capabilities: ClassVar[Capabilities] = Capabilities(
        put_if_absent=False, start_after=False, remote=True
    )

    def __repr__(self) -> str:
        # fsspec's file systems show credentials in their repr, and the location may have a password.
        return f"{type(self).__name__}(root={without_password(self.root)!r})"

    @property
    def canonical_location(self) -> str:
        """See `Storage.canonical_location`."""
        if isinstance(self.file_system, LocalFileSystem):
            return os.path.realpath(self.base)
        scheme, separator, rest = without_user(self.root).partition("://")
        named, slash, path = rest.partition("/")
        # The options have the parts of the server's address that the URI lacks.
        host, port = (self.file_system.storage_options.get(name) for name in ("host", "port"))
        if host and named in ("", host):
            named = f"{host}:{port}" if port else host
        return f"{scheme.lower()}{separator}{named}{slash}{path}"

    def read(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
        """See `Storage.read`."""
        full = self._full(path)
        end = None if length is None else start + length
        with self._translate_errors("read", path):
            return bytes(self.file_system.cat_file(full, start=start, end=end))

    def read_many(self, paths: Sequence[str]) -> list[bytes | None]:
        """See `Storage.read_many`; one after the other."""
        return [self._read_or_none(path) for path in paths]

    def open(self, path: str, *, size: int | None = None) -> BinaryIO:  # noqa: ARG002
        """See `Storage.open`; the size isn't needed here."""
        full = self._full(path)
        with self._translate_errors("open", path):
            file = self.file_system.open(full, "rb")
        return cast("BinaryIO", CheckedFile(file, lambda: self._translate_errors("read", path)))

    def list(self, directory: str, *, start_after: str = "") -> Iterator[FileInfo]:
        """See `Storage.list`."""
        # Python orders text by code point, and that is the order of the UTF-8 bytes.
        for info in sorted(self.level(directory).files, key=lambda info: info.path):
            if info.name > start_after:
                yield info

    def walk(self, directory: str) -> Iterator[FileInfo]:
        """See `Storage.walk`."""
        found = self._below(
            directory, lambda full: self.file_system.find(full, detail=True).values()
        )
        yield from map(self._info, _of_type(found, "file"))

    def level(self, directory: str) -> Level:
        """See `Storage.level`."""
        found = self._below(directory, lambda full: self.file_system.ls(full, detail=True))
        folders = [
            entry["name"].rstrip("/").removeprefix(self._prefix)
            for entry in _of_type(found, "directory")
        ]
        return Level([*map(self._info, _of_type(found, "file"))], folders)

    def head(self, path: str) -> FileInfo:
        """See `Storage.head`."""
        full = self._full(path)
        with self._translate_errors("head", path):
            info = self.file_system.info(full)
            if info["type"] != "file":
                raise IsADirectoryError(full)
            return FileInfo(path, info["size"], self._modified_ms(info, path))

    def create(self, path: str, data: bytes) -> None:  # noqa: ARG002
        """Refuse; see the module."""
        self._refuse("create", path)

    def replace(self, path: str, data: bytes) -> None:  # noqa: ARG002
        """Refuse; see the module."""
        self._refuse("replace", path)

    def writer(self, path: str, *, overwrite: bool) -> AbstractContextManager[BinaryIO]:
        """Refuse; see the module."""
        self._refuse("replace" if overwrite else "create", path)

    def delete(self, paths: Iterable[str]) -> None:
        """Refuse, where there is anything to delete; see the module."""
        for path in paths:
            self._refuse("delete", path)

    def _full(self, path: str) -> str:
        full = f"{self._prefix}{check_path(path)}".rstrip("/") or self.base
        if path and isinstance(self.file_system, LocalFileSystem):
            self._check_regular(path)
        return full

    def _check_regular(self, path: str) -> None:
        """Refuse links, FIFOs and devices in a local directory; fsspec would follow or open them."""
        try:
            with Descent(self.base) as descent:
                descent.status(path)
        except RefusedError as error:
            raise NotRegularFileError(
                f"{path!r} isn't opened: {error.strerror}",
                table=self.root,
                path=path,
                operation="open",
                found=error.filename,
            ) from error
        except OSError:
            return  # a directory or a missing file: the file system itself raises the error

    @property
    def _prefix(self) -> str:
        """The prefix of the paths of all objects."""
        return f"{self.base.rstrip('/')}/" if self.base else ""

    def _read_or_none(self, path: str) -> bytes | None:
        try:
            return self.read(path)
        except ObjectNotFoundError:
            return None

    def _below(
        self, directory: str, entries: Callable[[str], Iterable[_Entry]]
    ) -> Sequence[_Entry]:
        full = self._full(directory.rstrip("/"))
        with self._translate_errors("list", directory):
            # A cached listing would miss objects that were created since.
            self.file_system.invalidate_cache()
            try:
                found = [*entries(full)]
            except (FileNotFoundError, NotADirectoryError):
                return []
        # Some file systems list a file or a directory as a member of itself.
        return [entry for entry in found if entry["name"].rstrip("/") != full]

    def _info(self, entry: _Entry) -> FileInfo:
        inside = entry["name"].removeprefix(self._prefix)
        return FileInfo(inside, entry["size"], self._modified_ms(entry, inside))

    def _modified_ms(self, info: _Entry, path: str) -> int:
        time = next((info[key] for key in _TIME_KEYS if info.get(key) is not None), None)
        if isinstance(time, tuple):
            # In an archive it has no time zone; an unknown time has the month 0.
            with suppress(ValueError):
                time = datetime(*time)
        if isinstance(time, datetime):
            aware = time if time.tzinfo else time.replace(tzinfo=timezone.utc)
            return (aware - _EPOCH) // _MILLISECOND
        if isinstance(time, (int, float)):
            return int(time * 1000)
        raise StorageError(
            f"{path!r}: the store has no modification time for it, and the log needs it; copy the table "
            "to a store that has",
            table=self.root,
            path=path,
            operation="head",
        )

    def _refuse(self, operation: str, path: str) -> NoReturn:
        check_path(path)
        raise UnsafeStorageError(
            f"{operation} {path!r}: this kind of store is for reading, because nothing keeps two "
            "writers from overwriting each other's commits there; write to a local file system, "
            "S3, GCS or Azure, or say with the storage option 'single_writer' that nobody else "
            "writes to the table",
            table=self.root,
            path=path,
            operation=operation,
        )

    @contextmanager
    def _translate_errors(self, operation: str, path: str) -> Iterator[None]:
        """Turn errors of the file system into those of the contract."""
        facts = {"table": self.root, "path": path, "operation": operation}
        try:
            yield
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
            raise ObjectNotFoundError(
                f"{operation} {path!r}: there is no such object", **facts
            ) from self._shown(error)
        except OSError as error:
            reason = hide_user_of(self.root, str(error))
            raise StorageError(f"{operation} {path!r} failed: {reason}", **facts) from self._shown(
                error
            )

    def _shown(self, error: Exception) -> Exception | None:
        """Return the error as a cause for tracebacks; None if it may quote a password."""
        return None if has_password(self.root) else error


def _of_type(entries: Iterable[_Entry], type_: str) -> Iterator[_Entry]:
    return (entry for entry in entries if entry["type"] == type_)
