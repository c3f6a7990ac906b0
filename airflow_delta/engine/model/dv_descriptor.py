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
from airflow_delta.engine.model.json_fields import json_object, optional, present, required

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


@dataclass(frozen=True, slots=True)
class DeletionVectorDescriptor:
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

    @property
    def unique_id(self) -> str:
        """The id that tells apart the vectors of one data file ("Derived Fields")."""
        suffix = "" if self.offset is None else f"@{self.offset}"
        return f"{self.storage_type}{self.path_or_inline_dv}{suffix}"

    @classmethod
    def from_json(cls, obj: Mapping[str, Any], where: str) -> DeletionVectorDescriptor:
        """Read a descriptor.

        Raises:
            CorruptLogError: a field is missing or of the wrong type, or the storage type is none of
                the protocol's. Facts: where.
        """
        obj = json_object(obj, where)
        storage_type = required(obj, "storageType", str, where)
        if storage_type not in _STORAGE_TYPES:
            raise CorruptLogError(
                f"{where}.storageType: expected one of {', '.join(_STORAGE_TYPES)}, "
                f"found {storage_type!r}",
                where=where,
            )
        return cls(
            storage_type=storage_type,
            path_or_inline_dv=required(obj, "pathOrInlineDv", str, where),
            offset=optional(obj, "offset", int, where),
            size_in_bytes=required(obj, "sizeInBytes", int, where),
            cardinality=required(obj, "cardinality", int, where),
            max_row_index=optional(obj, "maxRowIndex", int, where),
        )

    def to_json(self) -> dict[str, Any]:
        """The descriptor as the log holds it; fields without a value are left out."""
        return present(
            {
                "storageType": self.storage_type,
                "pathOrInlineDv": self.path_or_inline_dv,
                "offset": self.offset,
                "sizeInBytes": self.size_in_bytes,
                "cardinality": self.cardinality,
                "maxRowIndex": self.max_row_index,
            }
        )
