"""Support for tables whose data files aren't Parquet.

By the protocol, the metadata of a table have the format of its files: a ``provider``, the name of
one of Spark's file formats, and ``options``. No current engine creates other tables than Parquet
ones, but old ones may exist, and Spark can read their files.

Deletion vectors, row ids and row indexes need the index of a row in its file, which only Spark's
Parquet reader has. Column mapping also needs Parquet.

Spec: PROTOCOL.md, "Format Specification".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from airflow_delta.engine import Snapshot
from airflow_delta.engine.errors import UnsupportedFeatureError

__all__ = ["PARQUET", "FileFormat", "file_format", "refuse_without_row_index"]

_PROVIDERS = ("parquet", "orc", "csv", "json", "text", "avro")
"""A closed list, because Spark would load a class of any other name, and a log must not choose code."""

# Options of Spark's file listing, which isn't used here; in lower case.
_OF_LISTINGS = frozenset(
    {"path", "paths", "basepath", "pathglobfilter", "modifiedbefore", "modifiedafter"}
)


@dataclass(frozen=True, slots=True)
class FileFormat:
    """The format of data files.

    Attributes:
        provider: Spark's name of the format.
        options: options for Spark's reader.
    """

    provider: str
    options: Mapping[str, str] = field(default_factory=dict)


PARQUET = FileFormat("parquet")
"""The format of all current tables."""


def file_format(snapshot: Snapshot, *, mapping_mode: str) -> FileFormat:
    """The format of a table's data files.

    Args:
        snapshot: the table.
        mapping_mode: its column mapping mode.

    Raises:
        UnsupportedFeatureError: Spark has no such built-in format, or the table has column mapping and
            isn't Parquet.
    """
    stated = snapshot.metadata.format
    provider = stated.provider.lower()
    if provider == PARQUET.provider:
        return PARQUET
    if provider not in _PROVIDERS:
        raise UnsupportedFeatureError(
            f"the data files are in the format {stated.provider!r}: expected one of "
            f"{', '.join(_PROVIDERS)}",
            table=snapshot.table,
        )
    if mapping_mode != "none":
        raise UnsupportedFeatureError(
            f"the table has column mapping, and data files in the format {provider!r}: column mapping "
            "works with parquet files only",
            table=snapshot.table,
        )
    options = {
        name: value for name, value in stated.options.items() if name.lower() not in _OF_LISTINGS
    }
    return FileFormat(provider, options)


def refuse_without_row_index(found: FileFormat, what: str, *, table: str) -> None:
    """Refuse something that needs the row index, unless the format is Parquet.

    Args:
        found: the format.
        what: the thing that needs it, in the plural, for the message.
        table: the table's location.

    Raises:
        UnsupportedFeatureError: the format isn't parquet.
    """
    if found != PARQUET:
        raise UnsupportedFeatureError(
            f"{what} can't be read: they need the index of each row in its file, which Spark has for "
            f"parquet files only, and the table's files are in the format {found.provider!r}",
            table=table,
        )
