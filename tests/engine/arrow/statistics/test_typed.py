from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_delta.engine.arrow.statistics.parsed import stats_from_parsed
from airflow_delta.engine.arrow.statistics.typed import stats_type, typed_stats
from airflow_delta.engine.model.schema import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)

STRING = PrimitiveType("string")
UTC = dt.timezone.utc


def schema(**columns: DataType) -> StructType:
    return StructType(tuple(StructField(name, type_) for name, type_ in columns.items()))


def minimum(value: Any, data_type: DataType) -> Any:
    """A minimum given as a JSON text, as it comes out typed."""
    texts = pa.array([f'{{"minValues":{{"c":{value}}}}}', None, "", "no JSON"])
    structs = typed_stats(texts, stats_type(schema(c=data_type))).to_pylist()
    assert structs[1:] == [None, None, None]
    return structs[0]["minValues"]["c"]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("byte", "-128", -128),
        ("integer", "7", 7),
        ("long", "9223372036854775807", 2**63 - 1),
        ("double", "0.1", 0.1),
        ("float", "0.5", 0.5),
        ("string", '"a\\"b"', 'a"b'),
        ("date", '"1969-12-31"', dt.date(1969, 12, 31)),
        (
            "timestamp",
            '"2024-01-31T12:00:00.123Z"',
            dt.datetime(2024, 1, 31, 12, 0, 0, 123000, UTC),
        ),
        (
            "timestamp",
            '"2024-01-31T12:00:00.123+05:30"',
            dt.datetime(2024, 1, 31, 6, 30, 0, 123000, UTC),
        ),
        ("timestamp_ntz", '"2024-01-31T12:00:00.123"', dt.datetime(2024, 1, 31, 12, 0, 0, 123000)),
        # Values of another type than the column's are dropped.
        ("byte", "300", None),
        ("integer", '"x"', None),
        ("date", '"31.1.2024"', None),
        ("timestamp", '"2024-01-31 12:00"', None),
    ],
)
def test_bounds_have_the_types_of_their_columns(name: str, text: str, expected: Any) -> None:
    assert minimum(text, PrimitiveType(name)) == expected


def test_decimals_are_exact() -> None:
    texts = pa.array(['{"minValues":{"c":-12345678901234567890.12345}}', None])
    type_ = stats_type(schema(c=DecimalType(38, 5)))
    assert typed_stats(texts, type_).to_pylist()[0]["minValues"]["c"] == Decimal(
        "-12345678901234567890.12345"
    )


def test_a_decimal_that_does_not_fit_costs_no_other_value() -> None:
    texts = pa.array(['{"minValues":{"c":1.123456,"d":4}}'])
    type_ = stats_type(schema(c=DecimalType(5, 2), d=PrimitiveType("long")))
    assert typed_stats(texts, type_).to_pylist()[0]["minValues"] == {"c": None, "d": 4}


def test_one_bad_value_costs_no_other() -> None:
    days = ("2024-02-29", "x", "2024-02-30")
    texts = pa.array([json.dumps({"maxValues": {"c": day}}) for day in days])
    structs = typed_stats(texts, stats_type(schema(c=PrimitiveType("date")))).to_pylist()
    assert [row["maxValues"]["c"] for row in structs] == [dt.date(2024, 2, 29), None, None]


def test_floats_that_are_no_bounds_are_null() -> None:
    texts = pa.array(['{"maxValues":{"c":NaN}}', '{"maxValues":{"c":Infinity}}', "{}"])
    structs = typed_stats(texts, stats_type(schema(c=PrimitiveType("double")))).to_pylist()
    assert [row["maxValues"] and row["maxValues"]["c"] for row in structs] == [None, None, None]


def test_types_without_an_order_have_null_counts_alone() -> None:
    type_ = stats_type(
        schema(
            flag=PrimitiveType("boolean"),
            raw=PrimitiveType("binary"),
            items=ArrayType(STRING, True),
            pairs=MapType(STRING, STRING, True),
            nested=schema(a=STRING, flag=PrimitiveType("boolean")),
        )
    )
    text = pa.string()
    assert type_.field("minValues").type == pa.struct([("nested", pa.struct([("a", text)]))])
    assert type_.field("maxValues").type == type_.field("minValues").type
    count = pa.int64()
    assert type_.field("nullCount").type == pa.struct(
        [
            ("flag", count),
            ("raw", count),
            ("items", count),
            ("pairs", count),
            ("nested", pa.struct([("a", count), ("flag", count)])),
        ]
    )


