"""Statistics in their typed form: ``add.stats_parsed``, made of the JSON text.

PROTOCOL.md, "Checkpoints": with ``delta.checkpoint.writeStatsAsStruct`` a checkpoint stores the
statistics in the types of the columns, so that readers needn't parse them. The struct mirrors the
*physical* schema. Minima and maxima exist for types with an order that engines agree on, which are
all but boolean, binary and nested ones; null counts exist for every leaf.

Statistics are advice: a value that can't be read as the type of its column, say because the column
had another type when the file was written, is null.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.stats import parse_stats
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
    """The Arrow type of a column's minima and maxima; None for a type that has none."""
    if isinstance(data_type, DecimalType):
        return pa.decimal128(data_type.precision, data_type.scale)
    return _BOUND_TYPES.get(data_type.name) if isinstance(data_type, PrimitiveType) else None


def stats_type(schema: StructType, *, columns: int = -1) -> pa.StructType:
    """The type of ``stats_parsed``.

    Args:
        schema: the data columns (not the partition columns), under their physical names.
        columns: how many leaves get statistics, from the first; -1 for all.
    """
    leaves = _Budget(columns)
    counts = _mirror(schema, lambda _: pa.int64(), leaves)
    leaves = _Budget(columns)
    bounds = _mirror(schema, bound_type, leaves)
    per_column = [("minValues", bounds), ("maxValues", bounds), ("nullCount", counts)]
    return pa.struct(
        [
            ("numRecords", pa.int64()),
            ("tightBounds", pa.bool_()),
            # Parquet has no struct without fields.
            *((name, type_) for name, type_ in per_column if type_.num_fields),
        ]
    )


class _Budget:
    """How many leaves may still get statistics."""

    def __init__(self, leaves: int) -> None:
        self._left = leaves

    def take(self) -> bool:
        """Whether the next leaf is among them."""
        self._left -= 1
        return self._left != -1 if self._left < 0 else True


def _mirror(
    schema: StructType, leaf: Callable[[DataType], pa.DataType | None], budget: _Budget
) -> pa.StructType:
    """The struct with a type for each leaf of a schema, and without what has none."""
    fields = []
    for field in schema:
        if isinstance(field.data_type, StructType):
            type_ = _mirror(field.data_type, leaf, budget)
            if type_.num_fields:
                fields.append((field.name, type_))
        elif budget.take() and (type_ := leaf(field.data_type)) is not None:
            fields.append((field.name, type_))
    return pa.struct(fields)
