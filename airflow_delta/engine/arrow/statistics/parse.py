"""Parse per-file statistics, which are JSON texts, into Arrow columns.

Only the requested fields are parsed, for many files in one call, by the first of these that can:

1. `alike`, for short texts of the same shape;
2. pyarrow's JSON reader, for all texts at once. It rejects the whole if it rejects one text, and it
   rejects some that are valid, such as ``5.0`` for an integer;
3. Python's JSON parser, text by text. Invalid statistics count as missing: they only save reading files.

Spec: PROTOCOL.md, "Per-file Statistics".
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from decimal import Context, Decimal, Inexact, InvalidOperation
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from airflow_delta.engine.arrow.memory_pool import decoding_pool
from airflow_delta.engine.arrow.numpy_arrays import offsets_view
from airflow_delta.engine.arrow.parallel import map_ordered
from airflow_delta.engine.arrow.python_arrays import array_of, joined_text, scalar_of
from airflow_delta.engine.arrow.statistics.alike import read_alike
from airflow_delta.engine.model.json_fields import is_text

__all__ = ["STATS_ROWS", "num_records", "parse_stats", "parse_stats_array"]

STATS_ROWS = 1 << 14
"""The number of texts to parse in one call: a few megabytes. One invalid text slows down all of them."""

_NUM_RECORDS = pa.struct([("numRecords", pa.int64())])


def num_records(stats: pa.ChunkedArray) -> pa.ChunkedArray:
    """The ``numRecords`` of each text of statistics; null where it is missing."""
    return pc.struct_field(parse_stats(stats, _NUM_RECORDS), "numRecords")


def parse_stats(stats: pa.ChunkedArray, type_: pa.StructType) -> pa.ChunkedArray:
    """Parse some fields of texts of statistics, in threads; see `parse_stats_array`."""
    chunks = list(map_ordered(partial(parse_stats_array, type_=type_), _slices(stats)))
    return pa.chunked_array(chunks, type=type_)


def _slices(stats: pa.ChunkedArray) -> Iterator[pa.Array]:
    for chunk in stats.chunks:
        for first in range(0, len(chunk), STATS_ROWS):
            yield chunk.slice(first, STATS_ROWS)


def parse_stats_array(stats: pa.Array, type_: pa.StructType) -> pa.Array:
    """Parse some fields of texts of statistics.

    Args:
        stats: JSON texts; null or empty for none.
        type_: the struct to parse, of nested structs, ``int64``, ``double``, ``decimal128``, ``bool``
            and ``string``.

    Returns:
        One struct per text; null if there are no statistics, or they aren't a JSON object. A field of
        another type is null. NaN and infinities, for doubles, may be null or not.
    """
    alike = read_alike(stats, type_)
    if alike is not None:
        return alike
    if _are_bare_objects(stats):
        lines = joined_text(stats, "\n")
        parsed = _read(lines, pa.schema(list(type_)))
        if parsed is not None and parsed.num_rows == len(stats):
            return parsed.to_struct_array().combine_chunks()
    empty = pc.equal(stats, scalar_of("", pa.string()))
    texts = pc.if_else(empty, scalar_of(None, pa.string()), stats)
    # A file without statistics becomes a line too, so that rows and files correspond.
    lines = joined_text('{"s":', pc.coalesce(texts, scalar_of("null", pa.string())), "}\n")
    parsed = _read(lines, pa.schema([("s", type_)]))
    if parsed is None or parsed.num_rows != len(stats):
        # A text has line breaks or two objects, so it is unknown which row belongs to which file.
        return _exact(texts, type_)
    return pa.concat_arrays(parsed["s"].chunks)


def _are_bare_objects(stats: pa.Array) -> bool:
    """Whether no text is null and all begin and end with a brace.

    Such texts can be parsed without the wrapper ``{"s": …}``, which saves a seventh of the work. JSON
    allows ``}``, a line break and ``{`` only between two objects, so no object spans two texts. Each text
    has at least one object; if there are as many rows as texts, it has exactly one.
    """
    if stats.null_count or not len(stats):
        return False
    offsets = offsets_view(stats)
    if not (np.diff(offsets) > 1).all():
        return False
    data = np.frombuffer(stats.buffers()[2], np.uint8)
    first, last = data[offsets[:-1]], data[offsets[1:] - 1]
    return bool((first == ord("{")).all() and (last == ord("}")).all())


def _read(lines: pa.Array, schema: pa.Schema) -> pa.Table | None:
    """Parse lines of JSON, which own their memory; None if pyarrow's reader rejects one."""
    text = lines.buffers()[2] or pa.py_buffer(b"")
    try:
        return pj.read_json(
            pa.BufferReader(text),
            read_options=pj.ReadOptions(use_threads=False, block_size=max(len(text), 1)),
            parse_options=pj.ParseOptions(
                explicit_schema=schema, unexpected_field_behavior="ignore"
            ),
            memory_pool=decoding_pool(),
        )
    except pa.ArrowInvalid:
        return None


def _exact(texts: pa.Array, type_: pa.StructType) -> pa.Array:
    # A loop over files, for the rare slice that pyarrow's reader rejects. As bytes, because it also
    # rejects texts that aren't UTF-8.
    objects = (_object(text) for text in texts.cast(pa.binary()).to_pylist())
    rows = array_of([_select(value, type_) for value in objects], _with_decimals_as_text(type_))
    return rows.cast(type_)


def _with_decimals_as_text(type_: pa.DataType) -> pa.DataType:
    """The type with strings for decimals, which `array_of` doesn't support."""
    if pa.types.is_struct(type_):
        return pa.struct([(field.name, _with_decimals_as_text(field.type)) for field in type_])
    return pa.string() if pa.types.is_decimal(type_) else type_


def _object(text: bytes | None) -> Any:
    if text is None:
        return None
    try:
        return json.loads(text, parse_float=Decimal)
    except (ValueError, ArithmeticError, RecursionError):
        return None


def _select(value: Any, type_: pa.DataType) -> Any:
    """The part of a JSON value that a type has; None where the value has another type."""
    if pa.types.is_struct(type_):
        if not isinstance(value, Mapping):
            return None
        return {field.name: _select(value.get(field.name), field.type) for field in type_}
    if pa.types.is_boolean(type_):
        return value if isinstance(value, bool) else None
    if pa.types.is_string(type_):
        return value if isinstance(value, str) and is_text(value) else None
    if not isinstance(value, (int, float, Decimal)) or isinstance(value, bool):
        return None
    return _number(value, type_)


def _number(value: float | Decimal, type_: pa.DataType) -> Any:
    if isinstance(value, float):  # Only NaN and infinities are parsed as floats.
        return value if pa.types.is_floating(type_) else None
    if pa.types.is_floating(type_):
        number = float(str(value))  # float(value) overflows for large integers.
        return number if math.isfinite(number) else None
    if pa.types.is_decimal(type_):
        return _decimal_text(Decimal(value), type_)
    whole = -(2**63) <= value < 2**63 and value == int(value)
    return int(value) if whole else None


def _decimal_text(number: Decimal, type_: pa.DataType) -> str | None:
    """The number with the scale of the type, as text; None if it has more digits."""
    context = Context(prec=type_.precision, traps=[Inexact, InvalidOperation])
    try:
        return f"{number.quantize(Decimal((0, (1,), -type_.scale)), context=context):f}"
    except (Inexact, InvalidOperation):
        return None
