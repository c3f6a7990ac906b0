"""Against the examples of PROTOCOL.md, "Deletion Vector Descriptor Schema"."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_delta.engine.errors import CorruptLogError
from airflow_delta.engine.model.dv_descriptor import DeletionVectorDescriptor

RELATIVE = {
    "storageType": "u",
    "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
    "offset": 4,
    "sizeInBytes": 40,
    "cardinality": 6,
}
ABSOLUTE = {
    "storageType": "p",
    "pathOrInlineDv": "s3://mytable/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin",
    "offset": 4,
    "sizeInBytes": 40,
    "cardinality": 6,
}
INLINE = {
    "storageType": "i",
    "pathOrInlineDv": "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
    "sizeInBytes": 40,
    "cardinality": 6,
}


@pytest.mark.parametrize(
    ("obj", "unique_id"),
    [
        (RELATIVE, "uab^-aqEH.-t@S}K{vb[*k^@4"),
        (
            ABSOLUTE,
            "ps3://mytable/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin@4",
        ),
        (INLINE, "iwi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"),
        ({**RELATIVE, "offset": 0}, "uab^-aqEH.-t@S}K{vb[*k^@0"),
        ({**RELATIVE, "offset": None}, "uab^-aqEH.-t@S}K{vb[*k^"),
    ],
)
def test_the_unique_id_has_type_path_and_offset(obj: dict[str, Any], unique_id: str) -> None:
    assert DeletionVectorDescriptor.from_json(obj, "dv").unique_id == unique_id


@pytest.mark.parametrize("obj", [RELATIVE, ABSOLUTE, INLINE, {**INLINE, "maxRowIndex": 29}])
def test_a_descriptor_survives_json(obj: dict[str, Any]) -> None:
    assert DeletionVectorDescriptor.from_json(obj, "dv").to_json() == obj


def test_unknown_storage_types_are_refused() -> None:
    with pytest.raises(CorruptLogError, match=r"dv\.storageType: expected one of u, i, p, fo.*'r'"):
        DeletionVectorDescriptor.from_json({**RELATIVE, "storageType": "r"}, "dv")
