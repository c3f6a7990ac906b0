"""The schema of a table from those of its files, and what their footers say about rows."""

from __future__ import annotations

import decimal
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import (
    DataFileError,
    DeltaError,
    InvalidTableError,
    UnsupportedFeatureError,
)
from airflow_delta.engine.parquet.thrift import BINARY, ThriftStruct
from tests.engine.maintenance.convert.parquet_folders import adds_of, write_parquet
from tests.engine.parquet.files import with_footer

SPARK = "org.apache.spark.sql.parquet.row.metadata"


def converted(folder: Path, **files: Any) -> dict[str, str]:
    """The types of the columns of a table of files."""
    for name, columns in files.items():
        write_parquet(folder / f"{name}.parquet", columns)
    DeltaTable.convert(folder)
    return {field.name: str(field.data_type) for field in DeltaTable(folder).snapshot().schema}


def one(value: Any, type_: pa.DataType) -> pa.Array:
    return pa.array([value], type_)


def test_every_type_has_its_own(tmp_path: Path) -> None:
    columns = {
        "flag": one(True, pa.bool_()),
        "i8": one(1, pa.int8()),
        "i16": one(1, pa.int16()),
        "i32": one(1, pa.int32()),
        "i64": one(1, pa.int64()),
        "f32": one(1.5, pa.float32()),
        "f64": one(1.5, pa.float64()),
        "day": one(1, pa.date32()),
        "text": one("é", pa.large_string()),
        "coded": one("é", pa.string()).dictionary_encode(),
        "raw": one(b"\xff", pa.binary()),
        "fixed": one(b"\xff\x00", pa.binary(2)),
        "small": one(decimal.Decimal("1.10"), pa.decimal128(5, 2)),
        "wide": one(decimal.Decimal("1.1"), pa.decimal128(38, 10)),
        "at": one(1, pa.timestamp("us", "Europe/Berlin")),
        "wall": one(1, pa.timestamp("us")),
        "coarse": one(1, pa.timestamp("ms", "UTC")),
        "list": one([1], pa.large_list(pa.int32())),
        "map": one([("k", {"x": 1})], pa.map_(pa.string(), pa.struct([("x", pa.int64())]))),
        "struct": one({"a": {"b": 1}}, pa.struct([("a", pa.struct([("b", pa.int64())]))])),
    }
    found = converted(tmp_path, one=columns)
    assert list(found) == list(columns)
    assert [found[name] for name in ("flag", "i8", "i16", "i32", "i64", "f32", "f64", "day")] == [
        "boolean",
        "byte",
        "short",
        "integer",
        "long",
        "float",
        "double",
        "date",
    ]
    assert (found["text"], found["coded"], found["raw"]) == ("string", "string", "binary")
    assert (found["small"], found["wide"]) == ("decimal(5,2)", "decimal(38,10)")
    assert (found["at"], found["wall"], found["coarse"]) == (
        "timestamp",
        "timestamp_ntz",
        "timestamp",
    )
    read = DeltaTable(tmp_path).snapshot().to_arrow()
    assert (found["fixed"], read["fixed"].to_pylist()) == ("binary", [b"\xff\x00"])
    assert read["wide"].to_pylist() == [decimal.Decimal("1.1")]
    assert read["struct"].to_pylist() == [{"a": {"b": 1}}]
    assert read["map"].to_pylist() == [[("k", {"x": 1})]]
    assert read["coarse"].cast(pa.int64()).to_pylist() == [1000]
    assert all(field.nullable for field in DeltaTable(tmp_path).snapshot().schema)


def test_int96_is_a_timestamp(tmp_path: Path) -> None:
    at = pa.array([1_700_000_000_000_000], pa.timestamp("us"))
    write_parquet(
        tmp_path / "0.parquet", {"at": at, "id": [1]}, use_deprecated_int96_timestamps=True
    )
    assert converted(tmp_path) == {"at": "timestamp", "id": "long"}
    (add,) = adds_of(tmp_path).values()
    assert list(add["stats"]["minValues"]) == ["id"]
    assert DeltaTable(tmp_path).snapshot().to_arrow()["at"].cast(pa.int64()).to_pylist() == [
        1_700_000_000_000_000
    ]


