"""Logs with deletion vectors and change data, for the tests of changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pyroaring import BitMap64

from airflow_delta.engine.deletion_vectors import roaring, z85

PROTOCOL = {
    "protocol": {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["deletionVectors"],
        "writerFeatures": ["deletionVectors", "changeDataFeed"],
    }
}

FEED_ON = {"delta.enableChangeDataFeed": "true"}


def inline_vector(rows: Iterable[int]) -> dict[str, Any] | None:
    """The descriptor of an inline deletion vector; None where no row is deleted."""
    deleted = BitMap64(rows)
    if not deleted:
        return None
    data = roaring.serialize(deleted)
    return {
        "storageType": "i",
        "pathOrInlineDv": z85.encode(data + bytes(-len(data) % 4)),
        "sizeInBytes": len(data),
        "cardinality": len(deleted),
    }


def cdc(path: str, **fields: Any) -> dict[str, Any]:
    """A ``cdc`` action."""
    base = {"path": path, "partitionValues": {}, "size": 1, "dataChange": False}
    return {"cdc": {**base, **fields}}


def with_vector(action: Mapping[str, Any], rows: Iterable[int]) -> dict[str, Any]:
    """An ``add`` or ``remove`` of a file some of whose rows are deleted."""
    vector = inline_vector(rows)
    ((kind, fields),) = action.items()
    return {kind: {**fields, **({} if vector is None else {"deletionVector": vector})}}
