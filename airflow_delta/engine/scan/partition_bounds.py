"""Bounds from partition values: exact, since all rows of a file share them.

Texts are parsed as ``model/partition_values.py`` says, each distinct one once: values compare typed,
because one value has many texts. A text that is no value of the type tells nothing about its file,
which is kept; reading the file is where that becomes an error. A key that is missing means null.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.numpy_arrays import offsets_view
from airflow_delta.engine.errors import InvalidTableError
from airflow_delta.engine.model.partition_values import parse_partition_value
from airflow_delta.engine.model.schema import DataType, DecimalType, PrimitiveType
from airflow_delta.engine.scan.bounds import UNBOUNDED, Bounds

__all__ = ["PartitionColumn"]

_ARROW_TYPES = {
    "string": pa.string(),
    "byte": pa.int64(),
    "short": pa.int64(),
    "integer": pa.int64(),
    "long": pa.int64(),
    "float": pa.float64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "binary": pa.binary(),
}
"""Integers, like floats, in the widest type: comparing them doesn't depend on their width."""

_INVALID = object()


class PartitionColumn:
    """The values of one partition column. Remembers parsed texts; safe to use from threads.

    Args:
        key: the column's physical name.
        data_type: its type.
    """

    def __init__(self, key: str, data_type: DataType) -> None:
        self._key = key
        self._data_type = data_type
        self._arrow_type = _arrow_type(data_type)
        # Threads may parse the same text twice, with the same result.
        self._parsed: dict[str | None, Any] = {}

    def bounds(self, partition_values: pa.MapArray) -> Bounds:
        """The bounds in each file, from ``add.partitionValues``."""
        if self._arrow_type is None:
            return UNBOUNDED
        texts = _map_values(partition_values, self._key).dictionary_encode()
        # A loop over the distinct texts of a batch, nearly always few.
        parsed = [self._parse(text) for text in texts.dictionary.to_pylist()]
        invalid = [value is _INVALID for value in parsed]
        kept = [None if value is _INVALID else value for value in parsed]
        values = pa.array(kept, self._arrow_type).take(texts.indices)
        null = values.is_null()
        if any(invalid):
            unclear = pc.fill_null(pa.array(invalid, pa.bool_()).take(texts.indices), False)
            return Bounds(values, values, pc.or_(values.is_valid(), unclear), null)
        has_nan = pa.types.is_floating(self._arrow_type)
        if has_nan:
            values = pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)
            has_nan = values.null_count != pc.sum(null).as_py()
        return Bounds(values, values, pc.invert(null), null, has_nan=has_nan)

    def _parse(self, text: str | None) -> Any:
        if text not in self._parsed:
            try:
                self._parsed[text] = parse_partition_value(text, self._data_type)
            except InvalidTableError:
                self._parsed[text] = _INVALID
        return self._parsed[text]


def _arrow_type(data_type: DataType) -> pa.DataType | None:
    if isinstance(data_type, DecimalType):
        return pa.decimal128(data_type.precision, data_type.scale)
    return _ARROW_TYPES.get(data_type.name) if isinstance(data_type, PrimitiveType) else None


def _map_values(maps: pa.MapArray, key: str) -> pa.StringArray:
    """The value of a key in each map, null where it's missing."""
    rows = len(maps)
    offsets = offsets_view(maps)
    entries = int(offsets[-1] - offsets[0])
    # The usual case, ten times as fast as a lookup: every map has the same keys in the same order.
    if (
        rows
        and entries
        and entries % rows == 0
        and bool((np.diff(offsets) == entries // rows).all())
    ):
        keys = maps.keys.slice(int(offsets[0]), entries)
        found = pc.indices_nonzero(pc.equal(keys, key))
        if len(found) == rows:
            place = np.frombuffer(found.buffers()[1], np.uint64, rows)
            if bool(
                (place // np.uint64(entries // rows) == np.arange(rows, dtype=np.uint64)).all()
            ):
                return maps.items.slice(int(offsets[0]), entries).take(found)
    return pc.map_lookup(maps, key, "last")