@pytest.mark.parametrize(
    ("column", "named"),
    [
        (one(1, pa.uint32()), "uint32"),
        (one(1, pa.timestamp("ns")), "in nanoseconds"),
        (one(1, pa.time64("us")), r"time64\[us\]"),
        (one(1, pa.duration("us")), "duration"),
        (one(1.0, pa.float16()), "halffloat"),
        (one(None, pa.null()), "null"),
        (one(decimal.Decimal(1), pa.decimal256(50, 0)), "decimal256"),
        (one([{"x": 1}], pa.list_(pa.struct([("x", pa.uint8())]))), "'c.element.x'"),
    ],
)
def test_types_that_tables_lack_are_named(tmp_path: Path, column: pa.Array, named: str) -> None:
    write_parquet(tmp_path / "0.parquet", {"c": column})
    with pytest.raises(UnsupportedFeatureError, match=rf"'0\.parquet'.*{named}"):
        DeltaTable.convert(tmp_path)


@pytest.mark.parametrize("depth", [60, 70, 400])
def test_a_deeply_nested_column_is_converted_or_refused(tmp_path: Path, depth: int) -> None:
    type_: pa.DataType = pa.int64()
    for _ in range(depth):
        type_ = pa.struct([("x", type_)])
    write_parquet(tmp_path / "0.parquet", pa.table({"c": pa.nulls(1, type_)}))
    if depth == 60:
        assert DeltaTable.convert(tmp_path).version == 0
        assert DeltaTable(tmp_path).snapshot().schema.names == ("c",)
        return
    # Arrow itself refuses the deeper one.
    kind = UnsupportedFeatureError if depth == 70 else DataFileError
    with pytest.raises(kind, match="nested"):
        DeltaTable.convert(tmp_path)


@pytest.mark.parametrize("kind", ["interval day to second", "variant", {"type": "udt"}])
def test_what_spark_means_by_other_types_is_refused(tmp_path: Path, kind: Any) -> None:
    field = {"name": "c", "type": kind, "nullable": True, "metadata": {}}
    spark = json.dumps({"type": "struct", "fields": [field]})
    write_parquet(
        tmp_path / "0.parquet", pa.table({"c": [1]}).replace_schema_metadata({SPARK: spark})
    )
    with pytest.raises(UnsupportedFeatureError, match=r"'0\.parquet'"):
        DeltaTable.convert(tmp_path)


def test_columns_of_all_files_are_merged(tmp_path: Path) -> None:
    found = converted(
        tmp_path,
        a={"id": one(1, pa.int8()), "s": one({"x": 1}, pa.struct([("x", pa.int64())]))},
        b={"s": one({"y": "b", "x": 2}, pa.struct([("y", pa.string()), ("x", pa.int64())]))},
        c={"extra": ["c"], "id": one(300, pa.int16())},
    )
    assert list(found) == ["id", "s", "extra"]
    assert found["id"] == "short"
    rows = DeltaTable(tmp_path).snapshot().to_arrow().to_pylist()
    assert sorted(rows, key=str) == sorted(
        [
            {"id": 1, "s": {"x": 1, "y": None}, "extra": None},
            {"id": None, "s": {"x": 2, "y": "b"}, "extra": None},
            {"id": 300, "s": None, "extra": "c"},
        ],
        key=str,
    )


@pytest.mark.parametrize(
    ("first", "second", "named"),
    [
        (
            one(1, pa.int32()),
            one(1, pa.int64()),
            "'c' is of the type integer in the file 'a.parquet'",
        ),
        (one(1, pa.int64()), one("x", pa.string()), "of the type string in 'b.parquet'"),
        (
            one(decimal.Decimal(1), pa.decimal128(5, 1)),
            one(decimal.Decimal(1), pa.decimal128(6, 1)),
            r"decimal\(6,1\)",
        ),
        (one([1], pa.list_(pa.int64())), one(["x"], pa.list_(pa.string())), "'c.element'"),
        (
            one({"x": [{"y": 1}]}, pa.struct([("x", pa.list_(pa.struct([("y", pa.int64())])))])),
            one(
                {"x": [{"y": 1.5}]}, pa.struct([("x", pa.list_(pa.struct([("y", pa.float64())])))])
            ),
            "'c.x.element.y' is of the type long",
        ),
        (one({"x": 1}, pa.struct([("x", pa.int64())])), one(1, pa.int64()), "'c'"),
    ],
)
def test_other_types_of_a_column_are_named_with_both_files(
    tmp_path: Path, first: pa.Array, second: pa.Array, named: str
) -> None:
    with pytest.raises(InvalidTableError, match=named) as failed:
        converted(tmp_path, a={"c": first}, b={"c": second})
    assert failed.value.path == "b.parquet"
    assert "'a.parquet'" in str(failed.value)


