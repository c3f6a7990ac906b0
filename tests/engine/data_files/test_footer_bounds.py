"""Bounds in footers that bound nothing: no row group may be skipped because of them."""

from __future__ import annotations

import io
import json
import struct
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_delta.engine import (
    DOUBLE,
    FLOAT,
    LONG,
    AddFile,
    DeltaTable,
    StructField,
    StructType,
)
from airflow_delta.engine.model.schema import DataType
from airflow_delta.engine.parquet.thrift import BINARY, ThriftStruct
from tests.engine.parquet.files import with_footer

NAN = float("nan")


def with_bounds(column: pa.Array, least: bytes, greatest: bytes) -> bytes:
    """A file of a column ``v``, with these bounds in its footer."""
    buffer = io.BytesIO()
    pq.write_table(pa.table({"v": column}), buffer)

    def change(footer: ThriftStruct) -> None:
        (group,) = footer.list_of(4, 12) or []
        (chunk,) = group.list_of(1, 12) or []
        statistics = chunk.struct(3).struct(12)
        statistics.fields.update({5: (BINARY, greatest), 6: (BINARY, least)})

    return with_footer(buffer.getvalue(), change)


def table_of(root: Path, kind: DataType, data: bytes, num_rows: int) -> DeltaTable:
    """A table of one file, without statistics in the log."""
    table = DeltaTable.create(str(root), StructType((StructField("v", kind),)))
    (root / "a.parquet").write_bytes(data)
    transaction = table.transaction("WRITE")
    stats = json.dumps({"numRecords": num_rows})
    transaction.add_file(AddFile("a.parquet", {}, len(data), 1, data_change=True, stats=stats))
    transaction.commit()
    return table


@pytest.mark.parametrize(
    ("kind", "type_", "form"), [(DOUBLE, pa.float64(), "<d"), (FLOAT, pa.float32(), "<f")]
)
@pytest.mark.parametrize("bounds", [(NAN, NAN), (1.0, NAN), (NAN, 2.0)])
def test_a_bound_that_is_nan_excludes_nothing(
    tmp_path: Path, kind: DataType, type_: pa.DataType, form: str, bounds: tuple[float, float]
) -> None:
    least, greatest = (struct.pack(form, bound) for bound in bounds)
    data = with_bounds(pa.array([NAN, 1.0, 2.0], type_), least, greatest)
    snapshot = table_of(tmp_path, kind, data, 3).snapshot()
    for text, count in (("v < 5", 2), ("v = 1", 1), ("v IN (1, 2)", 2), ("NOT v >= 5", 3)):
        assert snapshot.to_arrow(predicate=text).num_rows == count, text


def test_bounds_in_the_wrong_order_exclude_nothing(tmp_path: Path) -> None:
    data = with_bounds(pa.array([1, 2, 3]), struct.pack("<q", 3), struct.pack("<q", 1))
    snapshot = table_of(tmp_path, LONG, data, 3).snapshot()
    for text, count in (("v < 2", 1), ("v = 2", 1), ("v > 2", 1)):
        assert snapshot.to_arrow(predicate=text).num_rows == count, text
