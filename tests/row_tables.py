"""Random tables with data files, whose rows are known as Python values.

A table has every type of column, and files in the forms in which the writers of the field leave them: older
files without later columns and with narrower types, large strings, dictionaries, INT96, several row groups,
deletion vectors. The log is written by one transaction for each few files; the rows are the model's, which
reads no file.
"""

from __future__ import annotations

import datetime as dt
import json
import random
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from airflow_delta.engine import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INTEGER,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    AddFile,
    ArrayType,
    DecimalType,
    DeltaTable,
    MapType,
    StructField,
    StructType,
)
from airflow_delta.engine.deletion_vectors.write import write_deletion_vectors
from airflow_delta.engine.features.column_mapping import field_id, mapping_mode, physical_name
from airflow_delta.engine.model.schema import DataType

__all__ = ["RowTable", "bag", "random_table"]

Row = Mapping[str, Any]

INNER = StructType((StructField("x", LONG), StructField("y.z", STRING)))
SCHEMA = StructType(
    (
        StructField("id", LONG),
        StructField("n", LONG),
        StructField("price", DecimalType(12, 3)),
        StructField("d", DOUBLE),
        StructField("text", STRING),
        StructField("ok", BOOLEAN),
        StructField("raw", BINARY),
        StructField("day", DATE),
        StructField("at", TIMESTAMP),
        StructField("wall", TIMESTAMP_NTZ),
        StructField("s", INNER),
        StructField("list", ArrayType(INNER)),
        StructField("map", MapType(STRING, LONG)),
        # Arrow takes this name for that of a part of the column before, too.
        StructField("s.x", STRING),
        StructField("added", STRING),
        StructField("p", STRING),
        StructField("q", INTEGER),
    )
)
NARROW: dict[str, pa.DataType] = {
    "n": pa.int16(),
    "price": pa.decimal128(9, 2),
    "d": pa.float32(),
}
FEATURES = {
    "delta.enableDeletionVectors": "true",
    "delta.enableTypeWidening": "true",
}


@dataclass
class RowTable:
    """A table and its rows.

    Attributes:
        path: where it is.
        rows: the rows, each with ``_row_id`` and ``_row_commit_version`` if the table tracks rows.
    """

    path: Path
    rows: list[dict[str, Any]] = field(default_factory=list)

    @property
    def table(self) -> DeltaTable:
        """The table."""
        return DeltaTable(str(self.path))


def bag(rows: Iterable[Row], columns: Iterable[str] | None = None) -> Counter[str]:
    """Rows as a multiset, comparable."""
    return Counter(
        json.dumps({k: _text(v) for k, v in row.items() if columns is None or k in columns})
        for row in rows
    )


def random_table(
    path: Path,
    seed: int,
    *,
    mode: str = "none",
    partition_by: tuple[str, ...] = (),
    tracked: bool = False,
    cluster_by: tuple[str, ...] = (),
    num_files: int = 6,
    max_rows: int = 40,
    properties: Mapping[str, str] | None = None,
) -> RowTable:
    """Write a random table."""
    chosen = random.Random(seed)
    told = {**FEATURES, "delta.columnMapping.mode": mode, **(properties or {})}
    if tracked:
        told["delta.enableRowTracking"] = "true"
    if mode == "none":
        del told["delta.columnMapping.mode"]
    DeltaTable.create(
        str(path), SCHEMA, partition_by=partition_by, cluster_by=cluster_by, properties=told
    )
    made = RowTable(path)
    left = num_files
    while left:
        count = min(left, chosen.randint(1, 3))
        _append(made, chosen, count, max_rows, partition_by)
        left -= count
    return made


