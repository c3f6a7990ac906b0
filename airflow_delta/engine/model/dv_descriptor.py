"""The descriptor of a deletion vector: where it is stored, and how many rows it deletes.

A descriptor is part of an ``add`` or ``remove``. Its `storage_type` says where the deletion vector is:

====  ==========================================================================
 u    in a file beside the table's data; ``path_or_inline_dv`` is an optional
      directory prefix followed by the 20 characters of a Z85-encoded UUID
 p    in a file at the absolute, URI-encoded path ``path_or_inline_dv``
 i    in the descriptor itself: ``path_or_inline_dv`` is the Z85-encoded bitmap
====  ==========================================================================

The derived `unique_id` is the second part of a logical file's key (`path`, `unique_id`).
``deletion_vectors/`` decodes the UUID, the name of the file, and the deletion vector.

PROTOCOL.md, "Deletion Vector Descriptor Schema".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_delta.engine.errors import CorruptLogError
from airflow_delta.engine.model import json_fields
from airflow_delta.engine.model.json_record import (
    JsonField,
    JsonRecord,
    fields,
    optional,
    required,
)

__all__ = [
    "ABSOLUTE_PATH",
    "INLINE",
    "RELATIVE_PATH",
    "DeletionVectorDescriptor",
]

RELATIVE_PATH = "u"
"""Storage type of a deletion vector in a file below the table, named by a UUID."""

ABSOLUTE_PATH = "p"
"""Storage type of a deletion vector in a file at an absolute path."""

INLINE = "i"
"""Storage type of a deletion vector in the log itself."""

_STORAGE_TYPES = (RELATIVE_PATH, INLINE, ABSOLUTE_PATH)


def _storage_type(obj: Mapping[str, Any], key: str, where: str) -> str:
    found = json_fields.required(obj, key, str, where)
    if found not in _STORAGE_TYPES:
        raise CorruptLogError(
            f"{where}.{key}: expected one of {', '.join(_STORAGE_TYPES)}, found {found!r}",
            where=where,
        )
    return found


@dataclass(frozen=True, slots=True)
class DeletionVectorDescriptor(JsonRecord):
    """The descriptor of a deletion vector: where it is stored.

    Attributes:
        storage_type: `RELATIVE_PATH`, `ABSOLUTE_PATH` or `INLINE`.
        path_or_inline_dv: as in the log (encoded).
        offset: the offset of the deletion vector in the file, in bytes; None if it is inline.
        size_in_bytes: the size of the serialised deletion vector, before any encoding.
        cardinality: the number of rows that it deletes.
        max_row_index: the largest deleted row index, if the writer recorded it.
    """

    storage_type: str
    path_or_inline_dv: str
    offset: int | None
    size_in_bytes: int
    cardinality: int
    max_row_index: int | None = None

    log_fields = fields(
        storage_type=JsonField("storageType", _storage_type),
        path_or_inline_dv=required("pathOrInlineDv", str),
        offset=optional("offset", int),
        size_in_bytes=required("sizeInBytes", int),
        cardinality=required("cardinality", int),
        max_row_index=optional("maxRowIndex", int),
    )

    @property
    def unique_id(self) -> str:
        """The id that distinguishes the deletion vectors of one data file ("Derived Fields")."""
        suffix = "" if self.offset is None else f"@{self.offset}"
        return f"{self.storage_type}{self.path_or_inline_dv}{suffix}"
