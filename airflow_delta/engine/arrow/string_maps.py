"""Convert the structs that pyarrow's JSON reader makes of string maps into Arrow maps, exactly.

The reader can't create maps, so ``partitionValues`` and ``tags`` are read as structs with a field for
each known key. In a struct, a missing key looks like one whose value is null; in a map the two differ.
`map_from_struct` distinguishes them by counting ``"key":null`` in the text.
"""

from __future__ import annotations

import json
from collections.abc import Collection

import numpy as np
import pyarrow as pa

from airflow_delta.engine.arrow.action_schema import STRING_MAP
from airflow_delta.engine.arrow.numpy_arrays import (
    BoolVector,
    bool_array,
    int32_array,
    validity,
)
from airflow_delta.engine.arrow.python_arrays import array_of

__all__ = ["map_from_struct"]

_SPACE, _TAB, _RETURN, _QUOTE, _COLON, _N = b' \t\r":n'
_ESCAPED_ASCII = b"\\u00"


def map_from_struct(
    struct: pa.StructArray, *, text: memoryview, shared: Collection[str] = ()
) -> pa.MapArray | None:
    """Convert a struct array of strings into a map array.

    Args:
        struct: one string child per key; a row where the struct is null becomes a null map.
        text: the JSON that was read, and nothing else.
        shared: names that occur elsewhere in the text as well, so that counting their nulls proves
            nothing.

    Returns:
        The maps. None if the text must be parsed line by line, because a key is missing in some rows
        and null in others, or because the text is written in a way for which counting proves nothing.
    """
    present = validity(struct)
    keys: list[str] = []
    values: list[pa.Array] = []
    entries: list[BoolVector] = []
    content = bytes(text) if any(child.null_count for child in struct.flatten()) else b""
    plain = None
    for number in range(struct.type.num_fields):
        key, child = struct.type.field(number).name, struct.field(number)
        filled = present & validity(child) if child.null_count else present
        absent = int(present.sum() - filled.sum())
        if absent and (nulls := _explicit_nulls(content, key)) == absent:
            if key in shared:
                return None
            filled = present
        elif absent:
            plain = _is_written_plainly(content) if plain is None else plain
            if nulls or not plain or json.dumps(key) != f'"{key}"':
                return None
        if filled.any():
            keys.append(key)
            values.append(child)
            entries.append(filled)
    return _interleave(keys, values, entries, present)


def _explicit_nulls(content: bytes, key: str) -> int:
    """The number of times that a key has a null in the text, spelled in the usual ways."""
    names = {json.dumps(key), json.dumps(key, ensure_ascii=False)}
    return sum(
        content.count(f"{name}{colon}null".encode()) for name in names for colon in (":", ": ")
    )


def _is_written_plainly(content: bytes) -> bool:
    """Whether `_explicit_nulls` finds all nulls: no unusual white space, and no escaped key."""
    data = np.frombuffer(content, np.uint8)
    spaces = np.flatnonzero((data == _SPACE) | (data == _TAB) | (data == _RETURN))
    if len(spaces) and spaces[-1] == len(data) - 1:
        return False
    before, here, after = data[spaces - 1], data[spaces], data[spaces + 1]
    spaced_again = (after == _SPACE) | (after == _TAB) | (after == _RETURN)
    odd_before_colon = (before == _QUOTE) & ((after == _COLON) | spaced_again)
    odd_before_null = (before == _COLON) & (spaced_again | ((after == _N) & (here != _SPACE)))
    return not (odd_before_colon.any() or odd_before_null.any() or _ESCAPED_ASCII in content)


def _interleave(
    keys: list[str], values: list[pa.Array], entries: list[BoolVector], present: BoolVector
) -> pa.MapArray:
    """Build one map per row, which has each key for which ``entries`` is true, in order."""
    rows = len(present)
    mask = None if present.all() else bool_array(~present)
    if len(keys) == 1 and entries[0].all():
        offsets = np.arange(rows + 1)
        return _map(offsets, _repeated(keys[0], rows), values[0], mask)
    chosen = np.stack(entries, axis=1) if keys else np.empty((rows, 0), np.bool_)
    offsets = np.concatenate(([0], np.cumsum(chosen.sum(axis=1))))
    row, which = np.nonzero(chosen)
    if not keys:
        return _map(offsets, _repeated("", 0), _repeated("", 0), mask)
    names = array_of(keys, pa.string()).take(int32_array(which))
    items = pa.concat_arrays(values).take(int32_array(which * rows + row))
    return _map(offsets, names, items, mask)


def _repeated(text: str, count: int) -> pa.Array:
    raw = text.encode()
    offsets = np.arange(count + 1, dtype=np.int32) * len(raw)
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(raw * count)]
    return pa.Array.from_buffers(pa.string(), count, buffers, 0)


def _map(
    offsets: np.ndarray, keys: pa.Array, values: pa.Array, mask: pa.Array | None
) -> pa.MapArray:
    return pa.MapArray.from_arrays(int32_array(offsets), keys, values, STRING_MAP, mask=mask)