def _append(
    made: RowTable, chosen: random.Random, count: int, max_rows: int, partition_by: tuple[str, ...]
) -> None:
    table = made.table
    transaction = table.transaction("WRITE", enforces=["rowTracking"])
    base = transaction.base
    mode = mapping_mode(base.protocol, base.metadata, table=base.table)
    files = [
        _file(made.path, base.schema, mode, chosen, chosen.randint(1, max_rows), partition_by)
        for _ in range(count)
    ]
    vectors = [BitMap64(file.deleted) for file in files if file.deleted]
    descriptors = iter(write_deletion_vectors(table.storage, vectors)[0])
    for each in files:
        vector = next(descriptors) if each.deleted else None
        transaction.add_file(
            AddFile(
                path=each.name,
                partition_values=each.partition,
                size=(made.path / each.name).stat().st_size,
                modification_time=1,
                data_change=True,
                stats=each.stats,
                deletion_vector=vector,
            )
        )
    version = transaction.commit().version
    tracked = table.snapshot().row_tracking
    adds = {add["path"]: add for add in table.snapshot().files().to_pylist()}
    for each in files:
        base_id = adds[each.name]["baseRowId"]
        for position, row in enumerate(each.rows):
            if position in each.deleted:
                continue
            ids = (
                {"_row_id": base_id + position, "_row_commit_version": version}
                if tracked is not None and tracked.enabled
                else {}
            )
            made.rows.append({**row, **ids})


@dataclass
class _File:
    name: str
    rows: list[dict[str, Any]]
    partition: dict[str, str | None]
    deleted: set[int]
    stats: str


def _file(
    root: Path,
    schema: StructType,
    mode: str,
    chosen: random.Random,
    num_rows: int,
    partition_by: tuple[str, ...],
) -> _File:
    narrow = chosen.random() < 0.4
    old = chosen.random() < 0.3
    rows = [_row(chosen, narrow=narrow) for _ in range(num_rows)]
    shared = {"p": chosen.choice(["a", "b c", "ü=/%", None]), "q": chosen.choice([1, -2, None])}
    for row in rows:
        row.update({name: shared[name] for name in partition_by})
        if old:
            row["added"] = None
    stored = [f for f in schema if f.name not in partition_by and not (old and f.name == "added")]
    chosen.shuffle(stored)
    fields, columns = [], []
    for each in stored:
        type_ = NARROW.get(each.name) if narrow else None
        arrow = _stored_field(each, mode, chosen, type_)
        values = [_stored(row[each.name], each.data_type, mode) for row in rows]
        fields.append(arrow)
        columns.append(pa.array(values, arrow.type))
    if mode != "id" and chosen.random() < 0.3:  # What the table has dropped.
        fields.append(pa.field("dropped", pa.int32()))
        columns.append(pa.array([1] * num_rows, pa.int32()))
    written = pa.Table.from_arrays(columns, schema=pa.schema(fields))
    name = f"part-{chosen.getrandbits(64):016x}.parquet"
    pq.write_table(
        written,
        root / name,
        row_group_size=chosen.choice([3, 10, 1000]),
        compression=chosen.choice(["snappy", "zstd", "none"]),
        store_schema=chosen.random() < 0.5,
        use_deprecated_int96_timestamps=chosen.random() < 0.3,
        use_dictionary=chosen.random() < 0.5,
        data_page_size=chosen.choice([64, 1 << 20]),
        write_page_checksum=chosen.random() < 0.5,
    )
    by_name = {f.name: f for f in schema}
    deleted: set[int] = set()
    if chosen.random() < 0.4:
        deleted = {n for n in range(num_rows) if chosen.random() < 0.3}
    return _File(
        name,
        rows,
        {
            physical_name(by_name[name], mode): None if shared[name] is None else str(shared[name])
            for name in partition_by
        },
        deleted,
        json.dumps(_statistics(rows, by_name, mode, is_tight=not deleted)),
    )


def _statistics(
    rows: list[dict[str, Any]], fields: Mapping[str, StructField], mode: str, *, is_tight: bool
) -> dict[str, Any]:
    bounds: dict[str, dict[str, Any]] = {"minValues": {}, "maxValues": {}}
    nulls = {}
    for name in ("id", "n", "text", "day", "price"):
        physical = physical_name(fields[name], mode)
        values = [row[name] for row in rows if row[name] is not None]
        nulls[physical] = len(rows) - len(values)
        if values:
            bounds["minValues"][physical] = _json(min(values))
            bounds["maxValues"][physical] = _json(max(values))
    return {"numRecords": len(rows), **bounds, "nullCount": nulls, "tightBounds": is_tight}


def _json(value: Any) -> Any:
    if isinstance(value, dt.date):
        return value.isoformat()
    return float(value) if isinstance(value, Decimal) else value


