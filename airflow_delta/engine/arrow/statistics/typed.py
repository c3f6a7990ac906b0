"""Convert the JSON texts of statistics to the struct ``add.stats_parsed`` of a checkpoint.

With ``delta.checkpoint.writeStatsAsStruct`` a checkpoint stores statistics in the types of the columns,
so that readers needn't parse them. The struct mirrors the *physical* schema. All types have minima and
maxima except boolean, binary and nested ones, on whose order engines don't agree. Every leaf has a null
count. A value that doesn't fit the type of its column, which may have changed, becomes null.

`parsed.stats_from_parsed` is the way back, without loss. Spec: PROTOCOL.md, "Checkpoints".
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.python_arrays import scalar_of
from airflow_delta.engine.arrow.statistics.parse import parse_stats
from airflow_delta.engine.model.schema import DecimalType, PrimitiveType, StructType

if TYPE_CHECKING:
    from airflow_delta.engine.model.schema import DataType

__all__ = ["bound_type", "stats_type", "typed_stats"]

_BOUND_TYPES = {
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}


def bound_type(data_type: DataType) -> pa.DataType | None:
    """The Arrow type of a column's minima and maxima; None if its type has none."""
    if isinstance(data_type, DecimalType):
        return pa.decimal128(data_type.precision, data_type.scale)
    return _BOUND_TYPES.get(data_type.name) if isinstance(data_type, PrimitiveType) else None


def stats_type(schema: StructType, *, columns: int = -1) -> pa.StructType:
    """The type of ``stats_parsed``.

    Args:
        schema: the data columns, without partition columns, under their physical names.
        columns: the number of leaves that get statistics, from the first; -1 for all.
    """
    bounds = _mirror(schema, bound_type, _first(columns))
    counts = _mirror(schema, lambda _: pa.int64(), _first(columns))
    per_column = [("minValues", bounds), ("maxValues", bounds), ("nullCount", counts)]
    return pa.struct(
        [
            ("numRecords", pa.int64()),
            ("tightBounds", pa.bool_()),
            # Parquet has no struct without fields.
            *((name, type_) for name, type_ in per_column if type_.num_fields),
        ]
    )


def _first(columns: int) -> Callable[[], bool]:
    """A function that returns, called for leaf after leaf, whether the leaf gets statistics."""
    indexes = itertools.count()
    return lambda: columns == -1 or next(indexes) < columns


def _mirror(
    schema: StructType,
    leaf_type: Callable[[DataType], pa.DataType | None],
    counts: Callable[[], bool],
) -> pa.StructType:
    """The struct with a type for each leaf of a schema; leaves without a type are left out."""
    fields = []
    for field in schema:
        if isinstance(field.data_type, StructType):
            type_ = _mirror(field.data_type, leaf_type, counts)
            if type_.num_fields:
                fields.append((field.name, type_))
        elif counts() and (type_ := leaf_type(field.data_type)) is not None:
            fields.append((field.name, type_))
    return pa.struct(fields)


def typed_stats(stats: pa.StringArray, type_: pa.StructType) -> pa.StructArray:
    """Convert statistics to structs; null where there are none.

    Args:
        stats: JSON texts.
        type_: see `stats_type`.
    """
    parsed = parse_stats(pa.chunked_array([stats], type=pa.string()), _as_read(type_))
    chunks = [_typed(chunk, type_) for chunk in parsed.chunks]
    return pa.concat_arrays(chunks) if chunks else pa.nulls(0, type_)


def _as_read(type_: pa.DataType) -> pa.DataType:
    """The type of the same values in JSON."""
    if pa.types.is_struct(type_):
        return pa.struct([(field.name, _as_read(field.type)) for field in type_])
    if pa.types.is_integer(type_):
        return pa.int64()
    if pa.types.is_floating(type_):
        return pa.float64()
    if pa.types.is_boolean(type_) or pa.types.is_decimal(type_):
        return type_
    return pa.string()


def _typed(array: pa.Array, target: pa.DataType) -> pa.Array:
    if pa.types.is_struct(target):
        children = [_typed(array.field(i), field.type) for i, field in enumerate(target)]
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(children, fields=list(target), mask=mask)
    if pa.types.is_floating(target):
        numbers = pc.cast(array, target, safe=False)  # Numbers that are too large become infinite.
        return pc.if_else(pc.is_finite(numbers), numbers, scalar_of(None, target))
    try:
        return pc.cast(array, target)
    except pa.ArrowInvalid:
        # A loop over values, for the rare column in which one doesn't fit.
        values = [_cast_or_null(array.slice(row, 1), target) for row in range(len(array))]
        return pa.concat_arrays(values)


def _cast_or_null(value: pa.Array, target: pa.DataType) -> pa.Array:
    try:
        return pc.cast(value, target)
    except pa.ArrowInvalid:
        return pa.nulls(1, target)
