"""Arrow values of partition values, without pandas.

``pa.scalar`` imports pandas if it is installed, which takes longer than reading a small table.
"""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from decimal import Decimal

import pyarrow as pa

from airflow_delta.engine.arrow.python_arrays import scalar_of
from airflow_delta.engine.model.partition_values import PartitionValue

__all__ = ["partition_scalar"]

_EPOCH = datetime(1970, 1, 1)
_EPOCH_DAY = date(1970, 1, 1)


def partition_scalar(value: PartitionValue | None, type_: pa.DataType) -> pa.Scalar:
    """A partition value as an Arrow scalar.

    Args:
        value: the value, from `parse_partition_value`.
        type_: the type of its column, from `to_arrow_schema`.
    """
    if value is None:
        return pa.nulls(1, type_)[0]
    match value:
        case bool():
            return scalar_of(value, pa.bool_())
        case int():
            return scalar_of(value, pa.int64()).cast(type_)
        case float():
            return scalar_of(value, pa.float64()).cast(type_)
        case Decimal():
            return scalar_of(f"{value:f}", pa.string()).cast(type_)
        case datetime():
            wall_clock = (
                value.astimezone(timezone.utc).replace(tzinfo=None) if value.tzinfo else value
            )
            micros = (wall_clock - _EPOCH) // timedelta(microseconds=1)
            return scalar_of(micros, pa.int64()).cast(type_)
        case date():
            return scalar_of((value - _EPOCH_DAY).days, pa.int32()).cast(type_)
        case bytes():
            return scalar_of(value.decode(), pa.string()).cast(type_)
        case _:
            return scalar_of(value, pa.string())
