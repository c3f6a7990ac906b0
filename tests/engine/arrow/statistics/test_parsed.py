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

from airflow_delta.engine.arrow.action_schema import STRING_MAP
from airflow_delta.engine.arrow.statistics.parsed import (
    partition_values_from_parsed,
    stats_from_parsed,
)

UTC = dt.timezone.utc


def stats_of(values: list[Any], type_: pa.DataType, *, utc: frozenset[str] = frozenset()) -> Any:
    """The minimum of column ``c`` as it comes out in the JSON of each row, None where there's none."""
    stats = [None if value is None else {"minValues": {"c": value}} for value in values]
    parsed = pa.array(stats, pa.struct([("minValues", pa.struct([("c", type_)]))]))
    texts = stats_from_parsed(parsed, utc=utc).to_pylist()
    return [None if t is None else json.loads(t, parse_float=Decimal)["minValues"] for t in texts]


@pytest.mark.parametrize(
    ("type_", "value", "expected"),
    [
        (pa.int8(), -5, -5),
        (pa.int64(), 2**63 - 1, 2**63 - 1),
        (pa.bool_(), True, True),
        (pa.float64(), 0.1, Decimal("0.1")),
        (pa.float64(), 1e300, Decimal("1e300")),
        (pa.float32(), 0.1, Decimal("0.1")),
        (pa.decimal128(38, 18), Decimal("0.000000000000000001"), Decimal("1e-18")),
        (pa.decimal128(8, 5), Decimal("-5.67800"), Decimal("-5.678")),
        (pa.string(), 'a"b\\c\nd\x01é\x7f', 'a"b\\c\nd\x01é\x7f'),
        (pa.large_string(), "x", "x"),
        (pa.date32(), dt.date(1969, 12, 31), "1969-12-31"),
        (
            pa.timestamp("us", "UTC"),
            dt.datetime(2024, 2, 29, 12, 0, 0, 123999, UTC),
            "2024-02-29T12:00:00.123999Z",
        ),
        (
            pa.timestamp("us", "UTC"),
            dt.datetime(1969, 12, 31, 23, 59, 59, 998500, UTC),
            "1969-12-31T23:59:59.998500Z",
        ),
        # As commits have it.
        (
            pa.timestamp("us", "UTC"),
            dt.datetime(2024, 2, 29, 12, 0, 0, 123000, UTC),
            "2024-02-29T12:00:00.123Z",
        ),
        (pa.timestamp("ms"), dt.datetime(2024, 1, 1), "2024-01-01T00:00:00.000"),
        (pa.timestamp("us"), dt.datetime(2024, 1, 1), "2024-01-01T00:00:00.000"),
        (pa.timestamp("us"), dt.datetime(9999, 12, 31, 23, 59), "9999-12-31T23:59:00.000"),
    ],
)
def test_each_type_has_its_json_form(type_: pa.DataType, value: Any, expected: Any) -> None:
    assert stats_of([value, None, value], type_) == [{"c": expected}, None, {"c": expected}]


def test_int96_timestamps_are_instants() -> None:
    value = dt.datetime(2024, 1, 1)
    path = "add.stats_parsed.minValues.c"
    assert stats_of([value], pa.timestamp("us"), utc=frozenset({path})) == [
        {"c": "2024-01-01T00:00:00.000Z"}
    ]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_what_json_can_not_hold_is_left_out(value: float) -> None:
    assert stats_of([value, 1.5], pa.float64()) == [{}, {"c": Decimal("1.5")}]
    assert stats_of([b"x"], pa.binary()) == [{}]


@pytest.mark.parametrize("type_", [pa.float32(), pa.float64()])
def test_a_negative_zero_keeps_its_sign_for_readers_that_parse_integers(type_: pa.DataType) -> None:
    """For many readers, Python's among them, ``-0`` is the integer 0, which has no sign."""
    stats = [{"minValues": {"c": -0.0}, "maxValues": {"c": 0.0}}]
    column = pa.struct([("c", type_)])
    parsed = pa.array(stats, pa.struct([("minValues", column), ("maxValues", column)]))
    read = json.loads(stats_from_parsed(parsed, utc=())[0].as_py())
    signs = [math.copysign(1, read[name]["c"]) for name in ("minValues", "maxValues")]
    assert signs == [-1, 1]


