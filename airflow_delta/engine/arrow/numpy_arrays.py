"""Numpy views of Arrow arrays, and Arrow arrays over numpy memory, without copies and without pandas.

pyarrow's own conversions (``ChunkedArray.to_numpy``, ``pa.array`` of an ndarray) import pandas if it is
installed, which costs more than opening a table. These functions use the buffers instead. They take a
`pa.Array`, never a `pa.ChunkedArray`, which isn't one block of memory: the caller loops over its chunks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = [
    "BoolVector",
    "Int32Vector",
    "Int64Vector",
    "bool_array",
    "int32_array",
    "int64_array",
    "int64_view",
    "offsets_view",
    "validity",
]

Int64Vector = npt.NDArray[np.int64]
Int32Vector = npt.NDArray[np.int32]
BoolVector = npt.NDArray[np.bool_]


def int64_view(array: pa.Array) -> Int64Vector:
    """The values of an int64 (or timestamp) array, without copying.

    The value of a null slot is undefined: combine the result with `validity`.
    """
    if not len(array):
        return np.empty(0, np.int64)
    return np.frombuffer(array.buffers()[1], np.int64, len(array), array.offset * 8)


def offsets_view(array: pa.Array) -> Int32Vector:
    """The ``len + 1`` offsets of a string, binary, list or map array, without copying.

    They count from the start of the values' memory, so a sliced array doesn't begin at 0.
    """
    if not len(array):
        return np.zeros(1, np.int32)
    return np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, array.offset * 4)


def validity(array: pa.Array) -> BoolVector:
    """True where the array has a value, False where it is null.

    An array of the null type has no memory at all and is null everywhere.
    """
    if not array.null_count:
        return np.ones(len(array), np.bool_)
    if array.null_count == len(array):
        return np.zeros(len(array), np.bool_)
    return _bits(array.buffers()[0], array.offset, len(array))


def int64_array(values: npt.NDArray[Any]) -> pa.Array:
    """An int64 array without nulls over the memory of a NumPy array (copied only if it isn't int64)."""
    return _over(pa.int64(), np.ascontiguousarray(values, np.int64))


def int32_array(values: npt.NDArray[Any]) -> pa.Array:
    """An int32 array without nulls over the memory of a NumPy array (copied only if it isn't int32)."""
    return _over(pa.int32(), np.ascontiguousarray(values, np.int32))


def bool_array(mask: BoolVector) -> pa.Array:
    """A boolean array without nulls; its bits are packed, so this copies an eighth."""
    bits = np.packbits(mask, bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), len(mask), [None, pa.py_buffer(bits)], 0)


def _over(type_: pa.DataType, values: npt.NDArray[Any]) -> pa.Array:
    return pa.Array.from_buffers(type_, len(values), [None, pa.py_buffer(values)], 0)


def _bits(buffer: pa.Buffer, offset: int, length: int) -> BoolVector:
    packed = np.frombuffer(buffer, np.uint8)
    first = offset // 8
    wanted = packed[first : (offset + length + 7) // 8]
    bits = np.unpackbits(wanted, count=offset - first * 8 + length, bitorder="little")
    return bits[offset - first * 8 :].view(np.bool_)
