"""A data file of one row, for any table of the tests, written as the table's features want it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_delta.engine import AddFile, Snapshot
from airflow_delta.engine.features.column_mapping import field_id, mapping_mode, physical_name
from airflow_delta.engine.features.nested_ids import NESTED_IDS
from airflow_delta.engine.features.protocol import supported_features
from airflow_delta.engine.model.schema import (
    INTEGER,
    LONG,
    STRING,
    TIMESTAMP_NTZ,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
)

__all__ = ["row_of", "write_row"]

# What a simple column is in Arrow, and what the row has there.
_SIMPLE: dict[DataType, tuple[pa.DataType, Any]] = {
    LONG: (pa.int64(), 7),
    INTEGER: (pa.int32(), 7),
    STRING: (pa.string(), "z"),
    TIMESTAMP_NTZ: (pa.timestamp("us"), datetime(2026, 1, 2)),
}
_GENERATED = {"id + 1": 8}


def row_of(schema: StructType, mode: str = "none") -> dict[str, Any]:
    """The row, by the names that a mode of column mapping gives the columns."""
    return {
        physical_name(field, mode): _GENERATED.get(
            field.metadata.get("delta.generationExpression", ""), _value(field.data_type, mode)
        )
        for field in schema
    }


def write_row(root: Path, snapshot: Snapshot) -> AddFile:
    """Write the file, with statistics of its simple columns."""
    mode = mapping_mode(snapshot.protocol, snapshot.metadata, table=str(root))
    schema, row = snapshot.schema, row_of(snapshot.schema, mode)
    partition = {
        physical_name(field, mode)
        for field in schema
        if field.name in snapshot.metadata.partition_columns
    }
    in_log_alone = set() if _is_for_iceberg(snapshot) else partition
    fields = [_field(field, mode) for field in schema]
    columns = pa.schema([field for field in fields if field.name not in in_log_alone])
    file = root / "ours.parquet"
    pq.write_table(pa.Table.from_pylist([row], columns), file)

    simple = (name for name in row if isinstance(row[name], (int, str)))
    bounds = {name: row[name] for name in simple if name not in partition}
    stats = {
        "numRecords": 1,
        "minValues": bounds,
        "maxValues": bounds,
        "nullCount": dict.fromkeys(bounds, 0),
    }
    return AddFile(
        file.name,
        {name: str(row[name]) for name in partition},
        file.stat().st_size,
        1,
        data_change=True,
        stats=json.dumps(stats),
    )


def _is_for_iceberg(snapshot: Snapshot) -> bool:
    return any(name.startswith("icebergCompat") for name in supported_features(snapshot.protocol))


def _value(data_type: DataType, mode: str) -> Any:
    match data_type:
        case StructType():
            return row_of(data_type, mode)
        case ArrayType(element):
            return [_value(element, mode)]
        case MapType(key, item):
            return [(_value(key, mode), _value(item, mode))]
    return _SIMPLE[data_type][1]


def _field(field: StructField, mode: str) -> pa.Field:
    """A column under its physical name, with the ids of all that has one."""
    name, ids = physical_name(field, mode), field.metadata.get(NESTED_IDS, {})
    number = None if mode == "none" else field_id(field)
    return _numbered(name, _type(field.data_type, name, ids, mode), number, nullable=field.nullable)


def _type(data_type: DataType, place: str, ids: Mapping[str, int], mode: str) -> pa.DataType:
    def _part(name: str, inner: DataType, *, nullable: bool = True) -> pa.Field:
        here = f"{place}.{name}"
        return _numbered(name, _type(inner, here, ids, mode), ids.get(here), nullable=nullable)

    match data_type:
        case StructType(fields):
            return pa.struct([_field(field, mode) for field in fields])
        case ArrayType(element):
            return pa.list_(_part("element", element))
        case MapType(key, item):
            return pa.map_(_part("key", key, nullable=False), _part("value", item))
    return _SIMPLE[data_type][0]


def _numbered(name: str, data_type: pa.DataType, number: int | None, *, nullable: bool) -> pa.Field:
    metadata = None if number is None else {"PARQUET:field_id": str(number)}
    return pa.field(name, data_type, nullable, metadata)