def test_names_that_only_differ_in_case_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidTableError, match=r"'a\.parquet' is called 'ID' in 'b\.parquet'"):
        converted(tmp_path / "files", a={"id": [1]}, b={"ID": [1]})
    with pytest.raises(InvalidTableError, match=r"'a\.parquet'"):
        converted(tmp_path / "file", a={"id": [1], "Id": [2]})
    with pytest.raises(DeltaError, match="column"):
        converted(tmp_path / "name", a={"a b": [1]})


def test_names_that_need_column_mapping_are_refused_with_what_helps(tmp_path: Path) -> None:
    write_parquet(tmp_path / "p=1" / "0.parquet", {"Order ID": [1], "s": [{"a=b": 1}]})
    with pytest.raises(InvalidTableError, match="write the files anew") as failed:
        DeltaTable.convert(tmp_path, {"p": "long"})
    assert failed.value.columns == ("Order ID", "s.a=b")
    assert "set delta.columnMapping" not in str(failed.value)


def test_a_partition_column_that_files_hold_may_have_any_name(tmp_path: Path) -> None:
    write_parquet(tmp_path / "Order ID=1" / "0.parquet", {"Order ID": [1], "n": [2]})
    DeltaTable.convert(tmp_path, {"Order ID": "long"})
    assert DeltaTable(tmp_path).snapshot().to_arrow().to_pylist() == [{"Order ID": 1, "n": 2}]


def test_bounds_are_those_that_readers_may_rely_on(tmp_path: Path) -> None:
    columns = {
        "id": one(5, pa.int64()),
        # Arrow leaves NaN out of its bounds, and for Spark it is the greatest value.
        "f": one(float("nan"), pa.float64()),
        "coarse": one(1, pa.timestamp("ms", "UTC")),
        "at": one(-1, pa.timestamp("us", "UTC")),
        "s": one({"x": None}, pa.struct([("x", pa.int32())])),
    }
    converted(tmp_path, a=columns)
    (add,) = adds_of(tmp_path).values()
    assert add["stats"] == {
        "numRecords": 1,
        "minValues": {"id": 5, "at": "1969-12-31T23:59:59.999Z"},
        "maxValues": {"id": 5, "at": "1969-12-31T23:59:59.999Z"},
        "nullCount": {"id": 0, "f": 0, "coarse": 0, "at": 0, "s": {"x": 1}},
    }


def test_the_first_columns_of_the_table_have_statistics(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", {"x": [1], "y": [2]})
    write_parquet(tmp_path / "b.parquet", {"z": [3], "y": [4], "x": [5]})
    DeltaTable.convert(tmp_path, properties={"delta.dataSkippingNumIndexedCols": "2"})
    adds = adds_of(tmp_path)
    assert adds["a.parquet"]["stats"]["minValues"] == {"x": 1, "y": 2}
    assert adds["b.parquet"]["stats"]["minValues"] == {"x": 5, "y": 4}


@pytest.mark.parametrize(
    ("writer", "has_bounds"),
    [
        ("parquet-mr version 1.8.2 (build abc)", False),
        ("parquet-mr version 1.10.0 (build abc)", True),
        ("parquet-mr version 1.13.1", True),
        ("parquet-mr", False),
        ("parquet-cpp-arrow version 21.0.0", False),
    ],
)
def test_bounds_of_floats_are_those_of_writers_that_know_nan(
    tmp_path: Path, writer: str, has_bounds: bool
) -> None:
    buffer = io.BytesIO()
    pq.write_table(pa.table({"d": [1.5, 2.5]}), buffer)

    def sign(footer: ThriftStruct) -> None:
        footer.fields[6] = (BINARY, writer.encode())

    (tmp_path / "a.parquet").write_bytes(with_footer(buffer.getvalue(), sign))
    DeltaTable.convert(str(tmp_path))
    statistics = json.loads(DeltaTable(str(tmp_path)).snapshot().files()["stats"][0].as_py())
    assert statistics["maxValues"] == ({"d": 2.5} if has_bounds else {})
