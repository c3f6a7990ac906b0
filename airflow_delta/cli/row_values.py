"""Convert the rows of record batches to plain JSON values.

Values are converted column by column, by the types of Arrow: Python lacks the years after 9999 and before
1, and not every key of a map can be one of a dict.
"""

from __future__ import annotations

import itertools
import json
from typing import Any

import pyarrow as pa

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.model.plain import plain

__all__ = ["plain_rows"]


def plain_rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Convert the rows of a batch to objects of plain values.

    Times are ISO-8601, or after the year 32767 the number that the file has; decimals, NaN and infinities
    are texts, and binary values are hexadecimal. Maps are objects, whose keys are texts, or the JSON of
    other keys.

    Raises:
        InvalidArgumentError: a text isn't UTF-8.
    """
    columns = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            columns.append(_values(column))
        except UnicodeDecodeError as error:
            raise InvalidArgumentError(
                f"the column {name} has a text that isn't UTF-8; name the others with --columns, or choose "
                "--format parquet or arrow"
            ) from error
    # A loop in Python, because each row is text.
    return [dict(zip(batch.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]


def _values(array: pa.Array) -> list[Any]:
    type_ = array.type
    if pa.types.is_struct(type_):
        return _objects(array)
    if pa.types.is_map(type_):
        # Python takes the last one of equal keys.
        pairs = zip(
            _keys(_entries(array, array.keys)), _values(_entries(array, array.items)), strict=True
        )
        return _divided(array, list(pairs), dict)
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return _divided(array, _values(_entries(array, array.values)), list)
    if pa.types.is_date(type_) or pa.types.is_timestamp(type_):
        return _times(array)
    values: list[Any] = array.to_pylist()
    is_plain = pa.types.is_integer(type_) or pa.types.is_string(type_) or pa.types.is_boolean(type_)
    return values if is_plain else [plain(value) for value in values]


def _objects(structs: pa.StructArray) -> list[dict[str, Any] | None]:
    names = [field.name for field in structs.type]
    columns = [_values(column) for column in structs.flatten()]
    rows = zip(*columns, strict=True) if columns else itertools.repeat((), len(structs))
    present = structs.is_valid().to_pylist()
    return [
        dict(zip(names, row, strict=True)) if is_present else None
        for row, is_present in zip(rows, present, strict=True)
    ]


def _entries(lists: pa.Array, entries: pa.Array) -> pa.Array:
    """The part of the entries of all lists that those of a slice have."""
    first, last = lists.offsets[0].as_py(), lists.offsets[-1].as_py()
    return entries.slice(first, last - first)


def _divided(lists: pa.Array, entries: list[Any], make: type) -> list[Any]:
    """Make a list, or a dict, of the entries of each one."""
    offsets = lists.offsets.to_pylist()
    bounds = itertools.pairwise(offset - offsets[0] for offset in offsets)
    present = lists.is_valid().to_pylist()
    return [
        make(entries[start:end]) if is_present else None
        for (start, end), is_present in zip(bounds, present, strict=True)
    ]


def _keys(array: pa.Array) -> list[str]:
    return [
        key if isinstance(key, str) else json.dumps(key, ensure_ascii=False)
        for key in _values(array)
    ]


def _times(array: pa.Array) -> list[str | None]:
    try:
        values = array.to_pylist()
    except OverflowError:
        return [_time(value) for value in array]
    return [plain(value) for value in values]


def _time(scalar: pa.Scalar) -> str | None:
    try:
        found: str | None = plain(scalar.as_py())
    except OverflowError:
        zone = getattr(scalar.type, "tz", None)
        # With a zone Arrow has wrong texts for years that it lacks.
        local = scalar if zone is None else scalar.cast(pa.timestamp(scalar.type.unit))
        text = local.cast(pa.string()).as_py()
        if not text[-1].isdecimal():  # "<value out of range: …>"
            return str(scalar.value)
        found = text.replace(" ", "T").removesuffix(".000000") + ("" if zone is None else "Z")
    return found
