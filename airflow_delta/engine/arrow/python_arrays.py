"""Arrow arrays and scalars from a few Python values, without pandas.

``pa.array`` and ``pa.scalar`` import pandas if it is installed, to find out whether the values are from
there. So do the functions of ``pyarrow.compute`` for a Python value instead of an Arrow one. That costs
more time and memory than opening a table. These functions build arrays from buffers instead, and take
a scalar out of an array of one value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.numpy_arrays import bool_array, int32_array

__all__ = ["array_of", "joined_text", "scalar_of"]

_FIXED = {pa.int32(): np.int32, pa.int64(): np.int64, pa.float64(): np.float64}
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def array_of(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """Build an array of values, without converting any.

    Args:
        values: each is None or fits the type. Strings, bytes, numbers, booleans, dates, times (without a
            zone they are UTC), sequences for lists, or mappings for maps and structs.
        type_: string, binary, int32, int64, float64, bool, date32, a timestamp in microseconds; or a list,
            a map, or a struct of these.

    Raises:
        OverflowError: an integer that the type can't hold.
        UnicodeEncodeError: a string with a lone surrogate.
    """
    present = np.fromiter((value is not None for value in values), np.bool_, len(values))
    if pa.types.is_string(type_) or pa.types.is_binary(type_):
        return _texts(values, type_, _validity(present))
    if pa.types.is_date32(type_):
        return array_of(
            [None if value is None else _day(value) for value in values], pa.int32()
        ).view(type_)
    if pa.types.is_timestamp(type_) and type_.unit == "us":
        return array_of(
            [None if value is None else _us(value) for value in values], pa.int64()
        ).view(type_)
    if pa.types.is_map(type_):
        return _maps(values, type_, None if present.all() else bool_array(~present))
    if pa.types.is_list(type_):
        items = array_of([item for value in values for item in value or ()], type_.value_type)
        buffers = [_validity(present), pa.py_buffer(_offsets(values))]
        return pa.Array.from_buffers(type_, len(values), buffers, children=[items])
    if pa.types.is_struct(type_):
        rows: Sequence[Mapping[str, Any]] = [value or {} for value in values]
        children = [array_of([row.get(f.name) for row in rows], f.type) for f in type_]
        return pa.Array.from_buffers(type_, len(rows), [_validity(present)], children=children)
    if pa.types.is_boolean(type_):
        flags = np.fromiter(map(bool, values), np.bool_, len(values))
        bits = np.packbits(flags, bitorder="little")
        return _from_buffers(type_, len(values), _validity(present), bits)
    filled = [0 if value is None else value for value in values]
    return _from_buffers(
        type_, len(values), _validity(present), np.array(filled, dtype=_FIXED[type_])
    )


def scalar_of(value: Any, type_: pa.DataType) -> pa.Scalar:
    """Build a scalar of a value.

    Args:
        value: None for a null of any type; else as for `array_of`.
        type_: the type; see `array_of`.
    """
    return pa.nulls(1, type_)[0] if value is None else array_of([value], type_)[0]


def joined_text(*parts: pa.Array | pa.ChunkedArray | pa.Scalar | str) -> Any:
    """Join texts row by row; a row is null where one of its parts is.

    Args:
        parts: arrays of strings, and texts that are the same in each row.
    """
    texts = (scalar_of(part, pa.string()) if isinstance(part, str) else part for part in parts)
    return pc.binary_join_element_wise(*texts, scalar_of("", pa.string()))


def _validity(present: np.ndarray[Any, Any]) -> pa.Buffer | None:
    if present.all():
        return None
    return pa.py_buffer(np.packbits(present, bitorder="little"))


def _from_buffers(
    type_: pa.DataType, length: int, validity: pa.Buffer | None, *buffers: Any
) -> pa.Array:
    return pa.Array.from_buffers(type_, length, [validity, *map(pa.py_buffer, buffers)])


def _texts(
    values: Sequence[str | bytes | None], type_: pa.DataType, validity: pa.Buffer | None
) -> pa.Array:
    raw = [value.encode("utf-8") if isinstance(value, str) else value or b"" for value in values]
    return _from_buffers(type_, len(raw), validity, _offsets(raw), b"".join(raw))


def _day(value: date) -> int:
    return value.toordinal() - _EPOCH.toordinal()


def _us(value: datetime) -> int:
    moment = value.replace(tzinfo=timezone.utc) if value.utcoffset() is None else value
    return (moment - _EPOCH) // timedelta(microseconds=1)


def _offsets(values: Sequence[Sequence[Any] | None]) -> np.ndarray[Any, Any]:
    """The offsets of values that are stored end to end: the start of each, and the end of the last."""
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum([0 if value is None else len(value) for value in values], out=offsets[1:])
    return offsets


def _maps(values: Sequence[Any], type_: pa.MapType, nulls: pa.Array | None) -> pa.MapArray:
    entries = [entry for value in values if value is not None for entry in value.items()]
    offsets = int32_array(_offsets(values))
    keys = array_of([key for key, _ in entries], type_.key_type)
    items = array_of([item for _, item in entries], type_.item_type)
    return pa.MapArray.from_arrays(offsets, keys, items, type_, mask=nulls)
