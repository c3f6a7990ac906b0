"""Rows that a difference of deletion vectors selects."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyroaring import BitMap64

from airflow_delta.engine.arrow.action_schema import DELETION_VECTOR_TYPE
from airflow_delta.engine.changes.row_selection import read_entry_rows
from airflow_delta.engine.deletion_vectors import file_format, roaring
from airflow_delta.engine.errors import CorruptLogError, DeletionVectorError
from airflow_delta.engine.storage.memory import MemoryStorage
from tests.engine.changes.logs import inline_vector

STORAGE = MemoryStorage("memory://rows/table")


def vectors(*descriptors: dict[str, Any] | None) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(descriptors, DELETION_VECTOR_TYPE)])


def test_the_rows_of_one_vector_less_those_of_the_other() -> None:
    newer, older = inline_vector([1, 5, 9, 2**40]), inline_vector([5, 7])
    selected = vectors(newer, None, older, None, older, older)
    deleted = vectors(older, None, newer, older, None, older)
    named = read_entry_rows(deleted, selected, STORAGE, table="t")
    rows = {number: list(bitmap) for number, bitmap in named.items()}
    assert rows == {0: [1, 9, 2**40], 2: [7], 3: [5, 7], 4: [5, 7], 5: []}


def test_vectors_at_absolute_paths_are_opened() -> None:
    data = roaring.serialize(BitMap64([1, 5]))
    STORAGE.replace("v.bin", b"\x01" + file_format.frame(data))
    far = {
        "storageType": "p",
        "pathOrInlineDv": "s3://elsewhere/v.bin",
        "offset": 1,
        "sizeInBytes": len(data),
        "cardinality": 2,
    }
    named = read_entry_rows(
        vectors(inline_vector([5]), far),
        vectors(far, None),
        STORAGE,
        table="t",
        open_uri=lambda uri: (STORAGE, uri.removeprefix("s3://elsewhere/")),
    )
    assert {number: list(rows) for number, rows in named.items()} == {0: [1], 1: [1, 5]}


def test_a_vector_that_is_gone_is_a_typed_error() -> None:
    gone = {
        "storageType": "u",
        "pathOrInlineDv": "vBn[lx{q8@P<9BNH/isA",
        "offset": 1,
        "sizeInBytes": 36,
        "cardinality": 2,
    }
    for columns in [(vectors(gone), vectors(None)), (vectors(None), vectors(gone))]:
        with pytest.raises(DeletionVectorError, match="can't be read"):
            read_entry_rows(*columns, STORAGE, table="t")


@pytest.mark.parametrize("field", ["storageType", "pathOrInlineDv", "sizeInBytes", "cardinality"])
def test_a_descriptor_without_a_field_is_a_typed_error(field: str) -> None:
    vector = inline_vector([5])
    assert vector is not None
    lacking = vectors({**vector, field: None})
    with pytest.raises(CorruptLogError, match=field):
        read_entry_rows(lacking, vectors(None), STORAGE, table="t")
