"""The rank of a value in its column: the number of its range, of many ranges with equally many rows.

As in the reference implementation the boundaries of the ranges come from a sample, and null is in the first
range. The rank is the number of boundaries that are less than the value, so a value that fills several
ranges has the rank of the first of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.numpy_arrays import (
    Int64Vector,
    int64_array,
    int64_view,
    validity,
)
from airflow_delta.engine.maintenance.optimize.sorting.text_ranks import MOST_BYTES, TextRanks

__all__ = ["Ranks", "make_ranks", "shortened"]

Ranks: TypeAlias = Callable[[pa.Array], Int64Vector]
"""Finds the rank of each value of an array; 0 for null."""


def make_ranks(sample: pa.Array, *, bits: int) -> Ranks:
    """Make the ranks of a column from a sample of its values.

    Args:
        sample: the values, of any type with an order.
        bits: ranks are less than 2 ** bits.
    """
    present = sample.drop_null()
    if _is_text(sample.type):
        order = pc.sort_indices(present)
        return TextRanks(
            present.take(order.take(int64_array(_quantiles(len(present), bits))))
        ).ranks
    bounds = np.sort(_numbers(present))[_quantiles(len(present), bits)]

    def _rank(values: pa.Array) -> Int64Vector:
        found = np.searchsorted(bounds, _numbers(values)).astype(np.int64, copy=False)
        return np.where(validity(values), found, 0) if values.null_count else found

    return _rank


def shortened(values: pa.Array) -> pa.Array:
    """Values of which a sample may keep many: of texts only the beginning, as bytes."""
    # Only the bytes of a text count, and kernels for texts fail for those that aren't UTF-8.
    if pa.types.is_string(values.type):
        values = values.view(pa.binary())
    return pc.binary_slice(values, 0, MOST_BYTES) if pa.types.is_binary(values.type) else values


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_binary(type_))


def _quantiles(count: int, bits: int) -> Int64Vector:
    """Where the boundaries of ranges (the last value of each but one) are in a sorted sample."""
    if not count:
        return np.empty(0, np.int64)
    ranges = 1 << bits
    return (np.arange(1, ranges) * count - 1) // ranges


def _numbers(values: pa.Array) -> npt.NDArray[Any]:
    """Values as integers or floats in the same order; of nulls anything. NaN comes last, as in Spark."""
    types = pa.types
    if types.is_floating(values.type) or types.is_decimal(values.type):
        # Decimals of more digits than a float has get the rank of a near one.
        doubles = values.cast(pa.float64())
        if not len(doubles):
            return np.empty(0, np.float64)
        return np.frombuffer(doubles.buffers()[1], np.float64, len(doubles), doubles.offset * 8)
    if types.is_date32(values.type):
        values = values.cast(pa.int32())
    return int64_view(values.cast(pa.int64()))
