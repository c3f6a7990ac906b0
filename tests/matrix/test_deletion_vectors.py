"""Deletion vectors of known bytes, from the log to the row numbers.

The code under test did not make the bytes.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import pytest

from airflow_delta.engine.errors import DeletionVectorError
from airflow_delta.engine.model.dv_descriptor import DeletionVectorDescriptor
from tests.deletion_vectors import read_deletion_vector
from tests.log_builder import add, metadata
from tests.matrix.log_forms import FORMS
from tests.table_builder import Action, MemoryTable

FEATURES: Action = {
    "protocol": {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["deletionVectors"],
        "writerFeatures": ["deletionVectors"],
    }
}
UUID_TEXT = "^-aqEH.-t@S}K{vb[*k^"
FILE = "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
FRAMED = bytes.fromhex(
    "00000024d1d339640100000000000000000000003a300000010000000000010010000000000009002a671846"
)
NONE = "d1d339640000000000000000"
PORTABLE = "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"
NATIVE = "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"


def in_file(**fields: Any) -> Action:
    return {
        "storageType": "u",
        "pathOrInlineDv": UUID_TEXT,
        "offset": 1,
        "sizeInBytes": 36,
        "cardinality": 2,
        **fields,
    }


def inline(text: str, size: int, rows: int) -> Action:
    return {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": size, "cardinality": rows}


VECTORS: dict[str, tuple[Action, list[int]]] = {
    "in a file": (in_file(), [0, 9]),
    "in a file, behind another": (in_file(offset=45), [0, 9]),
    "inline": (inline(PORTABLE, 44, 6), [3, 4, 7, 11, 18, 29]),
    "inline, as the specification has it": (inline(NATIVE, 40, 6), [3, 4, 7, 11, 18, 29]),
}


def tables(
    vector: Action, content: bytes
) -> Iterator[tuple[MemoryTable, DeletionVectorDescriptor]]:
    """The table in each form, and its vector as the snapshot gives it."""
    history = [[FEATURES, metadata()], [add("f", deletionVector=vector, stats='{"numRecords":30}')]]
    for form in FORMS.values():
        with MemoryTable({**form(history), FILE: content}) as table:
            (found,) = table.delta().snapshot().files(["deletionVector"]).to_pylist()
            yield table, DeletionVectorDescriptor.from_json(found["deletionVector"], "files()")


@pytest.mark.parametrize("case", VECTORS)
def test_known_vectors_hide_the_rows_they_are_known_for(case: str) -> None:
    vector, rows = VECTORS[case]
    for table, descriptor in tables(vector, b"\x01" + FRAMED + FRAMED):
        assert list(read_deletion_vector(descriptor, table.storage, table=table.uri)) == rows
        assert table.delta().snapshot().num_rows == 30 - len(rows)


def test_a_vector_of_no_rows() -> None:
    data = bytes.fromhex(NONE)
    framed = len(data).to_bytes(4, "big") + data + zlib.crc32(data).to_bytes(4, "big")
    for table, descriptor in tables(in_file(sizeInBytes=12, cardinality=0), b"\x01" + framed):
        assert list(read_deletion_vector(descriptor, table.storage, table=table.uri)) == []
        assert table.delta().snapshot().num_rows == 30


@pytest.mark.parametrize(
    ("vector", "content", "message"),
    [
        (in_file(), b"\x01" + FRAMED[:-1] + b"\x47", "CRC-32"),
        (in_file(), b"\x01" + FRAMED[:-1], "cut off"),
        (in_file(), b"", "empty file"),
        (in_file(), b"\x02" + FRAMED, "expected version 1"),
        (in_file(sizeInBytes=35), b"\x01" + FRAMED, "descriptor.s size of 35 bytes"),
        (in_file(sizeInBytes=40), b"\x01" + FRAMED, "cut off"),
        (in_file(offset=0), b"\x01" + FRAMED, "offset 0"),
        (in_file(offset=44), b"\x01" + FRAMED, "cut off"),
        (in_file(cardinality=3), b"\x01" + FRAMED, "holds 2 positions"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_damage_is_an_error_whatever_form_the_log_has(
    vector: Action, content: bytes, message: str
) -> None:
    for table, descriptor in tables(vector, content):
        with pytest.raises(DeletionVectorError, match=message):
            read_deletion_vector(descriptor, table.storage, table=table.uri)
