"""Tables whose data files aren't parquet.

The protocol lets a table say how its files are encoded (PROTOCOL.md, "Format Specification"): a
``provider``, the name of one of Spark's file formats, and ``options`` for it. No engine of today makes
such tables, but old ones may be about, and Spark reads their files.

What needs the place of a row in its file is for parquet alone, whose reader is the only one that tells
it: deletion vectors, row ids, row indexes. So is column mapping.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from airflow_delta.engine import Snapshot
from airflow_delta.engine.errors import UnsupportedFeatureError

__all__ = ["PARQUET", "FileFormat", "file_format", "refuse_without_row_index"]

_PROVIDERS = ("parquet", "orc", "csv", "json", "text", "avro")
"""Spark would take any name for one of a class to load; a log shall not choose code."""

# What Spark takes for its listing of files, which there is none of here. By lower case.
_OF_LISTINGS = frozenset(
    {"path", "paths", "basepath", "pathglobfilter", "modifiedbefore", "modifiedafter"}
)


@dataclass(frozen=True, slots=True)
class FileFormat:
    """How data files are encoded.

    Attributes:
        provider: Spark's name of the format.
        options: for Spark's reader.
    """

    provider: str
    options: Mapping[str, str] = field(default_factory=dict)


PARQUET = FileFormat("parquet")
"""What all tables of today have."""


def file_format(snapshot: Snapshot, *, mapping_mode: str) -> FileFormat:
    """The encoding of a table's data files.

    Args:
        snapshot: the table.
        mapping_mode: its column mapping mode.

    Raises:
        UnsupportedFeatureError: Spark has no such format of its own, or the table has column mapping,
            which is for parquet.
    """
    said = snapshot.metadata.format
    provider = said.provider.lower()
    if provider == PARQUET.provider:
        return PARQUET
    if provider not in _PROVIDERS:
        raise UnsupportedFeatureError(
            f"the data files are in the format {said.provider!r}: expected one of "
            f"{', '.join(_PROVIDERS)}",
            table=snapshot.table,
        )
    if mapping_mode != "none":
        raise UnsupportedFeatureError(
            f"the table has column mapping, and data files in the format {provider!r}: columns are found "
            "by their names or ids in parquet files only",
            table=snapshot.table,
        )
    options = {
        name: value for name, value in said.options.items() if name.lower() not in _OF_LISTINGS
    }
    return FileFormat(provider, options)


def refuse_without_row_index(found: FileFormat, what: str, *, table: str) -> None:
    """Refuse what needs the places of rows, in files that don't tell them.

    Args:
        found: the format.
        what: what needs them, for the message.
        table: the table's location.

    Raises:
        UnsupportedFeatureError: the format isn't parquet.
    """
    if found != PARQUET:
        raise UnsupportedFeatureError(
            f"{what} can't be read: they need the places of rows in their files, which Spark knows of "
            f"parquet files only, and the table's are in the format {found.provider!r}",
            table=table,
        )
