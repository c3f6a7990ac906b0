"""The list file in a copy that is being deleted: it names the files to be deleted.

A deletion deletes only what was listed when it was decided. It writes the list to the file `DELETING`,
which only one deletion can create. While the file exists, no copy is made at the location:

=========================================  ======================================================
a deletion                                 a copy
=========================================  ======================================================
creates the file                           commits, or renames its directory to the target
lists again; if something has changed,     looks for the file, and fails if there is one
deletes the file and keeps the copy
records ``decided`` in the file            rolls its commit back, if the deletion is decided or
                                           the earlier copy is gone
lists once more, as before
=========================================  ======================================================

Each side announces its action before it looks for the other one, so never both continue. The last
listing finds a commit that wasn't rolled back.

The file has lines of JSON: the deletion, the marker of the copy, and one line per file::

    {"id": "1b0f…", "begun_at": "2026-02-07T12:00:00.000Z", "decided": true}
    {"table_uri": "s3://lake/sales", …}
    ["part-00000-….parquet", 1024, 1769860800123]

Once ``decided`` is true, files may have been deleted. Size and modification time distinguish a
listed file from a later one with the same name.

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
from airflow_delta.engine.storage.base import FileInfo, check_path

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
"""How long other runs wait before they take a deletion over, in ms: they can't see that it was killed."""

_UNFINISHED = re.compile(r"\._airflow_delta_copy\.(?:json|deleting)\.[0-9a-f-]{36}\.tmp")

# Longer than the first line.
_FIRST_BYTES = 512


@dataclass(frozen=True, slots=True)
class DeletionList:
    """One deletion of a copy.

    Attributes:
        id: identifies this run of the deletion.
        begun_at_ms: when this run began, in epoch ms.
        decided: whether the deletion can't be cancelled any more.
        marker: the marker of the copy.
        files: all files of the copy, without the marker.
    """

    id: str
    begun_at_ms: int
    decided: bool
    marker: CopyMarker
    files: tuple[FileInfo, ...]

    @classmethod
    def begin(cls, marker: CopyMarker, files: tuple[FileInfo, ...], *, now_ms: int) -> DeletionList:
        """Create a deletion that isn't decided yet."""
        return cls(str(uuid.uuid4()), now_ms, False, marker, files)

    def take_over(self, *, now_ms: int) -> DeletionList:
        """Create the continuation of this deletion by another run."""
        return replace(self, id=str(uuid.uuid4()), begun_at_ms=now_ms)

    def may_be_running(self, *, now_ms: int) -> bool:
        """Whether the run that began it may still be active."""
        return now_ms < self.begun_at_ms + LEASE_MS

    def to_json(self) -> bytes:
        """The content of the file."""
        first = {"id": self.id, "begun_at": utc_text(self.begun_at_ms), "decided": self.decided}
        files = (json.dumps([info.path, info.size, info.modified_ms]) for info in self.files)
        return "\n".join((json.dumps(first), self.marker.to_json(), *files, "")).encode()

    @classmethod
    def from_json(cls, content: bytes) -> DeletionList:
        """Read the content of the file.

        Raises:
            InvalidArgumentError: it can't be parsed.
        """
        try:
            first, marker, *files = content.decode().removesuffix("\n").split("\n")
            values = json.loads(first)
            return cls(
                _checked_id(values["id"]),
                epoch_ms(_typed(values["begun_at"], str)),
                _typed(values["decided"], bool),
                CopyMarker.from_json(marker),
                tuple(FileInfo(*_facts(line)) for line in files),
            )
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise InvalidArgumentError(
                f"{DELETING} can't be read: expected lines of JSON with a deletion, a marker and files "
                f"({error}); if nobody is deleting the copy, delete this file by hand"
            ) from error


def is_being_deleted(storage: Storage, deletion: DeletionList | None = None) -> bool:
    """Whether the copy at a location is being deleted.

    Args:
        storage: the storage of the location.
        deletion: only this run of a deletion counts; None: any.

    Raises:
        StorageError: the store failed.
    """
    try:
        content = storage.read(DELETING, length=_FIRST_BYTES)
    except ObjectNotFoundError:
        return False
    return deletion is None or json.dumps({"id": deletion.id})[:-1].encode() in content


def is_unfinished(path: str) -> bool:
    """Whether a file is a temporary file that a killed run left while it wrote a marker or a list."""
    return _UNFINISHED.fullmatch(path) is not None


def read_list(storage: Storage) -> DeletionList | None:
    """Read the list file of a location; None if there is none.

    Args:
        storage: the storage of the location.

    Raises:
        InvalidArgumentError: it can't be parsed.
        StorageError: the store failed.
    """
    try:
        return DeletionList.from_json(storage.read(DELETING))
    except ObjectNotFoundError:
        return None


def create_list(storage: Storage, deletion: DeletionList) -> bool:
    """Create the list file, unless another deletion has.

    Args:
        storage: the storage of the location.
        deletion: the deletion.

    Returns:
        Whether it was created.

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
    """Overwrite the list file.

    Args:
        storage: the storage of the location.
        deletion: the deletion.

    Raises:
        StorageError: the store failed.
    """
    storage.replace(DELETING, deletion.to_json())


def _facts(line: str) -> tuple[str, int, int]:
    path, size, modified_ms = json.loads(line)
    if not (isinstance(path, str) and isinstance(size, int) and isinstance(modified_ms, int)):
        raise TypeError(f"expected path, size and modification time, found {line}")
    return check_path(path), size, modified_ms


def _checked_id(value: object) -> str:
    if not isinstance(value, str) or str(uuid.UUID(value)) != value:
        raise ValueError(f"expected a UUID as id, found {value!r}")
    return value


def _typed(value: Any, expected: type) -> Any:
    if not isinstance(value, expected):
        raise TypeError(f"expected {expected.__name__}, found {value!r}")
    return value
