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

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.data_files.footer_statistics import (
    file_statistics,
    indexed_columns,
    longer_prefix,
)
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.model.schema_json import parse_schema
from airflow_delta.spark import write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UTC = dt.timezone.utc
EPOCH = dt.datetime(1970, 1, 1)
LAST = "\U0010ffff"

DDL = (
    "num8 tinyint, num64 bigint, f float, d double, `dec` decimal(38,18), dec9 decimal(9,2), "
    "name string, flag boolean, bin binary, day date, ts timestamp, ntz timestamp_ntz, "
    "st struct<a: int, b: struct<c: string>>, arr array<int>"
)


def random_row(rng: random.Random) -> tuple[Any, ...]:
    """A row of any values, about a fifth of them null."""

    def maybe(value: Any) -> Any:
        return None if rng.random() < 0.2 else value

    moment = EPOCH + dt.timedelta(microseconds=rng.randint(-(10**15), 10**15))
    name = "".join(rng.choice("aé😀\x7f~" + LAST) for _ in range(rng.choice([0, 5, 40, 70])))
    return (
        maybe(rng.randint(-128, 127)),
        maybe(rng.randint(-(2**63), 2**63 - 1)),
        maybe(float(rng.randint(-9, 9)) / 2),
        maybe(rng.choice([rng.random(), -0.0, 0.0, 1e300])),
        # From text, which alone is exact: what Python computes with decimals it rounds to 28 digits.
        maybe(Decimal(f"{rng.randint(-(10**37), 10**37)}e-18")),
        maybe(Decimal(f"{rng.randint(-(10**9) + 1, 10**9 - 1)}e-2")),
        maybe(name),
        maybe(rng.random() < 0.5),
        maybe(rng.randbytes(3)),
        maybe(moment.date()),
        maybe(moment.replace(tzinfo=UTC)),
        maybe(moment),
        maybe((maybe(rng.randint(0, 9)), maybe((maybe(name),)))),
        maybe([rng.randint(0, 9)]),
    )


def leaves(row: dict[str, Any], path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """The values of a row's leaf columns; those of a struct that is null are null."""
    found: dict[tuple[str, ...], Any] = {}
    for name, value in row.items():
        if name == "st":
            found |= leaves(value or {"a": None, "b": None}, (*path, name))
        elif name == "b" and path:
            found |= leaves(value or {"c": None}, (*path, name))
        else:
            found[(*path, name)] = value
    return found


def at(stats: dict[str, Any], path: tuple[str, ...]) -> Any:
    for name in path:
        stats = stats.get(name, {})
    return stats if stats != {} else None


def milliseconds(moment: dt.datetime) -> int:
    """Whole milliseconds since the epoch, rounded down."""
    naive = moment.replace(tzinfo=None)
    return (naive - EPOCH) // dt.timedelta(milliseconds=1)


def check_bounds(values: list[Any], low: Any, high: Any) -> None:
    """Bounds of a column against all its values, by what the protocol says of them."""
    least, greatest = min(values), max(values)
    if isinstance(least, str):
        assert least.startswith(low)
        assert len(low) == min(len(least), 32)
        assert high.encode() >= greatest.encode()
        assert (high == greatest) if len(greatest) <= 32 else len(high) <= 65
    elif isinstance(least, dt.datetime):
        for text, value in ((low, least), (high, greatest)):
            told = dt.datetime.fromisoformat(text.replace("Z", "+00:00"))
            assert (told.tzinfo is not None) == (value.tzinfo is not None)
            assert milliseconds(told) == milliseconds(value)
            assert len(text) == len("2024-01-01T00:00:00.000") + text.endswith("Z")
    elif isinstance(least, dt.date):
        assert (low, high) == (least.isoformat(), greatest.isoformat())
    else:
        assert (low, high) == (least, greatest)


@pytest.mark.parametrize("seed", range(3))
def test_statistics_tell_what_is_in_the_files(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    rows = spark.createDataFrame([random_row(rng) for _ in range(40)], DDL)
    write(rows.repartition(3), str(tmp_path))
    for add in DeltaTable(str(tmp_path)).snapshot().files().to_pylist():
        data = pq.ParquetFile(tmp_path / add["path"]).read().to_pylist()
        stats = json.loads(add["stats"], parse_float=lambda text: text)
        assert stats["numRecords"] == len(data)
        columns: dict[tuple[str, ...], list[Any]] = {}
        for row in data:
            for path, value in leaves(row).items():
                columns.setdefault(path, []).append(value)
        for path, values in columns.items():
            low, high = at(stats["minValues"], path), at(stats["maxValues"], path)
            present = [value for value in values if value is not None]
            if path == ("arr",):
                assert at(stats["nullCount"], path) is low is high is None
                continue
            assert at(stats["nullCount"], path) == values.count(None)
            if not present or isinstance(present[0], (bool, bytes)):
                assert low is high is None
                continue
            if isinstance(present[0], (float, Decimal)):
                # As text, so that digits which a float would lose are compared.
                low, high = type(present[0])(low), type(present[0])(high)
            check_bounds(present, low, high)


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
