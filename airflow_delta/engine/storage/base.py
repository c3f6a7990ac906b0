"""The storage contract. The engine does all its I/O through a `Storage`.

A storage has one root, the table's location. Objects are named by their paths below it: decoded (never
URI-encoded), with ``/`` as separator, without a leading ``/``. Every implementation guarantees, and
``tests/contracts`` checks:

* **Whole reads.** ``read`` returns the bytes of one object as one writer left it.
* **Exclusive, atomic creation.** Of concurrent ``create`` calls for one path exactly one returns; the
  others raise `ObjectExistsError`. A reader sees the whole object or none. A call that fails otherwise
  leaves either nothing or the whole object.
* **Atomic replacement.** A reader sees the old bytes or the new ones.
* **Consistent, ordered listing.** After ``create`` has returned, every ``list`` has the object. Names
  ascend by their UTF-8 bytes.
* **Confinement to the root.** A path that leaves the root by ``..`` raises `InvalidArgumentError`.
* **Regular files only.** Below the root no symbolic link is followed, and no call waits for a FIFO: reading
  a link, a FIFO, a socket or a device, or a path through a link, raises `NotRegularFileError`. ``list``
  includes their names; ``walk`` and ``level`` leave them out.
* **One canonical location.** It is equal for all spellings of one location, and differs for different ones.
  It has no secrets (`canonical_location`).
* **Typed errors.** `ObjectNotFoundError`, `ObjectExistsError`, else `StorageError`, with the path and the
  operation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from airflow_delta.engine.errors import InvalidArgumentError, ObjectNotFoundError

__all__ = ["Capabilities", "FileInfo", "Level", "Storage", "check_path", "exists"]


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One stored object: path below the root, size in bytes, modification time in epoch ms."""

    path: str
    size: int
    modified_ms: int

    @property
    def name(self) -> str:
        """The last segment of the path."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Level:
    """The direct content of a directory.

    Attributes:
        files: the objects in it.
        folders: the directories in it, as paths below the root; their objects aren't listed.
    """

    files: Sequence[FileInfo]
    folders: Sequence[str]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The capabilities of a store.

    Attributes:
        put_if_absent: ``create`` is atomic and exclusive, as far as is known before it is tried. Without
            it, commits are refused, unless the user says that there is one writer.
        start_after: the store itself skips earlier names in ``list``, so a late start is cheap.
        remote: each call is a round trip, so callers should make few calls, or parallel ones.
    """

    put_if_absent: bool
    start_after: bool
    remote: bool


class Storage(Protocol):
    """An object store or file system below one root. See the module for the contract."""

    @property
    def root(self) -> str:
        """The root as the user wrote it, without a trailing slash; for messages and to resolve paths."""

    @property
    def canonical_location(self) -> str:
        """The location of the root, the same for all its spellings; see the module `canonical_location`.

        It needs no request to a store; on the local file system links are resolved. Two machines may have
        different directories at one path.
        """

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities of this store."""

    def read(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
        """Return the bytes of an object, or ``length`` of them from ``start``.

        Raises:
            ObjectNotFoundError: there is no such object.
        """

    def read_many(self, paths: Sequence[str]) -> list[bytes | None]:
        """Return the bytes of several objects; None for a missing one. Remote stores read in parallel."""

    def open(self, path: str, *, size: int | None = None) -> BinaryIO:
        """Open an object as a seekable binary file; a known ``size`` saves a round trip.

        If the store fails, reads of the file raise `StorageError`, never a plain ``OSError``.

        Raises:
            ObjectNotFoundError: there is no such object (raised here or by the first read).
        """

    def list(self, directory: str, *, start_after: str = "") -> Iterator[FileInfo]:
        """Yield the objects directly in a directory whose names sort after ``start_after``, ascending.

        Sub-directories are left out. For a missing directory it yields nothing.
        """

    def walk(self, directory: str) -> Iterator[FileInfo]:
        """Yield all objects at any depth below a directory, in any order."""

    def level(self, directory: str) -> Level:
        """Return what is directly in a directory: its objects and its directories, in any order.

        In an object store, a directory is a common prefix of paths. In a file system it may be empty; links
        to directories are left out. A missing directory has no content. Some tools create an object to
        represent a directory, with the directory's name and a slash; it is listed in that directory.
        """

    def head(self, path: str) -> FileInfo:
        """Return size and modification time of an object.

        Raises:
            ObjectNotFoundError: there is no such object.
        """

    def create(self, path: str, data: bytes) -> None:
        """Write an object that must not exist yet: put-if-absent.

        Raises:
            ObjectExistsError: the object exists already.
            UnsafeStorageError: the store can't create exclusively, and the user doesn't say that there is
                one writer.
        """

    def replace(self, path: str, data: bytes) -> None:
        """Write an object; replaces an existing one atomically."""

    def writer(self, path: str, *, overwrite: bool) -> AbstractContextManager[BinaryIO]:
        """Return a file to stream an object into. A clean exit publishes the whole object.

        It needs little memory for objects of any size. Without ``overwrite``, objects of up to 16 MiB are
        created as exclusively as by ``create``. For larger ones a store may only check first whether they
        exist. Two writers that check at the same time both publish, and the later object stays. So use
        ``create`` for commits, which must be exclusive. Use this for files with the same content from every
        writer, such as checkpoints, and for unique names.

        Raises:
            ObjectExistsError: on exit, if the object exists and ``overwrite`` isn't set.
        """

    def delete(self, paths: Iterable[str]) -> None:
        """Delete objects; a missing object isn't an error."""


def check_path(path: str) -> str:
    """Make sure that a path stays below the root, and return it.

    Raises:
        InvalidArgumentError: it is absolute, contains ``..`` as a segment, or contains a NUL.
    """
    if path.startswith("/") or "\0" in path or ".." in path.split("/"):
        raise InvalidArgumentError(
            f"the path {path!r} doesn't name an object below the root: expected a relative path "
            "without '..'",
            path=path,
        )
    return path


def exists(storage: Storage, path: str) -> bool:
    """Whether a storage has an object, by one request.

    Raises:
        StorageError: the store failed.
    """
    try:
        storage.head(path)
    except ObjectNotFoundError:
        return False
    return True
