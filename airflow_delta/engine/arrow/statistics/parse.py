"""Per-file statistics as Arrow columns.

PROTOCOL.md, "Per-file Statistics": ``add.stats`` is a JSON text. Only the fields that a question
needs are parsed, for many files in one call: each text becomes the value of a line ``{"s": …}``, so
that a file without statistics is a null in its place and the rows can't shift.

Short texts of one shape need no parser at all: see `alike_stats`. For all others there is the JSON
reader of pyarrow, fast and lossy at the edges (it refuses ``5.0`` for an integer, and one bad text
fails the whole). Whatever it refuses goes, text by text, through Python's reader, where bad statistics
count as none: they are advice, and without advice a file is read.
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

from airflow_delta.engine.arrow.json.fast import parsing_pool
from airflow_delta.engine.arrow.numpy_arrays import offsets_view
from airflow_delta.engine.arrow.parallel import map_ordered
from airflow_delta.engine.arrow.python_arrays import array_of, joined_text, scalar_of
from airflow_delta.engine.arrow.statistics.alike import read_alike
from airflow_delta.engine.model.json_fields import is_text

__all__ = ["STATS_ROWS", "num_records", "parse_stats", "parse_stats_array"]

STATS_ROWS = 1 << 14
"""How many texts to parse in one call: a few megabytes, and what one bad text slows down."""

_NUM_RECORDS = pa.struct([("numRecords", pa.int64())])


def num_records(stats: pa.ChunkedArray) -> pa.ChunkedArray:
    """The ``numRecords`` of each text of statistics, null where it doesn't tell."""
    return pc.struct_field(parse_stats(stats, _NUM_RECORDS), "numRecords")


def parse_stats(stats: pa.ChunkedArray, type_: pa.StructType) -> pa.ChunkedArray:
    """Parse the fields of a type out of texts of statistics, in threads; see `parse_stats_array`."""
    chunks = list(map_ordered(partial(parse_stats_array, type_=type_), _slices(stats)))
    return pa.chunked_array(chunks, type=type_)


def _slices(stats: pa.ChunkedArray) -> Iterator[pa.Array]:
    for chunk in stats.chunks:
        for first in range(0, len(chunk), STATS_ROWS):
            yield chunk.slice(first, STATS_ROWS)


def parse_stats_array(stats: pa.Array, type_: pa.StructType) -> pa.Array:
    """Parse the fields of a type out of texts of statistics.

    Args:
        stats: JSON texts; null or empty for none.
        type_: the struct to parse, of nested structs, ``int64``, ``double``, ``decimal128``, ``bool``
            and ``string``.

    Returns:
        One struct a text; null where there are no statistics or they aren't JSON objects. A field
        that isn't of its type is null; of doubles, NaN and infinities may be there or be null.
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
    lines = joined_text('{"s":', pc.coalesce(texts, scalar_of("null", pa.string())), "}\n")
    parsed = _read(lines, pa.schema([("s", type_)]))
    if parsed is None or parsed.num_rows != len(stats):
        # A text with line breaks, or two objects: what row belongs to which file can't be told.
        return _exact(texts, type_)
    return pa.concat_arrays(parsed["s"].chunks)


def _are_bare_objects(stats: pa.Array) -> bool:
    """Whether all texts, and none is null, begin and end with a brace.

    Such texts need no wrapper, a seventh of the work. Between two of them ``}``, a line break and
    ``{`` is what JSON only allows between two objects, so that none of them spans two texts: each
    text holds one object at least, and with as many rows as texts, one exactly.
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
    """Lines of JSON, which own their memory, as rows; None if the fast reader refuses one."""
    text = lines.buffers()[2] or pa.py_buffer(b"")
    try:
        return pj.read_json(
            pa.BufferReader(text),
            read_options=pj.ReadOptions(use_threads=False, block_size=max(len(text), 1)),
            parse_options=pj.ParseOptions(
                explicit_schema=schema, unexpected_field_behavior="ignore"
            ),
            memory_pool=parsing_pool(),
        )
    except pa.ArrowInvalid:
        return None


def _exact(texts: pa.Array, type_: pa.StructType) -> pa.Array:
    # A loop over files, for the rare slice that the fast reader refuses. As bytes, because texts
    # that aren't UTF-8 are among what it refuses.
    objects = (_object(text) for text in texts.cast(pa.binary()).to_pylist())
    picked = array_of([_picked(value, type_) for value in objects], _with_decimals_as_text(type_))
    return picked.cast(type_)


def _with_decimals_as_text(type_: pa.DataType) -> pa.DataType:
    """The type in which decimals are made of Python values: `array_of` has none of their own."""
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


def _picked(value: Any, type_: pa.DataType) -> Any:
    """The part of a JSON value that a type asks for; None where it isn't of that type."""
    if pa.types.is_struct(type_):
        if not isinstance(value, Mapping):
            return None
        return {field.name: _picked(value.get(field.name), field.type) for field in type_}
    if pa.types.is_boolean(type_):
        return value if isinstance(value, bool) else None
    if pa.types.is_string(type_):
        return value if isinstance(value, str) and is_text(value) else None
    if not isinstance(value, (int, float, Decimal)) or isinstance(value, bool):
        return None
    return _number(value, type_)


def _number(value: float | Decimal, type_: pa.DataType) -> Any:
    if isinstance(value, float):  # only NaN and infinities are read so
        return value if pa.types.is_floating(type_) else None
    if pa.types.is_floating(type_):
        number = float(str(value))  # not float(value), which overflows for large integers
        return number if math.isfinite(number) else None
    if pa.types.is_decimal(type_):
        return _decimal_text(Decimal(value), type_)
    whole = -(2**63) <= value < 2**63 and value == int(value)
    return int(value) if whole else None


def _decimal_text(number: Decimal, type_: pa.DataType) -> str | None:
    """The number with the scale of the type, as text; None where it has more digits."""
    context = Context(prec=type_.precision, traps=[Inexact, InvalidOperation])
    try:
        return f"{number.quantize(Decimal((0, (1,), -type_.scale)), context=context):f}"
    except (Inexact, InvalidOperation):
        return None