def _row(chosen: random.Random, *, narrow: bool) -> dict[str, Any]:
    number = chosen.randint(-1000, 1000)

    def maybe(value: Any) -> Any:
        return None if chosen.random() < 0.15 else value

    inner = {"x": maybe(number), "y.z": maybe(f"é{number}")}
    micro = dt.timedelta(microseconds=chosen.randint(-(10**15), 10**15))
    return {
        "id": chosen.randint(0, 10**6),
        "n": maybe(number if narrow else number * 10**10),
        "price": maybe(Decimal(number) / 4 if narrow else Decimal(number * 10**5 + 1) / 1000),
        "d": maybe(chosen.choice([number / 8, float("nan"), float("inf"), -0.0])),
        "text": maybe(chosen.choice(["", "a", "ü" * 40, f"t{number}"])),
        "ok": maybe(number % 2 == 0),
        "raw": maybe(bytes([number % 256, 0])),
        "day": maybe(dt.date(2020, 1, 1) + dt.timedelta(days=number)),
        "at": maybe(dt.datetime(2000, 1, 1, tzinfo=dt.timezone.utc) + micro),
        "wall": maybe(dt.datetime(2000, 1, 1) + micro),
        "s": maybe(inner),
        "list": maybe([maybe(inner) for _ in range(chosen.randint(0, 3))]),
        "map": maybe([(key, maybe(number)) for key in "ab"[: chosen.randint(0, 2)]]),
        "s.x": maybe(f"dot {number}"),
        "added": maybe(f"new {number % 3}"),
        "p": maybe(chosen.choice("ab")),
        "q": maybe(number % 3),
    }


def _stored_field(
    column: StructField,
    mode: str,
    chosen: random.Random,
    narrow: pa.DataType | None = None,
    *,
    nested: bool = False,
) -> pa.Field:
    type_ = narrow or _stored_type(column.data_type, mode, chosen, nested=nested)
    metadata = {"PARQUET:field_id": str(field_id(column))} if mode != "none" else None
    return pa.field(physical_name(column, mode), type_, metadata=metadata)


def _stored_type(
    data_type: DataType, mode: str, chosen: random.Random, *, nested: bool = False
) -> pa.DataType:
    match data_type:
        case StructType(fields):
            return pa.struct([_stored_field(each, mode, chosen, nested=True) for each in fields])
        case ArrayType(element):
            make = chosen.choice([pa.list_, pa.large_list])
            return make(_stored_type(element, mode, chosen, nested=True))
        case MapType(key, value):
            inner = (_stored_type(each, mode, chosen, nested=True) for each in (key, value))
            return pa.map_(*inner)
        case DecimalType(precision, scale):
            return pa.decimal128(precision, scale)
    choices: dict[DataType, list[pa.DataType]] = {
        LONG: [pa.int64()],
        INTEGER: [pa.int32()],
        DOUBLE: [pa.float64()],
        # pyarrow writes damaged pages of a dictionary without values inside a list.
        STRING: [pa.string(), pa.large_string()]
        + ([] if nested else [pa.dictionary(pa.int32(), pa.string())]),
        BOOLEAN: [pa.bool_()],
        BINARY: [pa.binary(), pa.large_binary()],
        DATE: [pa.date32()],
        TIMESTAMP: [pa.timestamp("us", "UTC"), pa.timestamp("us", "Europe/Berlin")],
        TIMESTAMP_NTZ: [pa.timestamp("us")],
    }
    return chosen.choice(choices[data_type])


def _stored(value: Any, data_type: DataType, mode: str) -> Any:
    """A value with the names that files have."""
    if value is None:
        return None
    if isinstance(data_type, StructType):
        return {
            physical_name(each, mode): _stored(value[each.name], each.data_type, mode)
            for each in data_type
        }
    if isinstance(data_type, ArrayType):
        return [_stored(item, data_type.element_type, mode) for item in value]
    return value


def _text(value: Any) -> Any:
    """A value as JSON, the same for equal values alone."""
    match value:
        case float():
            return repr(value)
        case Decimal():
            return str(value.normalize())
        case dt.datetime():
            return (
                value.astimezone(dt.timezone.utc).isoformat() if value.tzinfo else value.isoformat()
            )
        case dt.date():
            return value.isoformat()
        case bytes():
            return value.hex()
        case dict():
            return {key: _text(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_text(inner) for inner in value]
    return value
