"""The numpy bridges against pyarrow's own conversion to Python values."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from airflow_delta.engine.arrow import numpy_arrays

VALUES = [True, None, False, True, True, None, None, False, True, False, None, True]


@pytest.mark.parametrize("first", range(len(VALUES) + 1))
def test_views_of_slices(first: int) -> None:
    flags = pa.array(VALUES, pa.bool_())[first:]
    numbers = pa.array([None if value is None else 7 - value for value in VALUES], pa.int64())[
        first:
    ]
    texts = pa.array([None if value is None else str(value) for value in VALUES])[first:]

    assert numpy_arrays.validity(flags).tolist() == [value is not None for value in VALUES[first:]]
    valid = numpy_arrays.validity(numbers)
    assert numpy_arrays.int64_view(numbers)[valid].tolist() == numbers.drop_null().to_pylist()
    lengths = np.diff(numpy_arrays.offsets_view(texts)).tolist()
    assert lengths == [len(text or "") for text in texts.to_pylist()]


def test_the_view_shares_the_memory() -> None:
    values = np.arange(5)
    array = numpy_arrays.int64_array(values)
    assert np.shares_memory(numpy_arrays.int64_view(array), values)


def test_arrays_of_vectors() -> None:
    assert numpy_arrays.int64_array(np.array([1, -2], np.int32)).to_pylist() == [1, -2]
    assert numpy_arrays.int32_array(np.array([1, -2])).type == pa.int32()
    assert numpy_arrays.int64_array(np.arange(10)[::3]).to_pylist() == [0, 3, 6, 9]
    mask = np.array([True, False, False] * 5)
    assert numpy_arrays.bool_array(mask).to_pylist() == mask.tolist()


def test_the_null_type_has_no_memory() -> None:
    assert numpy_arrays.validity(pa.nulls(3)).tolist() == [False] * 3
