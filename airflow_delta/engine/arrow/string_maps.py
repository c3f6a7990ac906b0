"""Turn the structs that pyarrow's JSON reader makes of string maps into Arrow maps, exactly.

The reader can't make maps, so ``partitionValues`` and ``tags`` are read as structs with a field for
each known key. A struct can't tell a key that is missing from one whose value is null, and the
difference shows in a map. `map_from_struct` asks the text itself, by counting ``"key":null``.
"""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa

from airflow_delta.engine.arrow.action_schema import STRING_MAP
from airflow_delta.engine.arrow.numpy_arrays import (
    BoolVector,
    bool_array,
    int32_array,
    validity,
)

__all__ = ["map_from_struct"]

# JSON that could hide a null from a count of `"key":null`: white space, or a key with an escape.
_HIDING = (b"  null", b":\tnull", b":\rnull", b'" :', b'"\t:', b'"\r:', b"\\u00")


def map_from_struct(struct: pa.StructArray, *, text: memoryview) -> pa.MapArray | None:
    """The map array that says the same as a struct array of strings.

    Args:
        struct: one string child per key; a row where the struct is null becomes a null map.
        text: the JSON that was read; nothing else.

    Returns:
        None where the text must be asked line by line: some of a key's rows miss it and others
        have a null, or the text is written so that counting proves nothing.
    """
    present = validity(struct)
    keys: list[str] = []
    values: list[pa.Array] = []
    entries: list[BoolVector] = []
    content = None
    for number in range(struct.type.num_fields):
        key, child = struct.type.field(number).name, struct.field(number)
        filled = present & validity(child) if child.null_count else present
        absent = int(present.sum() - filled.sum())
        if absent:
            content = content or bytes(text)
            nulls = _explicit_nulls(content, key)
            if nulls == absent:
                filled = present
            elif nulls != 0:
                return None
        if filled.any():
            keys.append(key)
            values.append(child)
            entries.append(filled)
    return _interleaved(keys, values, entries, present)


def _explicit_nulls(content: bytes, key: str) -> int | None:
    """How often a key is written with null, or None if that can't be told by counting."""
    name = json.dumps(key)
    if name != f'"{key}"' or any(hiding in content for hiding in _HIDING):
        return None
    return content.count(f"{name}:null".encode()) + content.count(f"{name}: null".encode())


def _interleaved(
    keys: list[str], values: list[pa.Array], entries: list[BoolVector], present: BoolVector
) -> pa.MapArray:
    """One map per row: for each key, in order, an entry where ``entries`` says so."""
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
    names = pa.array(keys, pa.string()).take(int32_array(which))
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
