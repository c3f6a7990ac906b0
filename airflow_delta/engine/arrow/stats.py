"""Per-file statistics as Arrow columns.

PROTOCOL.md, "Per-file Statistics": ``add.stats`` is a JSON text. Only the fields that a question
needs are parsed, for all files in one call: each text becomes the value of a line ``{"s": …}``, so
that a file without statistics is a null in its place and the rows can't shift.

The JSON reader of pyarrow is fast and lossy at the edges (it refuses ``5.0`` for an integer, and one
bad text fails the whole). Whatever it refuses goes, text by text, through Python's reader, where bad
statistics count as none: they are advice, and without advice a file is read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

__all__ = ["num_records", "parse_stats"]

_NUM_RECORDS = pa.struct([("numRecords", pa.int64())])


def num_records(stats: pa.ChunkedArray) -> pa.ChunkedArray:
    """The ``numRecords`` of each text of statistics, null where it doesn't tell."""
    return pc.struct_field(parse_stats(stats, _NUM_RECORDS), "numRecords")


def parse_stats(stats: pa.ChunkedArray, type_: pa.StructType) -> pa.ChunkedArray:
    """Parse the fields of a type out of texts of statistics.

    Args:
        stats: JSON texts; null or empty for none.
        type_: the struct to parse, of nested structs, ``int64``, ``double``, ``bool`` and ``string``.

    Returns:
        One struct a text; null where there are no statistics or they aren't JSON objects.
    """
    chunks = [_parse_chunk(chunk, type_) for chunk in stats.chunks if len(chunk)]
    return pa.chunked_array(chunks, type=type_)


def _parse_chunk(stats: pa.Array, type_: pa.StructType) -> pa.Array:
    texts = pc.if_else(pc.equal(stats, ""), pa.scalar(None, pa.string()), stats)
    lines = pc.binary_join_element_wise('{"s":', pc.coalesce(texts, pa.scalar("null")), "}\n", "")
    text = _text(lines)
    try:
        parsed = pj.read_json(
            pa.BufferReader(text),
            read_options=pj.ReadOptions(block_size=max(len(text), 1)),
            parse_options=pj.ParseOptions(
                explicit_schema=pa.schema([("s", type_)]), unexpected_field_behavior="ignore"
            ),
        )["s"]
    except pa.ArrowInvalid:
        return _exact(texts, type_)
    if len(parsed) != len(stats):
        # A text with line breaks, or two objects: what row belongs to which file can't be told.
        return _exact(texts, type_)
    return pa.concat_arrays(parsed.chunks)


def _text(lines: pa.Array) -> pa.Buffer:
    """The bytes of all strings of an array that owns its buffers, end to end."""
    return lines.buffers()[2] or pa.py_buffer(b"")


def _exact(texts: pa.Array, type_: pa.StructType) -> pa.Array:
    # A loop over files, for the rare chunk that the fast reader refuses.
    return pa.array([_picked(_object(text), type_) for text in texts.to_pylist()], type_)


def _object(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _picked(value: Any, type_: pa.DataType) -> Any:
    """The part of a JSON value that a type asks for; None where it isn't of that type."""
    if pa.types.is_struct(type_):
        if not isinstance(value, Mapping):
            return None
        return {field.name: _picked(value.get(field.name), field.type) for field in type_}
    if pa.types.is_boolean(type_):
        return value if isinstance(value, bool) else None
    if isinstance(value, bool):
        return None
    if pa.types.is_int64(type_):
        whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        return int(value) if whole and -(2**63) <= value < 2**63 else None
    if pa.types.is_float64(type_):
        return float(value) if isinstance(value, (int, float)) else None
    return value if isinstance(value, str) else None
