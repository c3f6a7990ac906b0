"""Bounds from partition values, which are exact because all rows of a file share them.

Each distinct text is parsed once, by ``model/partition_values.py``: several texts may be the same value.
A file with an invalid text is kept; reading it will raise an error. A missing key means null.

Spec: PROTOCOL.md, "Partition Value Serialization".
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.numpy_arrays import offsets_view
from airflow_delta.engine.arrow.python_arrays import array_of, scalar_of
from airflow_delta.engine.errors import InvalidTableError
from airflow_delta.engine.model.partition_values import parse_partition_value
from airflow_delta.engine.model.schema import DataType, DecimalType, PrimitiveType
from airflow_delta.engine.scan.bounds import UNBOUNDED, Bounds
from airflow_delta.engine.scan.masks import Mask

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
"""Integers and floats have the widest type, because comparisons don't depend on the width."""

_INVALID = object()


class PartitionColumn:
    """The values of one partition column, with a cache of parsed texts. Several threads may use it.

    Args:
        key: the column's physical name.
        data_type: its type.
    """

    def __init__(self, key: str, data_type: DataType) -> None:
        self._key = key
        self._data_type = data_type
        self._arrow_type = _arrow_type(data_type)
        # Two threads may parse the same text, with the same result.
        self._parsed: dict[str | None, Any] = {}

    def bounds(self, partition_values: pa.MapArray) -> Bounds:
        """The bounds of the column in each file, from ``add.partitionValues``."""
        if self._arrow_type is None:
            return UNBOUNDED
        texts = _map_values(partition_values, self._key).dictionary_encode()
        # A loop over the distinct texts of a batch, which are nearly always few.
        parsed = [self._parse(text) for text in texts.dictionary.to_pylist()]
        invalid = [value is _INVALID for value in parsed]
        kept = [None if value is _INVALID else value for value in parsed]
        make = pa.array if pa.types.is_decimal(self._arrow_type) else array_of
        values = make(kept, self._arrow_type).take(texts.indices)
        null = values.is_null()
        if any(invalid):
            unclear = pc.fill_null(
                array_of(invalid, pa.bool_()).take(texts.indices), scalar_of(False, pa.bool_())
            )
            return Bounds(values, values, pc.or_(values.is_valid(), unclear), null)
        return Bounds(values, values, pc.invert(null), null, has_nan=_are_nan(values))

    def _parse(self, text: str | None) -> Any:
        if text not in self._parsed:
            try:
                self._parsed[text] = parse_partition_value(text, self._data_type)
            except InvalidTableError:
                self._parsed[text] = _INVALID
        return self._parsed[text]


def _are_nan(values: pa.Array) -> Mask:
    """Which values are NaN: it doesn't count for the files of other partitions."""
    if not pa.types.is_floating(values.type):
        return False
    found = pc.fill_null(pc.is_nan(values), scalar_of(False, pa.bool_()))
    return found if pc.any(found).as_py() else False


def _arrow_type(data_type: DataType) -> pa.DataType | None:
    if isinstance(data_type, DecimalType):
        return pa.decimal128(data_type.precision, data_type.scale)
    return _ARROW_TYPES.get(data_type.name) if isinstance(data_type, PrimitiveType) else None


def _map_values(maps: pa.MapArray, key: str) -> pa.StringArray:
    """The value of a key in each map; null where it is missing."""
    rows = len(maps)
    offsets = offsets_view(maps)
    entries = int(offsets[-1] - offsets[0])
    # In the usual case all maps have the same keys in the same order. This is ten times as fast as a
    # lookup.
    if (
        rows
        and entries
        and entries % rows == 0
        and bool((np.diff(offsets) == entries // rows).all())
    ):
        keys = maps.keys.slice(int(offsets[0]), entries)
        found = pc.indices_nonzero(pc.equal(keys, scalar_of(key, pa.string())))
        if len(found) == rows:
            index = np.frombuffer(found.buffers()[1], np.uint64, rows)
            if bool(
                (index // np.uint64(entries // rows) == np.arange(rows, dtype=np.uint64)).all()
            ):
                return maps.items.slice(int(offsets[0]), entries).take(found)
    return pc.map_lookup(maps, scalar_of(key, pa.string()), "last")
