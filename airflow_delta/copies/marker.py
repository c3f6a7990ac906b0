"""The file in a copy that says what it is a copy of, who may replace it, and when it may be deleted.

It is a JSON object in the file `MARKER` at the top of the copy, which readers skip for its name::

    {"table_uri": "s3://lake/sales", "table_id": "1b0f…", "version": 7,
     "target_uri": "s3://lake/pins/sales_7", "format": "delta", "num_rows": 1000, "num_files": 4,
     "made_at": "2026-01-31T12:00:00.000Z",
     "expires_at": "2026-02-07T12:00:00.000Z", "target_id": "77ce…", "committed_version": 3}

``target_uri`` is where the copy was made, so that nobody takes a copy of the copy for it. ``num_rows`` and
``expires_at`` may be null; without a time a copy never expires. A Delta copy has ``target_id`` and
``committed_version``, its own table id and the version of its commit: a marker may be left where somebody
has emptied a place by hand, and says nothing of the table that comes next.

Neither URI has the name and password with which somebody may have called the place.

Copies of earlier releases have markers with the table's URI and id, the version and the rows alone.

No PySpark here: copies are made by Spark, and deleted by whoever schedules them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_delta.engine.errors import InvalidArgumentError, ObjectNotFoundError
from airflow_delta.engine.public_text import without_password
from airflow_delta.engine.snapshot.timestamps import epoch_ms, utc_text

if TYPE_CHECKING:
    from airflow_delta.engine.storage.base import Storage

__all__ = ["MARKER", "CopyMarker", "read_marker", "write_marker"]

MARKER = "_airflow_delta_copy.json"
"""The name of the file."""


@dataclass(frozen=True, slots=True)
class CopyMarker:
    """What a copy says of itself.

    Attributes:
        table_uri: the table that was copied, as it was called then.
        table_id: its id, which stays when it is moved.
        version: its version.
        target_uri: where the copy was made, absolute; None for copies of earlier releases.
        format: one of `copy_formats.FORMATS`.
        num_rows: how many rows the copy has; None where nobody has counted them.
        num_files: how many files it has; None for copies of earlier releases.
        made_at_ms: when it was made, in epoch ms; None for copies of earlier releases.
        expires_at_ms: when it may be deleted, in epoch ms; None: never.
        target_id: of a Delta copy, the table id of the target.
        committed_version: of a Delta copy, the version of the target that is the copy.
    """

    table_uri: str
    table_id: str
    version: int
    target_uri: str | None = None
    format: str = "parquet"
    num_rows: int | None = None
    num_files: int | None = None
    made_at_ms: int | None = None
    expires_at_ms: int | None = None
    target_id: str | None = None
    committed_version: int | None = None

    @property
    def expires_at(self) -> str | None:
        """When the copy may be deleted, as ISO-8601; None: never."""
        return _text_of(self.expires_at_ms)

    def is_of(self, table_id: str, version: int) -> bool:
        """Whether it is the marker of a Delta copy.

        Args:
            table_id: the id of the table that is the copy.
            version: its version.
        """
        return (self.target_id, self.committed_version) == (table_id, version)

    def has_expired(self, now_ms: int) -> bool:
        """Whether the copy may be deleted.

        Args:
            now_ms: the time, in epoch ms.
        """
        return self.expires_at_ms is not None and self.expires_at_ms <= now_ms

    def to_json(self) -> str:
        """The content of the file."""
        told: dict[str, Any] = {
            "table_uri": without_password(self.table_uri),
            "table_id": self.table_id,
            "version": self.version,
            "target_uri": None if self.target_uri is None else without_password(self.target_uri),
            "format": self.format,
            "num_rows": self.num_rows,
            "num_files": self.num_files,
            "made_at": _text_of(self.made_at_ms),
            "expires_at": self.expires_at,
        }
        if self.committed_version is not None:
            told |= {"target_id": self.target_id, "committed_version": self.committed_version}
        return json.dumps(told)

    @classmethod
    def from_json(cls, text: str | bytes) -> CopyMarker:
        """Read the content of the file.

        Raises:
            InvalidArgumentError: it isn't a marker's.
        """
        try:
            told = json.loads(text)
            return cls(
                _typed(told, "table_uri", str),
                _typed(told, "table_id", str),
                _typed(told, "version", int),
                _typed(told, "target_uri", str, None),
                _typed(told, "format", str, "parquet"),
                _typed(told, "num_rows", int, None),
                _typed(told, "num_files", int, None),
                _ms_of(_typed(told, "made_at", str, None)),
                _ms_of(_typed(told, "expires_at", str, None)),
                _typed(told, "target_id", str, None),
                _typed(told, "committed_version", int, None),
            )
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise InvalidArgumentError(
                f"{MARKER} can't be read: expected a JSON object that tells table_uri, table_id and "
                f"version ({error})"
            ) from error


def read_marker(storage: Storage) -> CopyMarker | None:
    """The marker of a place; None where there is none.

    Args:
        storage: of the place where the copy is.

    Raises:
        InvalidArgumentError: there is a file of that name which is no marker.
        StorageError: the store failed.
    """
    try:
        return CopyMarker.from_json(storage.read(MARKER))
    except ObjectNotFoundError:
        return None


def write_marker(storage: Storage, marker: CopyMarker) -> None:
    """Write a marker in place of the one that is there.

    Args:
        storage: of the place where the copy is.
        marker: the marker.

    Raises:
        StorageError: the store failed.
    """
    storage.replace(MARKER, marker.to_json().encode())


_REQUIRED = object()


def _typed(told: Mapping[str, Any], name: str, expected: type, default: Any = _REQUIRED) -> Any:
    value = told[name] if default is _REQUIRED else told.get(name, default)
    if type(value) is not expected and value is not default:
        raise TypeError(f"{name}: expected {expected.__name__}, found {value!r}")
    if isinstance(value, str):
        # The bytes of a path that are no UTF-8 are surrogates; any other can't be in a location.
        value.encode(errors="surrogateescape")
    return value


def _ms_of(text: str | None) -> int | None:
    return None if text is None else epoch_ms(text)


def _text_of(time_ms: int | None) -> str | None:
    return None if time_ms is None else utc_text(time_ms)