def test_nanoseconds_are_cut_towards_the_past() -> None:
    # A minimum above the values would hide them.
    values = [-1500, 1500]
    expected = [{"c": "1969-12-31T23:59:59.999998"}, {"c": "1970-01-01T00:00:00.000001"}]
    assert stats_of(values, pa.timestamp("ns")) == expected


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (pa.date32(), 2932897),  # the first day of the year 10000
        (pa.date32(), 2**31 - 1),
        (pa.timestamp("us", "UTC"), 253402300800000000),
        (pa.timestamp("us"), -(2**63) + 1),
        (pa.timestamp("ms"), 253402300800000),
        (pa.timestamp("ms"), 2**63 - 1),
    ],
)
def test_years_of_more_than_four_digits_are_left_out(type_: pa.DataType, value: int) -> None:
    integers = pa.array([value, 0], pa.int32() if pa.types.is_date(type_) else pa.int64())
    column = pa.StructArray.from_arrays([integers.cast(type_)], names=["c"])
    texts = stats_from_parsed(pa.StructArray.from_arrays([column], names=["minValues"]), utc=())
    assert [len(json.loads(text)["minValues"]) for text in texts.to_pylist()] == [0, 1]


def test_null_fields_and_null_structs_are_left_out() -> None:
    type_ = pa.struct(
        [
            ("numRecords", pa.int64()),
            ("minValues", pa.struct([("a", pa.struct([("b", pa.int32())])), ("c", pa.int32())])),
            ("nullCounts", pa.struct([("c", pa.int64())])),
        ]
    )
    rows = [
        {"numRecords": 3, "minValues": {"a": {"b": 1}, "c": None}, "nullCounts": {"c": 0}},
        {"numRecords": None, "minValues": None, "nullCounts": None},
        {"numRecords": 4, "minValues": {"a": None, "c": 2}, "nullCounts": None},
        None,
    ]
    texts = stats_from_parsed(pa.array(rows, type_), utc=()).to_pylist()
    assert [text and json.loads(text) for text in texts] == [
        {"numRecords": 3, "minValues": {"a": {"b": 1}}, "nullCount": {"c": 0}},
        {},
        {"numRecords": 4, "minValues": {"c": 2}},
        None,
    ]


names = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(names, min_size=1, max_size=3, unique=True),
    st.lists(st.one_of(st.none(), names), min_size=3, max_size=9),
)
def test_any_text_survives_as_name_and_as_value(columns: list[str], values: list[Any]) -> None:
    rows = [
        dict(zip(columns, values[start:], strict=False))
        for start in range(len(values) - len(columns) + 1)
    ]
    parsed = pa.array(rows, pa.struct([(name, pa.string()) for name in columns]))
    expected = [{n: v for n, v in row.items() if v is not None} for row in rows]
    renamed = [{"nullCount" if n == "nullCounts" else n: v for n, v in r.items()} for r in expected]
    assert [json.loads(t) for t in stats_from_parsed(parsed, utc=()).to_pylist()] == renamed


def test_partition_values_are_texts_again() -> None:
    type_ = pa.struct(
        [
            ("d", pa.date32()),
            ("n", pa.int32()),
            ("t", pa.timestamp("us", "UTC")),
            ("b", pa.bool_()),
            ("s", pa.string()),
        ]
    )
    whole = dt.datetime(2024, 1, 2, 3, 4, 5, 0, UTC)
    parsed = pa.array(
        [
            {"d": dt.date(2024, 1, 31), "n": 7, "t": whole, "b": True, "s": "x"},
            {"d": None, "n": None, "t": whole.replace(microsecond=60), "b": False, "s": None},
        ],
        type_,
    )
    values = partition_values_from_parsed(parsed)
    values.validate(full=True)
    assert values.type == STRING_MAP
    assert [dict(row) for row in values.to_pylist()] == [
        {"d": "2024-01-31", "n": "7", "t": "2024-01-02 03:04:05", "b": "true", "s": "x"},
        {"d": None, "n": None, "t": "2024-01-02 03:04:05.000060", "b": "false", "s": None},
    ]


def test_partition_values_of_no_columns_are_empty() -> None:
    assert partition_values_from_parsed(pa.array([{}, {}], pa.struct([]))).to_pylist() == [[], []]
