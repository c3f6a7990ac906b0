from __future__ import annotations

import datetime as dt
import io
import json
import math
import random
from collections.abc import Callable
from decimal import Decimal, localcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import from_arrow_schema

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.data_files.footer_statistics import (
    file_statistics,
    indexed_columns,
    longer_prefix,
)
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.model.schema_json import parse_schema
from airflow_delta.spark import write
from tests.deep import deep_but_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("compiled")

LAST = "\U0010ffff"
_EPOCH_DAY = dt.date(1970, 1, 1)
_EPOCH = dt.datetime(1970, 1, 1)
_MOST_DAY = (dt.date.max - _EPOCH_DAY).days
_LEAST_DAY = (dt.date.min - _EPOCH_DAY).days
_DAY_MICROS = 86_400_000_000

TYPES: dict[str, pa.DataType] = {
    "num8": pa.int8(),
    "num16": pa.int16(),
    "num32": pa.int32(),
    "num64": pa.int64(),
    "f": pa.float32(),
    "d": pa.float64(),
    "dec2": pa.decimal128(9, 2),
    "dec6": pa.decimal128(18, 6),
    "dec0": pa.decimal128(38, 0),
    "dec18": pa.decimal128(38, 18),
    "dec38": pa.decimal128(38, 38),
    "name": pa.string(),
    "flag": pa.bool_(),
    "bin": pa.binary(),
    "day": pa.date32(),
    "ts": pa.timestamp("us", "UTC"),
    "ntz": pa.timestamp("us"),
}


def random_value(rng: random.Random, type_: pa.DataType, *, is_odd: bool) -> Any:
    """Any value of a type; times are numbers. Odd ones have no bounds in JSON, or none of Python's."""
    if pa.types.is_integer(type_):
        most = (1 << (type_.bit_width - 1)) - 1
        return rng.choice([rng.randint(-most - 1, most), most, -most - 1, 0])
    if pa.types.is_floating(type_):
        odd = [math.nan, math.inf, -math.inf] if is_odd else []
        return rng.choice([-0.0, 0.0, rng.randint(-9, 9) / 2, 2.0**127, -(2.0**-149), *odd])
    if pa.types.is_decimal(type_):
        # From text, which alone is exact: what Python computes with decimals it rounds to 28 digits.
        most = 10**type_.precision - 1
        return Decimal(f"{rng.choice([rng.randint(-most, most), most, -most])}e-{type_.scale}")
    if pa.types.is_string(type_):
        length = rng.choice([0, 5, 31, 32, 33, 40, 70])
        return "".join(rng.choice("aé😀\x7f~\ud7ff\ue000\uffff" + LAST) for _ in range(length))
    if pa.types.is_boolean(type_):
        return rng.random() < 0.5
    if pa.types.is_binary(type_):
        return rng.randbytes(3)
    # Some before 1582, when most calendars changed.
    day = rng.choice([rng.randint(_LEAST_DAY, _MOST_DAY), rng.randint(-150_000, -140_000)])
    if is_odd and rng.random() < 0.3:
        day = rng.choice([_MOST_DAY + 400, _LEAST_DAY - 400])
    return day if pa.types.is_date(type_) else day * _DAY_MICROS + rng.randint(0, _DAY_MICROS - 1)


def random_file(rng: random.Random, *, is_odd: bool) -> pa.Table:
    """Rows of every type, also in a struct; about a fifth of all values are null."""

    def column(type_: pa.DataType) -> pa.Array:
        values = [
            None if rng.random() < 0.2 else random_value(rng, type_, is_odd=is_odd)
            for _ in range(rows)
        ]
        number = pa.int32() if pa.types.is_date(type_) else pa.int64()
        is_time = pa.types.is_temporal(type_)
        return pa.array(values, number).cast(type_) if is_time else pa.array(values, type_)

    rows = 14
    columns = {name: column(type_) for name, type_ in TYPES.items()}
    nulls = pa.array([rng.random() < 0.2 for _ in range(rows)])
    inner = pa.StructArray.from_arrays([column(t) for t in TYPES.values()], [*TYPES], mask=nulls)
    lists = pa.array([[1, 2]] * rows, pa.list_(pa.int32()))
    return pa.table({**columns, "st": inner, "arr": lists})


