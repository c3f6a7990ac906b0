"""The marker file of a copy: what it is a copy of, and when it expires.

It is a JSON object in the file `MARKER` at the top of the copy. Readers skip it because of its name::

    {"table_uri": "s3://lake/sales", "table_id": "1b0f…", "version": 7,
     "target_uri": "s3://lake/pins/sales_7", "format": "delta", "num_rows": 1000, "num_files": 4,
     "made_at": "2026-01-31T12:00:00.000Z",
     "expires_at": "2026-02-07T12:00:00.000Z", "target_id": "77ce…", "committed_version": 3}

`CopyMarker` describes the fields. Markers of earlier releases contain only the table's URI and id, the
version and the rows.

No PySpark here: operators without Spark delete copies.
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
    """The marker of a copy. Its URIs are written without user names and passwords.

    Attributes:
        table_uri: the URI of the source table.
        table_id: its id, which it keeps when it is moved.
        version: the version that was copied.
        target_uri: the absolute location where the copy was made, which differs in a copy of the copy; None
            for copies of earlier releases.
        format: one of `airflow_delta.copies.formats.FORMATS`.
        num_rows: the number of rows; None if it is unknown.
        num_files: the number of files; None for copies of earlier releases.
        made_at_ms: when it was made, in epoch ms; None for copies of earlier releases.
        expires_at_ms: when it may be deleted, in epoch ms; None: never.
        target_id: for a Delta copy, the table id of the target. If somebody empties the location by hand
            and leaves the marker, it doesn't apply to the next table there.
        committed_version: for a Delta copy, the version of the target that is the copy.
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
        """The time from which the copy may be deleted, as ISO-8601; None: never."""
        return _text_of(self.expires_at_ms)

    def is_of(self, table_id: str, version: int) -> bool:
        """Whether it is the marker of this version of a Delta table.

        Args:
            table_id: the id of the table.
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
        values: dict[str, Any] = {
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
            values |= {"target_id": self.target_id, "committed_version": self.committed_version}
        return json.dumps(values)

    @classmethod
    def from_json(cls, text: str | bytes) -> CopyMarker:
        """Read the content of the file.

        Raises:
            InvalidArgumentError: it can't be parsed.
        """
        try:
            values = json.loads(text)
            return cls(
                _typed(values, "table_uri", str),
                _typed(values, "table_id", str),
                _typed(values, "version", int),
                _typed(values, "target_uri", str, None),
                _typed(values, "format", str, "parquet"),
                _typed(values, "num_rows", int, None),
                _typed(values, "num_files", int, None),
                _ms_of(_typed(values, "made_at", str, None)),
                _ms_of(_typed(values, "expires_at", str, None)),
                _typed(values, "target_id", str, None),
                _typed(values, "committed_version", int, None),
            )
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise InvalidArgumentError(
                f"{MARKER} can't be read: expected a JSON object with table_uri, table_id and version "
                f"({error})"
            ) from error


def read_marker(storage: Storage) -> CopyMarker | None:
    """Read the marker of a copy; None if there is none.

    Args:
        storage: the storage of the copy.

    Raises:
        InvalidArgumentError: it can't be parsed.
        StorageError: the store failed.
    """
    try:
        return CopyMarker.from_json(storage.read(MARKER))
    except ObjectNotFoundError:
        return None


def write_marker(storage: Storage, marker: CopyMarker) -> None:
    """Write a marker; replace an existing one.

    Args:
        storage: the storage of the copy.
        marker: the marker.

    Raises:
        StorageError: the store failed.
    """
    storage.replace(MARKER, marker.to_json().encode())


_REQUIRED = object()


def _typed(values: Mapping[str, Any], name: str, expected: type, default: Any = _REQUIRED) -> Any:
    value = values[name] if default is _REQUIRED else values.get(name, default)
    if type(value) is not expected and value is not default:
        raise TypeError(f"{name}: expected {expected.__name__}, found {value!r}")
    if isinstance(value, str):
        # Python represents bytes of a path that aren't UTF-8 as surrogates; other surrogates are errors.
        value.encode(errors="surrogateescape")
    return value


def _ms_of(text: str | None) -> int | None:
    return None if text is None else epoch_ms(text)


def _text_of(time_ms: int | None) -> str | None:
    return None if time_ms is None else utc_text(time_ms)
