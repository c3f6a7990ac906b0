"""Ranks of texts among boundaries, without a loop over rows.

Texts are compared six bytes at a time. Six bytes are a number, which numpy searches in a sorted array. Only
texts with the same six bytes as a boundary are compared by the next six bytes, as a group with that
boundary: the number of the group and the bytes are again one number of 64 bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_delta.engine.arrow.numpy_arrays import Int64Vector, int64_view, offsets_view, validity

__all__ = ["MOST_BYTES", "TextRanks"]

_BYTES = 6
_LEVELS = 8

MOST_BYTES = _BYTES * _LEVELS
"""The bytes of a text that count."""

_UInt64Vector = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class _Level:
    """The boundaries by six of their bytes, and the group of those before.

    Attributes:
        keys: the different numbers, ascending.
        smaller: how many boundaries are smaller than each; at the end, how many there are.
    """

    keys: _UInt64Vector
    smaller: Int64Vector


class TextRanks:
    """The number of boundaries that are less than a text, by its first `MOST_BYTES` bytes.

    Args:
        bounds: the boundaries, ascending by their bytes: a string or binary array without nulls, of at most
            65,536.
    """

    def __init__(self, bounds: pa.Array) -> None:
        self._levels: list[_Level] = []
        if not len(bounds):
            return
        rows = np.arange(len(bounds))
        groups = np.zeros(len(bounds), np.uint64)
        for level in range(_LEVELS):
            keys = _keys(bounds, rows, groups, level)
            different, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
            self._levels.append(_Level(different, np.append(first, len(bounds)).astype(np.int64)))
            groups = inverse.astype(np.uint64)

    def ranks(self, values: pa.Array) -> Int64Vector:
        """The rank of each value; 0 for null.

        Args:
            values: a string or binary array.
        """
        # Values that repeat are searched once.
        encoded = values.dictionary_encode()
        if not len(encoded.dictionary):
            return np.zeros(len(values), np.int64)
        present = validity(encoded.indices)
        indices = np.where(present, int64_view(encoded.indices.cast(pa.int64())), 0)
        return np.where(present, self._search(encoded.dictionary)[indices], 0)

    def _search(self, values: pa.Array) -> Int64Vector:
        found = np.zeros(len(values), np.int64)
        rows = np.arange(len(values))
        groups = np.zeros(len(values), np.uint64)
        for number, level in enumerate(self._levels):
            keys = _keys(values, rows, groups, number)
            at = np.searchsorted(level.keys, keys)
            found[rows] = level.smaller[at]
            is_tied = level.keys[np.minimum(at, len(level.keys) - 1)] == keys
            rows, groups = rows[is_tied], at[is_tied].astype(np.uint64)
            if not len(rows):
                break
        return found


def _keys(values: pa.Array, rows: Int64Vector, groups: _UInt64Vector, level: int) -> _UInt64Vector:
    """The group and the next six bytes of some values; bytes after the end of a value are 0."""
    offsets = offsets_view(values).astype(np.int64)
    data = np.frombuffer(values.buffers()[2] or b"", np.uint8)
    start = offsets[rows] + _BYTES * level
    length = offsets[rows + 1] - start
    found = groups
    for number in range(_BYTES):
        index = np.minimum(start + number, len(data) - 1)
        byte = np.where(length > number, data[index], 0) if len(data) else 0
        found = (found << np.uint64(8)) | np.asarray(byte, np.uint64)
    return found
