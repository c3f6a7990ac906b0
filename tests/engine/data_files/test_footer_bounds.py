"""Bounds in footers that bound nothing: no row group may be skipped because of them."""

from __future__ import annotations

import io
import json
import struct
from decimal import Decimal
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
from airflow_delta.engine.data_files.footer_bounds import has_usable_bounds
from airflow_delta.engine.model.schema import DataType, DecimalType
from airflow_delta.engine.parquet.thrift import BINARY, ThriftStruct
from tests.engine.parquet.files import with_footer

NAN = float("nan")


def with_bounds(
    column: pa.Array, least: bytes, greatest: bytes, *, group_rows: int | None = None
) -> bytes:
    """A file of a column ``v``, with these bounds of its last row group in its footer."""
    buffer = io.BytesIO()
    pq.write_table(pa.table({"v": column}), buffer, row_group_size=group_rows)

    def change(footer: ThriftStruct) -> None:
        *_, group = footer.list_of(4, 12) or []
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


def test_bounds_in_the_wrong_order_become_no_statistics(tmp_path: Path) -> None:
    bounds = struct.pack("<q", 9), struct.pack("<q", 6)
    data = with_bounds(pa.array([1, 2, 5, 6, 8, 9]), *bounds, group_rows=3)
    (tmp_path / "a.parquet").write_bytes(data)
    DeltaTable.convert(tmp_path)
    snapshot = DeltaTable(tmp_path).snapshot()
    assert snapshot.to_arrow(predicate="v = 8").num_rows == 1
    assert json.loads(snapshot.files()["stats"][0].as_py()) == {
        "numRecords": 6,
        "minValues": {},
        "maxValues": {},
        "nullCount": {"v": 0},
    }


DECIMALS = [Decimal(number) for number in range(1, 301)]


def of_old_writer(type_: pa.DataType, created_by: str | None) -> bytes:
    """A file of `DECIMALS` with bounds in the order of signed bytes, which isn't that of the numbers."""
    stored = sorted(
        (number.to_bytes(9, "big") for number in range(1, 301)),
        key=lambda data: [byte - 256 if byte > 127 else byte for byte in data],
    )
    assert [int.from_bytes(stored[at], "big") for at in (0, -1)] == [128, 300]

    def change(footer: ThriftStruct) -> None:
        (group,) = footer.list_of(4, 12) or []
        (chunk,) = group.list_of(1, 12) or []
        # The deprecated fields, no LogicalType, and no ColumnOrder: old writers knew no others.
        for element in footer.list_of(2, 12) or []:
            element.fields.pop(10, None)
        statistics = chunk.struct(3).struct(12)
        bounds = {1: (BINARY, stored[-1]), 2: (BINARY, stored[0])}
        statistics.fields = {**bounds, 3: statistics.fields[3]}
        footer.fields = {number: field for number, field in footer.fields.items() if number < 6}
        if created_by is not None:
            footer.fields[6] = (BINARY, created_by.encode())

    buffer = io.BytesIO()
    pq.write_table(pa.table({"v": pa.array(DECIMALS, type_)}), buffer)
    return with_footer(buffer.getvalue(), change)


OLD_WRITERS = [
    "parquet-mr version 1.8.2 (build abc)",
    "parquet-mr (build abc)",
    "parquet-cpp version 1.2.0",
    None,
]


@pytest.mark.parametrize("created_by", OLD_WRITERS)
def test_bounds_of_decimals_in_the_order_of_bytes_exclude_nothing(
    tmp_path: Path, created_by: str | None
) -> None:
    data = of_old_writer(pa.decimal128(20, 0), created_by)
    table = table_of(tmp_path / "scanned", DecimalType(20, 0), data, 300)
    assert table.snapshot().to_arrow(predicate="v = 5").num_rows == 1
    (tmp_path / "converted").mkdir()
    (tmp_path / "converted" / "a.parquet").write_bytes(data)
    DeltaTable.convert(tmp_path / "converted")
    converted = DeltaTable(tmp_path / "converted").snapshot()
    assert converted.to_arrow(predicate="v = 5").num_rows == 1
    assert json.loads(converted.files()["stats"][0].as_py()) == {
        "numRecords": 300,
        "minValues": {},
        "maxValues": {},
        "nullCount": {"v": 0},
    }


@pytest.mark.parametrize(
    ("type_", "created_by", "expected"),
    [
        (pa.decimal128(20, 0), "parquet-mr version 1.10.0 (build abc)", True),
        (pa.decimal128(20, 0), "parquet-mr version 1.13.1", True),
        (pa.decimal128(20, 0), "parquet-cpp version 1.5.1-SNAPSHOT", True),
        (pa.decimal128(20, 0), "parquet-cpp-arrow version 21.0.0", True),
        (pa.decimal128(20, 0), "delta-rs version py-1.6.6", True),
        (
            pa.decimal128(20, 0),
            "parquet-mr compatible Photon version 0.1.1 (build abc version 1.2)",
            True,
        ),
        (pa.decimal128(20, 0), "parquet-mr", False),
        (pa.decimal128(20, 0), "parquet-mr version unknown", False),
        *((pa.decimal128(20, 0), writer, False) for writer in OLD_WRITERS),
        *((pa.int64(), writer, True) for writer in OLD_WRITERS),
        *((pa.binary(), writer, True) for writer in OLD_WRITERS),
    ],
)
def test_only_old_writers_ordered_decimals_by_bytes(
    type_: pa.DataType, created_by: str | None, expected: bool
) -> None:
    buffer = io.BytesIO()
    pq.write_table(pa.table({"v": pa.nulls(1, type_)}), buffer)

    def sign(footer: ThriftStruct) -> None:
        footer.fields.pop(6)
        if created_by is not None:
            footer.fields[6] = (BINARY, created_by.encode())
        footer.fields = dict(sorted(footer.fields.items()))

    footer = pq.read_metadata(io.BytesIO(with_footer(buffer.getvalue(), sign)))
    assert has_usable_bounds(footer, 0) is expected