def scanned(data: pa.Table) -> dict[tuple[str, ...], tuple[pa.DataType, list[Any]]]:
    """The types and values of the columns of a file; times are numbers."""
    found: dict[tuple[str, ...], tuple[pa.DataType, list[Any]]] = {}
    for name, type_ in TYPES.items():
        for path, column in (
            ((name,), data[name]),
            (("st", name), pa.compute.struct_field(data["st"], name)),
        ):
            if pa.types.is_temporal(type_):
                column = column.cast(pa.int32() if pa.types.is_date(type_) else pa.int64())
            found[path] = (type_, column.to_pylist())
    return found


def at(stats: dict[str, Any], path: tuple[str, ...]) -> Any:
    for name in path:
        stats = stats.get(name, {})
    return stats if stats != {} else None


def has_bounds(type_: pa.DataType, values: list[Any]) -> bool:
    if not values or pa.types.is_boolean(type_) or pa.types.is_binary(type_):
        return False
    if pa.types.is_floating(type_):
        return all(map(math.isfinite, values))
    if pa.types.is_string(type_):
        return longer_prefix(max(values)) is not None
    if pa.types.is_temporal(type_):
        day = 1 if pa.types.is_date(type_) else _DAY_MICROS
        return all(_LEAST_DAY <= value // day <= _MOST_DAY for value in values)
    return True


def check_bounds(type_: pa.DataType, values: list[Any], low: Any, high: Any) -> None:
    """Bounds of a column against all its values, by what the protocol says of them."""
    least, greatest = min(values), max(values)
    if isinstance(least, str):
        assert least.startswith(low)
        assert len(low) == min(len(least), 32)
        assert high.encode() >= greatest.encode()
        assert (high == greatest) if len(greatest) <= 32 else len(high) <= 65
    elif pa.types.is_date(type_):
        days = [(dt.date.fromisoformat(text) - _EPOCH_DAY).days for text in (low, high)]
        assert days == [least, greatest]
    elif pa.types.is_timestamp(type_):
        for text, micros in ((low, least), (high, greatest)):
            assert text.endswith("Z") == (type_.tz is not None)
            assert len(text.rstrip("Z")) == len("2024-01-01T00:00:00.000")
            time = dt.datetime.fromisoformat(text.rstrip("Z")) - _EPOCH
            assert time // dt.timedelta(milliseconds=1) == micros // 1000
    else:
        assert (type(least)(low), type(least)(high)) == (least, greatest)


@pytest.mark.parametrize("seed", deep_but_for(range(20), 0))
def test_statistics_hold_against_a_scan_of_each_file(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    properties = {"delta.dataSkippingNumIndexedCols": "-1"}
    for is_odd in (False, True):
        table = random_file(rng, is_odd=is_odd)
        rows = spark.createDataFrame(table, from_arrow_schema(table.schema)).coalesce(1)
        write(rows.selectExpr("*", "NULL AS nothing"), str(tmp_path), properties=properties)
    adds = DeltaTable(str(tmp_path)).snapshot().files().to_pylist()
    assert len(adds) == 2
    for add in adds:
        data = pq.ParquetFile(tmp_path / add["path"]).read()
        # Numbers as text, so that digits which a float would lose are compared.
        stats = json.loads(add["stats"], parse_float=str, parse_int=str)
        assert int(stats["numRecords"]) == data.num_rows
        assert at(stats["nullCount"], ("arr",)) is at(stats["minValues"], ("arr",)) is None
        for path, (type_, values) in scanned(data).items():
            low, high = at(stats["minValues"], path), at(stats["maxValues"], path)
            assert int(at(stats["nullCount"], path)) == values.count(None), path
            present = [value for value in values if value is not None]
            if has_bounds(type_, present):
                check_bounds(type_, present, low, high)
            else:
                assert low is high is None, path


LONG_TEXTS = {
    "ascii": "repeat('x', 5000)",
    "two_bytes": "concat('a', repeat('\u00e9', 3000))",
    "four_bytes": "repeat('\U0001f600', 2000)",
    # Parquet can't raise it when it truncates it.
    "greatest": f"repeat('{LAST}', 2000)",
}


def test_long_texts_have_statistics(spark: SparkSession, tmp_path: Path) -> None:
    """Parquet leaves out those of 4096 bytes."""
    columns = ", ".join(f"{text} AS {name}" for name, text in LONG_TEXTS.items())
    rows = spark.sql(f"SELECT {columns}, cast(repeat('x', 5000) AS binary) AS bytes")
    for _ in range(2):
        write(rows, str(tmp_path), cluster_by=list(LONG_TEXTS)[:3])
    values = rows.first()
    assert values is not None
    adds = DeltaTable(str(tmp_path)).snapshot().files().to_pylist()
    assert len(adds) == 2
    for add in adds:
        stats = json.loads(add["stats"])
        assert stats["nullCount"] == dict.fromkeys((*LONG_TEXTS, "bytes"), 0)
        assert set(stats["minValues"]) == set(stats["maxValues"]) == {*LONG_TEXTS} - {"greatest"}
        for name in stats["minValues"]:
            low, high = stats["minValues"][name], stats["maxValues"][name]
            check_bounds(pa.string(), [values[name]], low, high)


@settings(max_examples=50, deadline=None)
@given(st.text(alphabet=["a", "~", "\x7f", "é", LAST], min_size=0, max_size=80))
def test_a_raised_prefix_is_short_and_not_less(text: str) -> None:
    raised = longer_prefix(text)
    if raised is None:
        assert set(text[32:64]) == {LAST}
    else:
        assert raised.encode() >= text.encode()
        assert len(raised) <= 65


@pytest.mark.parametrize(
    ("text", "raised"),
    [
        ("a" * 32, "a" * 32),
        ("a" * 33, "a" * 32 + "\x7f"),
        ("a" * 32 + "\x7fb", "a" * 32 + LAST),
        ("a" * 32 + LAST + "bc", "a" * 32 + LAST + "\x7f"),
        ("a" * 32 + LAST, "a" * 32 + LAST),
        (LAST * 70, None),
    ],
)
def test_a_maximum_is_raised_by_as_little_as_will_do(text: str, raised: str | None) -> None:
    assert longer_prefix(text) == raised


def statistics_of(
    table: pa.Table,
    schema: str,
    *,
    properties: dict[str, str] | None = None,
    parse_float: Callable[[str], Any] = float,
    parse_int: Callable[[str], Any] = int,
    **options: Any,
) -> dict[str, Any]:
    """The statistics of a file with one column per ``name type`` of the schema."""
    fields = [
        {"name": n, "type": t, "nullable": True, "metadata": {}}
        for n, t in (part.split() for part in schema.split(", "))
    ]
    stored = parse_schema(json.dumps({"type": "struct", "fields": fields}), "test")
    buffer = io.BytesIO()
    pq.write_table(table, buffer, **options)
    columns = indexed_columns(stored, TableProperties(properties or {}, "test"))
    text = file_statistics(pq.read_metadata(buffer), columns)
    result: dict[str, Any] = json.loads(text, parse_float=parse_float, parse_int=parse_int)
    return result


@st.composite
def decimals(draw: st.DrawFn) -> tuple[int, int, list[int]]:
    """A precision, a scale, and unscaled values."""
    precision = draw(st.integers(1, 38))
    most = 10**precision - 1
    values = st.one_of(st.integers(-most, most), st.sampled_from([-most, most, 0, 1, -1]))
    return precision, draw(st.integers(0, precision)), draw(st.lists(values, min_size=1))


@settings(max_examples=200, deadline=None)
@given(decimals(), st.sampled_from([6, 28, 50]))
def test_bounds_of_decimals_are_exact(case: tuple[int, int, list[int]], precision: int) -> None:
    """Against integers, which know no scale; and whatever the precision of the thread's context is."""
    digits, scale, values = case
    table = pa.table(
        {"d": pa.array([as_decimal(v, scale) for v in values], pa.decimal128(digits, scale))}
    )
    with localcontext() as context:
        context.prec = precision
        stats = statistics_of(table, f"d decimal({digits},{scale})", parse_float=str, parse_int=str)
    told = (unscaled(stats[name]["d"], scale) for name in ("minValues", "maxValues"))
    assert tuple(told) == (min(values), max(values))


def as_decimal(unscaled: int, scale: int) -> Decimal:
    return Decimal(f"{unscaled}e-{scale}")


def unscaled(text: str, scale: int) -> int:
    """A number in JSON without an exponent, as an integer."""
    whole, _, fraction = text.partition(".")
    assert len(fraction) == scale
    return int(whole + fraction)


def test_bounds_span_all_row_groups() -> None:
    table = pa.table({"x": pa.array([5, 1, None, None, 9, 3], pa.int64())})
    assert statistics_of(table, "x long", row_group_size=2) == {
        "numRecords": 6,
        "minValues": {"x": 1},
        "maxValues": {"x": 9},
        "nullCount": {"x": 2},
    }


def test_a_minimum_of_texts_is_cut_and_a_maximum_is_raised() -> None:
    stats = statistics_of(pa.table({"t": ["a" * 33, "k" * 40]}), "t string")
    assert stats["minValues"] == {"t": "a" * 32}
    assert stats["maxValues"] == {"t": "k" * 32 + "\x7f"}


def test_what_the_footer_lacks_is_left_out() -> None:
    table = pa.table({"x": [1, 2], "y": [1, 2]})
    stats = statistics_of(table, "x long, y long", write_statistics=["y"])
    assert (stats["minValues"], stats["maxValues"]) == ({"y": 1}, {"y": 2})
    assert stats["nullCount"] == {"y": 0}


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_floats_that_json_cannot_say_leave_no_bounds(
    spark: SparkSession, tmp_path: Path, bad: float
) -> None:
    rows = spark.createDataFrame([(1.0, 1.0), (bad, 2.0)], "x double, y float").coalesce(1)
    write(rows, str(tmp_path))
    (text,) = DeltaTable(str(tmp_path)).snapshot().files(["stats"])["stats"].to_pylist()
    stats = json.loads(text)
    assert stats["minValues"] == {"y": 1.0}
    assert stats["maxValues"] == {"y": 2.0}
    assert stats["nullCount"] == {"x": 0, "y": 0}


def test_the_first_32_columns_are_counted_unless_the_table_says_otherwise() -> None:
    table = pa.table({f"c{i}": [i] for i in range(40)})
    schema = ", ".join(f"c{i} long" for i in range(40))

    def counted(**properties: str) -> list[str]:
        given = {f"delta.{name}": value for name, value in properties.items()}
        return list(statistics_of(table, schema, properties=given)["nullCount"])

    assert counted() == [f"c{i}" for i in range(32)]
    assert counted(dataSkippingNumIndexedCols="2") == ["c0", "c1"]
    assert counted(dataSkippingNumIndexedCols="-1") == [f"c{i}" for i in range(40)]
    assert counted(dataSkippingStatsColumns="C39, `c1`, none") == ["c1", "c39"]


def test_named_columns_may_be_nested_and_quoted() -> None:
    fields = [
        {"name": "a.b", "type": "long", "nullable": True, "metadata": {}},
        {
            "name": "s",
            "type": {
                "type": "struct",
                "fields": [
                    {"name": "x`y", "type": "long", "nullable": True, "metadata": {}},
                    {"name": "z", "type": "long", "nullable": True, "metadata": {}},
                ],
            },
            "nullable": True,
            "metadata": {},
        },
    ]
    stored = parse_schema(json.dumps({"type": "struct", "fields": fields}), "test")

    def paths(names: str) -> list[tuple[str, ...]]:
        properties = TableProperties({"delta.dataSkippingStatsColumns": names}, "test")
        return [column.path for column in indexed_columns(stored, properties)]

    assert paths("`a.b`") == [("a.b",)]
    assert paths("a.b") == []
    assert paths("s") == [("s", "x`y"), ("s", "z")]
    assert paths("s.`x``y` , s . z") == [("s", "x`y"), ("s", "z")]


def test_clustering_columns_are_always_counted() -> None:
    table = pa.table({"a": [1], "b": [2]})
    fields = [
        {"name": n, "type": "long", "nullable": True, "metadata": {}} for n in table.schema.names
    ]
    stored = parse_schema(json.dumps({"type": "struct", "fields": fields}), "test")
    properties = TableProperties({"delta.dataSkippingNumIndexedCols": "0"}, "test")
    assert indexed_columns(stored, properties) == ()
    (column,) = indexed_columns(stored, properties, also=[("b",)])
    assert (column.path, column.leaf) == (("b",), 1)
