from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_delta.engine.arrow.parsed_columns import stats_from_parsed
from airflow_delta.engine.arrow.typed_stats import stats_type, typed_stats
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
        # Values that aren't of the column's type tell nothing.
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


timestamps = st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.fixed_dictionaries(
            {"i": st.integers(-(2**31), 2**31 - 1)},
            optional={
                "s": st.text(max_size=5),
                "x": st.floats(allow_nan=False, allow_infinity=False),
                "d": st.dates().map(str),
                "t": timestamps.map(lambda t: t.isoformat(timespec="milliseconds") + "Z"),
            },
        ),
        min_size=1,
        max_size=6,
    )
)
def test_texts_come_back_from_their_typed_form(bounds: list[dict[str, Any]]) -> None:
    type_ = stats_type(
        schema(
            i=PrimitiveType("integer"),
            s=STRING,
            x=PrimitiveType("double"),
            d=PrimitiveType("date"),
            t=PrimitiveType("timestamp"),
        )
    )
    stats = [{"numRecords": n, "minValues": bound} for n, bound in enumerate(bounds)]
    typed = typed_stats(pa.array([json.dumps(row) for row in stats]), type_)
    texts = stats_from_parsed(typed, utc=()).to_pylist()
    assert [json.loads(text) for text in texts] == stats
