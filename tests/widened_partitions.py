"""A table that is partitioned by a column of each type that can be widened, with files of before and after.

Older files keep the texts of the narrower types in ``partitionValues``; newer ones have those of the wider
types. There are two partitions, with an old and a new file each.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_delta.engine import AddFile, DeltaTable, StructField, StructType
from airflow_delta.engine.model.partition_values import serialize_partition_value
from airflow_delta.engine.model.schema import (
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    TIMESTAMP_NTZ,
    DataType,
    DecimalType,
)

__all__ = ["CHANGES", "FIRST", "SECOND", "make_table", "row", "texts"]

_NUMBERS: dict[DataType, list[DataType]] = {
    BYTE: [SHORT, INTEGER, LONG, DOUBLE, DecimalType(12, 2)],
    SHORT: [INTEGER, LONG, DOUBLE, DecimalType(12, 2)],
    INTEGER: [LONG, DOUBLE, DecimalType(12, 2)],
    LONG: [DecimalType(22, 2)],
}
_WHOLE = ("7", "-12")

CHANGES: dict[str, tuple[DataType, DataType, tuple[str, str]]] = {
    **{
        f"{old}_{new}".split("(")[0]: (old, new, _WHOLE)
        for old, wider in _NUMBERS.items()
        for new in wider
    },
    "float_double": (FLOAT, DOUBLE, ("0.1", "-Infinity")),
    "decimal_decimal": (DecimalType(5, 2), DecimalType(12, 4), ("1.10", "-2.50")),
    "date_timestamp_ntz": (DATE, TIMESTAMP_NTZ, ("2024-01-01", "1969-12-31")),
}
"""The old type of each partition column, its new type, and its texts in old files of both partitions."""

FIRST, SECOND = 0, 1
_WIDE_VALUES: dict[str, tuple[Any, Any]] = {
    "double": (7.0, -12.0),
    "decimal": (Decimal("7.00"), Decimal("-12.00")),
    "float_double": (0.1, float("-inf")),
    "decimal_decimal": (Decimal("1.1000"), Decimal("-2.5000")),
    "date_timestamp_ntz": (datetime(2024, 1, 1), datetime(1969, 12, 31)),
}


def row(partition: int) -> dict[str, Any]:
    """The values of the partition columns in a partition, as of their new types."""
    return {
        name: _WIDE_VALUES.get(name, _WIDE_VALUES.get(name.split("_")[1], (7, -12)))[partition]
        for name in CHANGES
    }


def texts(partition: int, *, wide: bool) -> dict[str, str | None]:
    """The ``partitionValues`` of a file in a partition, as of the new types or of the old ones."""
    return {
        name: serialize_partition_value(row(partition)[name], new) if wide else old_texts[partition]
        for name, (_, new, old_texts) in CHANGES.items()
    }


def make_table(path: Path) -> DeltaTable:
    """Make the table: the ids 0 and 1 are in the first partition, 2 and 3 in the second."""
    schema = StructType(
        (
            StructField("id", LONG),
            *(StructField(name, old) for name, (old, _, _) in CHANGES.items()),
        )
    )
    properties = {
        "delta.enableTypeWidening": "true",
        "delta.feature.timestampNtz": "supported",
    }
    table = DeltaTable.create(str(path), schema, partition_by=[*CHANGES], properties=properties)
    _append(table, path, wide=False)
    for name, (_, new, _) in CHANGES.items():
        table.alter.change_type(name, new)
    _append(table, path, wide=True)
    return table


def _append(table: DeltaTable, path: Path, *, wide: bool) -> None:
    transaction = table.transaction("WRITE")
    for partition in (FIRST, SECOND):
        id_ = 2 * partition + wide
        name = f"{id_}.parquet"
        pq.write_table(pa.table({"id": pa.array([id_], pa.int64())}), path / name)
        size = (path / name).stat().st_size
        stats = '{"numRecords": 1}'
        values = texts(partition, wide=wide)
        transaction.add_file(AddFile(name, values, size, 1, data_change=True, stats=stats))
    transaction.commit()
