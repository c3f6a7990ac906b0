"""The storage contract: the engine's only way to bytes.

A storage is bound to one root, the table's location, and speaks of objects by their path below it:
decoded (never URI-encoded), separated by ``/``, without a leading ``/``. It knows nothing of Delta.

What every implementation guarantees, and ``tests/contracts`` checks:

* **Reads are whole.** ``read`` returns the bytes of one object as one writer left it.
* **Creation is exclusive and atomic.** Of any number of concurrent ``create`` calls for one path
  exactly one returns; the others raise `ObjectExistsError`. A reader sees all of the object or none
  of it. A call that fails otherwise leaves either nothing or the whole object.
* **Replacement is atomic.** A reader sees the old bytes or the new ones.
* **Listing is consistent and ordered.** An object whose ``create`` has returned is listed by every
  later ``list``. Names ascend by their UTF-8 bytes.
* **Nothing leaves the root.** A path that climbs out of it with ``..`` raises
  `InvalidArgumentError`.
* **Nothing but regular files is an object.** A file system may hold links, FIFOs, sockets and devices.
  Below the root no link is followed, neither to a file nor to a directory, and no call waits for a FIFO:
  reading such a file, or going through such a directory, raises `NotRegularFileError`. ``list`` has their
  names; ``walk`` and ``level`` leave them out.
* **A place has one name.** ``place`` is equal for storages of the same place, whatever their roots and
  options, and differs for those of different places; it holds nothing secret (`place`).
* **Errors are typed.** `ObjectNotFoundError`, `ObjectExistsError`, else `StorageError` with the
  path and the operation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from airflow_delta.engine.errors import InvalidArgumentError

__all__ = ["Capabilities", "FileInfo", "Level", "Storage", "check_path"]


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
    """What is directly in a directory.

    Attributes:
        files: the objects in it.
        folders: the paths below the root of the directories in it, whose objects aren't listed.
    """

    files: Sequence[FileInfo]
    folders: Sequence[str]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a store can do.

    Attributes:
        put_if_absent: ``create`` is atomic and exclusive, as far as can be told before it is tried;
            without it commits are refused, unless the user says that there is one writer.
        start_after: ``list`` skips earlier names inside the store, so that a late start is cheap.
        remote: every call is a round trip, so that fewer and parallel calls matter.
    """

    put_if_absent: bool
    start_after: bool
    remote: bool


class Storage(Protocol):
    """An object store or file system below one root. See the module for the contract."""

    @property
    def root(self) -> str:
        """The root as the user named it, without a trailing slash; for messages and resolution."""

    @property
    def canonical_location(self) -> str:
        """Which store it is and where in it: what tells places apart; see `canonical_location`.

        Only links on the local file system are looked at for it; two machines may have different
        directories at one path.
        """

    @property
    def capabilities(self) -> Capabilities:
        """What this store can do."""

    def read(self, path: str, *, start: int = 0, length: int | None = None) -> bytes:
        """The bytes of an object, or ``length`` of them from ``start``.

        Raises:
            ObjectNotFoundError: there is no such object.
        """

    def read_many(self, paths: Sequence[str]) -> list[bytes | None]:
        """The bytes of several objects, in parallel where that helps; None for a missing one."""

    def open(self, path: str, *, size: int | None = None) -> BinaryIO:
        """A seekable binary file over an object; ``size`` saves a round trip where it is known.

        Its reads raise `StorageError`, never a bare ``OSError``, where the store fails.

        Raises:
            ObjectNotFoundError: there is no such object (raised here or by the first read).
        """

    def list(self, directory: str, *, start_after: str = "") -> Iterator[FileInfo]:
        """The objects directly in a directory whose names sort after ``start_after``, ascending.

        Sub-directories are left out. A missing directory lists nothing.
        """

    def walk(self, directory: str) -> Iterator[FileInfo]:
        """All objects at any depth below a directory, in any order."""

    def level(self, directory: str) -> Level:
        """What is directly in a directory: objects as `list` tells them, and directories, in any order.

        In an object store a directory is what the paths of objects begin with; in a file system it may be
        empty, and linked ones are left out. A missing directory has neither. An object that some tools
        leave for a directory, of the same name with a slash behind it, is among what is in that one.
        """

    def head(self, path: str) -> FileInfo:
        """Size and modification time of an object.

        Raises:
            ObjectNotFoundError: there is no such object.
        """

    def create(self, path: str, data: bytes) -> None:
        """Write an object that must not exist yet: put-if-absent.

        Raises:
            ObjectExistsError: the object is there already.
            UnsafeStorageError: the store can't put exclusively, and the user doesn't say that there
                is one writer.
        """

    def replace(self, path: str, data: bytes) -> None:
        """Write an object, atomically in place of an earlier one."""

    def writer(self, path: str, *, overwrite: bool) -> AbstractContextManager[BinaryIO]:
        """A file to stream an object into: published whole on a clean exit, else abandoned.

        It takes little memory, whatever the size. Without ``overwrite`` small objects, of up to 16 MiB,
        are put as exclusively as by ``create``. A store may publish larger ones only after a look whether
        they are there: then of two writers who look at the same time both publish, and the later one's
        object remains. So this is for files that say the same whoever writes them, as checkpoints do, or
        whose names nobody else takes; what must be exclusive, as commits must, is for ``create``.

        Raises:
            ObjectExistsError: on exit, where the object is there already and ``overwrite`` is not
                set.
        """

    def delete(self, paths: Iterable[str]) -> None:
        """Delete objects; one that is not there is no error."""


def check_path(path: str) -> str:
    """A path that stays below the root.

    Raises:
        InvalidArgumentError: it is absolute, climbs out with ``..`` or holds a NUL.
    """
    if path.startswith("/") or "\0" in path or ".." in path.split("/"):
        raise InvalidArgumentError(
            f"the path {path!r} doesn't name an object below the root: expected a relative path "
            "without '..'",
            path=path,
        )
    return path