@pytest.mark.parametrize(
    ("columns", "expected"), [(-1, ["a", "b", "c"]), (0, []), (1, ["a"]), (2, ["a", "b"])]
)
def test_only_the_first_leaves_have_statistics(columns: int, expected: list[str]) -> None:
    type_ = stats_type(schema(a=STRING, b=schema(x=STRING), c=STRING), columns=columns)
    names = [] if type_.get_field_index("minValues") < 0 else type_.field("minValues").type.names
    assert names == expected


# Struct to text to struct: what a checkpoint goes through that is made from the one before.

EARLIEST, LATEST = dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)
LEAVES: dict[str, tuple[DataType, st.SearchStrategy[Any]]] = {
    "byte": (PrimitiveType("byte"), st.integers(-(2**7), 2**7 - 1)),
    "short": (PrimitiveType("short"), st.integers(-(2**15), 2**15 - 1)),
    "integer": (PrimitiveType("integer"), st.integers(-(2**31), 2**31 - 1)),
    "long": (PrimitiveType("long"), st.integers(-(2**63), 2**63 - 1)),
    "float": (PrimitiveType("float"), st.floats(width=32)),
    "double": (PrimitiveType("double"), st.floats()),
    "money": (DecimalType(7, 2), st.decimals(-99999, 99999, places=2)),
    "large": (DecimalType(38, 18), st.decimals(-(10**19), 10**19, places=18)),
    "string": (STRING, st.text(max_size=6)),
    "date": (PrimitiveType("date"), st.dates()),
    "instant": (PrimitiveType("timestamp"), st.datetimes(EARLIEST, LATEST)),
    "clock": (PrimitiveType("timestamp_ntz"), st.datetimes(EARLIEST, LATEST)),
    "nested": (schema(t=PrimitiveType("timestamp")), st.datetimes(EARLIEST, LATEST)),
}


def leaf(name: str, value: Any) -> Any:
    if value is None or name not in ("instant", "nested"):
        return value
    return {"t": value.replace(tzinfo=UTC)} if name == "nested" else value.replace(tzinfo=UTC)


@st.composite
def structs(draw: st.DrawFn, names: list[str]) -> dict[str, Any]:
    bounds = {
        side: {name: leaf(name, draw(st.none() | LEAVES[name][1])) for name in names}
        for side in ("minValues", "maxValues")
    }
    counts = st.none() | st.integers(0, 2**63 - 1)
    nulls = {name: {"t": draw(counts)} if name == "nested" else draw(counts) for name in names}
    records, tight = draw(counts), draw(st.none() | st.booleans())
    return {"numRecords": records, "tightBounds": tight, **bounds, "nullCount": nulls}


def without_endless(struct: dict[str, Any]) -> dict[str, Any]:
    """Statistics without NaN and infinities, as text, which distinguishes 0.0 from -0.0."""

    def clean(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: clean(inner) for name, inner in value.items()}
        endless = isinstance(value, float) and not math.isfinite(value)
        return None if value is None or endless else (type(value), str(value))

    cleaned: dict[str, Any] = clean(struct)
    return cleaned


@settings(max_examples=50, deadline=None)
@given(st.data(), st.sampled_from([1, 70]), st.booleans())
def test_nothing_is_lost_on_the_way_through_the_text(
    data: st.DataObject, times: int, slow: bool
) -> None:
    """By each of the readers of texts: of those that are alike, of JSON, and of what that refuses."""
    # Few columns, because long texts are never read as alike.
    names = sorted(data.draw(st.sets(st.sampled_from(sorted(LEAVES)), min_size=1, max_size=3)))
    rows = data.draw(st.lists(structs(names) | st.none(), min_size=1, max_size=3))
    type_ = stats_type(schema(**{name: LEAVES[name][0] for name in names}))
    texts = stats_from_parsed(pa.array(rows * times, type_), utc=())
    if slow:
        texts = pa.concat_arrays([texts, pa.array(["{"])])
    back = typed_stats(texts, type_).to_pylist()[: len(rows) * times]
    expected = [None if row is None else without_endless(row) for row in rows] * times
    assert [None if row is None else without_endless(row) for row in back] == expected
