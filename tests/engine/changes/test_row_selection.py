"""Rows that a difference of deletion vectors selects."""

from __future__ import annotations

import pytest

from airflow_delta.engine.changes.row_selection import selected_rows
from airflow_delta.engine.errors import DeletionVectorError
from airflow_delta.engine.storage.memory import MemoryStorage
from tests.engine.changes.logs import inline_vector

STORAGE = MemoryStorage("memory://rows/table")


def test_the_rows_of_one_vector_less_those_of_the_other() -> None:
    newer, older = inline_vector([1, 5, 9, 2**40]), inline_vector([5, 7])
    assert newer is not None
    assert older is not None
    assert list(selected_rows(newer, older, STORAGE, table="t")) == [1, 9, 2**40]
    assert list(selected_rows(older, newer, STORAGE, table="t")) == [7]
    assert list(selected_rows(older, None, STORAGE, table="t")) == [5, 7]
    assert not selected_rows(older, older, STORAGE, table="t")


def test_a_vector_that_is_gone_is_a_typed_error() -> None:
    gone = {
        "storageType": "u",
        "pathOrInlineDv": "vBn[lx{q8@P<9BNH/isA",
        "offset": 1,
        "sizeInBytes": 36,
        "cardinality": 2,
    }
    with pytest.raises(DeletionVectorError, match="can't be read"):
        selected_rows(gone, None, STORAGE, table="t")
