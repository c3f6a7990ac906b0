"""The descriptor of a deletion vector: where its bytes are, and how many rows it deletes.

Spec: PROTOCOL.md, "Deletion Vector Descriptor Schema". A descriptor sits in an ``add`` or
``remove`` and says how to reach the vector, by `storage_type`:

====  ==========================================================================
 u    in a file beside the table's data; ``path_or_inline_dv`` is an optional
      directory prefix followed by the 20 characters of a Z85-encoded UUID
 p    in a file at the absolute, URI-encoded path ``path_or_inline_dv``
 i    in the descriptor itself: ``path_or_inline_dv`` is the Z85-encoded vector
====  ==========================================================================

The derived `unique_id` is the second half of a logical file's key (`path`, `unique_id`). Decoding
the UUID, the file's name and the vector is the work of ``deletion_vectors/``.
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
"""Storage type of a vector in a file below the table, named by a UUID."""

ABSOLUTE_PATH = "p"
"""Storage type of a vector in a file at an absolute path."""

INLINE = "i"
"""Storage type of a vector in the log itself."""

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
    """Where one deletion vector is stored.

    Attributes:
        storage_type: `RELATIVE_PATH`, `ABSOLUTE_PATH` or `INLINE`.
        path_or_inline_dv: as in the log (encoded).
        offset: bytes from the start of the file to the vector's entry; None inline.
        size_in_bytes: of the serialised vector, before any encoding.
        cardinality: number of rows the vector deletes.
        max_row_index: the largest deleted row index, where the writer recorded it.
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
        """The id that tells apart the vectors of one data file ("Derived Fields")."""
        suffix = "" if self.offset is None else f"@{self.offset}"
        return f"{self.storage_type}{self.path_or_inline_dv}{suffix}"
