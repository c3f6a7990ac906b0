"""The file in a copy that says that the copy is being deleted, and which files go with it.

A deletion and a new copy to the same place may happen at the same time, and a deletion may be killed. So
nobody deletes what he finds, but what was listed when the deletion was decided; and the list is a file,
`DELETING`, in the copy. Only one deletion can create it. While it is there no copy is made at the place:

=======================================  ========================================================
a deletion                               a copy
=======================================  ========================================================
creates the file                         is committed, or renamed to its place
looks again whether the copy is still    looks whether the file is there, and fails loudly if so
what was listed; if not it takes the
file back, and leaves all as it is
writes into the file that it is decided  a commit: takes itself back where the file says so, or where
                                         the copy that it was made to is gone already
looks once more, as before
=======================================  ========================================================

Each says what it does before it looks at what the other one does, so that never both go on; and a commit
that doesn't take itself back is seen by the last look.

Lines of JSON: what the deletion is, the marker of the copy, and then a line for each file::

    {"id": "1b0f…", "begun_at": "2026-02-07T12:00:00.000Z", "decided": true}
    {"table_uri": "s3://lake/sales", …}
    ["part-00000-….parquet", 1024, 1769860800123]

``decided`` is true once it has looked again; unless it is taken back files may be gone from then on. Size
and modification time tell a file that was listed from one that has got its name since.

No PySpark here.
"""

from __future__ import annotations

import json
import re
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow_delta.copies.marker import CopyMarker
from airflow_delta.engine.errors import (
    InvalidArgumentError,
    ObjectExistsError,
    ObjectNotFoundError,
)
from airflow_delta.engine.snapshot.timestamps import epoch_ms, utc_text
from airflow_delta.engine.storage.base import FileInfo, checked_path

if TYPE_CHECKING:
    from airflow_delta.engine.storage.base import Storage

__all__ = [
    "DELETING",
    "LEASE_MS",
    "DeletionList",
    "create_list",
    "is_being_deleted",
    "is_unfinished",
    "read_list",
    "write_list",
]

DELETING = "_airflow_delta_copy.deleting"
"""The name of the file."""

LEASE_MS = 3_600_000
"""For how long a deletion is left to the run that began it, in ms: nobody can tell that it was killed."""

_UNFINISHED = re.compile(r"\._airflow_delta_copy\.(?:json|deleting)\.[0-9a-f-]{36}\.tmp")

# More than the first line takes.
_FIRST_BYTES = 512


@dataclass(frozen=True, slots=True)
class DeletionList:
    """One deletion of a copy.

    Attributes:
        id: tells it from all others, and one run of it from the next.
        begun_at_ms: when this run of it has begun, in epoch ms.
        decided: whether it goes on whatever happens.
        marker: of the copy.
        files: all files of the copy, without the marker.
    """

    id: str
    begun_at_ms: int
    decided: bool
    marker: CopyMarker
    files: tuple[FileInfo, ...]

    @classmethod
    def begin(cls, marker: CopyMarker, files: tuple[FileInfo, ...], *, now_ms: int) -> DeletionList:
        """A deletion that is still to be decided."""
        return cls(str(uuid.uuid4()), now_ms, False, marker, files)

    def taken_over(self, *, now_ms: int) -> DeletionList:
        """The same deletion, by another run."""
        return replace(self, id=str(uuid.uuid4()), begun_at_ms=now_ms)

    def is_left_alone(self, *, now_ms: int) -> bool:
        """Whether the run that has begun it may still be at work."""
        return now_ms < self.begun_at_ms + LEASE_MS

    def to_json(self) -> bytes:
        """The content of the file."""
        told = {"id": self.id, "begun_at": utc_text(self.begun_at_ms), "decided": self.decided}
        files = (json.dumps([info.path, info.size, info.modified_ms]) for info in self.files)
        return "\n".join((json.dumps(told), self.marker.to_json(), *files, "")).encode()

    @classmethod
    def from_json(cls, content: bytes) -> DeletionList:
        """Read the content of the file.

        Raises:
            InvalidArgumentError: it isn't such a file's.
        """
        try:
            first, marker, *files = content.decode().removesuffix("\n").split("\n")
            told = json.loads(first)
            return cls(
                _checked_id(told["id"]),
                epoch_ms(_typed(told["begun_at"], str)),
                _typed(told["decided"], bool),
                CopyMarker.from_json(marker),
                tuple(FileInfo(*_facts(line)) for line in files),
            )
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise InvalidArgumentError(
                f"{DELETING} can't be read: expected lines of JSON that tell a deletion, marker and files "
                f"({error}); if nobody is deleting the copy, delete it by hand"
            ) from error


def is_being_deleted(storage: Storage, deletion: DeletionList | None = None) -> bool:
    """Whether the copy at a place is being deleted.

    Args:
        storage: of the place.
        deletion: the deletion to ask for; None: any.

    Raises:
        StorageError: the store failed.
    """
    try:
        content = storage.read(DELETING, length=_FIRST_BYTES)
    except ObjectNotFoundError:
        return False
    return deletion is None or json.dumps({"id": deletion.id})[:-1].encode() in content


def is_unfinished(path: str) -> bool:
    """Whether a file is what a run has left that was killed while it wrote a marker, or this file."""
    return _UNFINISHED.fullmatch(path) is not None


def read_list(storage: Storage) -> DeletionList | None:
    """The deletion that has begun at a place; None where there is none.

    Args:
        storage: of the place.

    Raises:
        InvalidArgumentError: there is a file of that name which tells none.
        StorageError: the store failed.
    """
    try:
        return DeletionList.from_json(storage.read(DELETING))
    except ObjectNotFoundError:
        return None


def create_list(storage: Storage, deletion: DeletionList) -> bool:
    """Begin a deletion, unless another one has begun.

    Args:
        storage: of the place.
        deletion: the deletion.

    Returns:
        Whether it has begun.

    Raises:
        UnsafeStorageError: the store can't create a file exclusively.
        StorageError: the store failed.
    """
    try:
        storage.create(DELETING, deletion.to_json())
    except ObjectExistsError:
        return False
    return True


def write_list(storage: Storage, deletion: DeletionList) -> None:
    """Write how a deletion goes on.

    Args:
        storage: of the place.
        deletion: the deletion.

    Raises:
        StorageError: the store failed.
    """
    storage.replace(DELETING, deletion.to_json())


def _facts(line: str) -> tuple[str, int, int]:
    path, size, modified_ms = json.loads(line)
    if not (isinstance(path, str) and isinstance(size, int) and isinstance(modified_ms, int)):
        raise TypeError(f"expected path, size and modification time, found {line}")
    return checked_path(path), size, modified_ms


def _checked_id(value: object) -> str:
    if not isinstance(value, str) or str(uuid.UUID(value)) != value:
        raise ValueError(f"expected a UUID as id, found {value!r}")
    return value


def _typed(value: Any, expected: type) -> Any:
    if not isinstance(value, expected):
        raise TypeError(f"expected {expected.__name__}, found {value!r}")
    return value
