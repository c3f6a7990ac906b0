"""`parse_stats` against an oracle, Python's `json.loads`, and at the edges of the fast reader."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_delta.engine.arrow.statistics import parse as stats_module
from airflow_delta.engine.arrow.statistics.parse import num_records, parse_stats

TYPE = pa.struct(
    [
        ("numRecords", pa.int64()),
        ("tightBounds", pa.bool_()),
        ("minValues", pa.struct([("a", pa.int64()), ("f", pa.float64()), ("t", pa.string())])),
        ("nullCount", pa.struct([("s", pa.struct([("x", pa.int64())]))])),
    ]
)


def parse(*texts: str | None, type_: pa.DataType = TYPE) -> list[Any]:
    return parse_stats(pa.chunked_array([pa.array(texts, pa.string())]), type_).to_pylist()


def records(*texts: str | None) -> list[int | None]:
    return num_records(pa.chunked_array([pa.array(texts, pa.string())])).to_pylist()


_text = st.text(st.characters(codec="utf-8"), max_size=5)
_statistics = st.fixed_dictionaries(
    {},
    optional={
        "numRecords": st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
        "tightBounds": st.one_of(st.none(), st.booleans()),
        "minValues": st.one_of(
            st.none(),
            st.fixed_dictionaries(
                {},
                optional={
                    "a": st.integers(-5, 5),
                    "f": st.floats(allow_nan=False, allow_infinity=False),
                    "t": _text,
                    "other": st.one_of(_text, st.lists(_text, max_size=2)),
                },
            ),
        ),
        "nullCount": st.fixed_dictionaries(
            {}, optional={"s": st.dictionaries(st.sampled_from("xyz"), st.integers(0, 9))}
        ),
        "more": st.dictionaries(_text, _text, max_size=2),
    },
)


def picked(value: Any, type_: pa.DataType) -> Any:
    if not pa.types.is_struct(type_) or value is None:
        return value
    return {field.name: picked(value.get(field.name), field.type) for field in type_}


@settings(max_examples=50, deadline=None)
@given(st.lists(st.one_of(st.none(), _statistics), max_size=5))
def test_the_oracle(values: list[Any]) -> None:
    texts = [None if value is None else json.dumps(value) for value in values]
    assert parse(*texts) == [picked(value, TYPE) for value in values]
    assert parse(*texts, "no json") == [*(picked(value, TYPE) for value in values), None]


@pytest.mark.parametrize("text", [None, "", " ", "null", "5", '"x"', "[]", "{", "{}{}", "{}\n{}"])
def test_what_are_no_statistics_is_null_in_its_place(text: str | None) -> None:
    good = '{"numRecords":7}'
    assert records(good, text, good) == [7, None, 7]
    assert records(text, text) == [None, None]


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        ("7", 7), ("7.0", 7), ("7e0", 7), ("-0", 0), ("7.5", None), ('"7"', None), ("true", None),
        ("9223372036854775807", 2**63 - 1), ("9223372036854775808", None), ("1e999999999", None),
        ("NaN", None), ("Infinity", None), ("[7]", None), ("null", None),
    ],
)  # fmt: skip
def test_whole_numbers(number: str, expected: int | None) -> None:
    assert records(f'{{"numRecords":{number}}}', '{"numRecords":1}') == [expected, 1]


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        ("0.1", 0.1), ("1", 1.0), ("1e400", None), ("5e-324", 5e-324), ('"0.1"', None),
        ("12345678901234567890123", 12345678901234567890123.0),
    ],
)  # fmt: skip
def test_doubles(number: str, expected: float | None) -> None:
    type_ = pa.struct([("f", pa.float64())])
    assert parse(f'{{"f":{number}}}', "{}", type_=type_) == [{"f": expected}, {"f": None}]
    assert parse(f'{{"f":{number}}}', "bad", type_=type_) == [{"f": expected}, None]


def test_doubles_that_are_no_numbers() -> None:
    """JSON has none, but writers and readers make some: they are kept or null, never a number."""
    for text in ("NaN", "Infinity", "-Infinity", "9" * 400):
        for beside in ("{}", "bad"):
            value = parse(f'{{"f":{text}}}', beside, type_=pa.struct([("f", pa.float64())]))[0]["f"]
            assert value is None or not math.isfinite(value)


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        ("1.1", "1.10"), ("1.10", "1.10"), ("1.100", "1.10"), ("-7", "-7.00"), ("1e2", "100.00"),
        ("0.1234567890123456789e17", None), ("1.123", None), ("123456789012", None), ("1e999999999", None),
        ("99999999.99", "99999999.99"), ("null", None), ("true", None),
    ],
)  # fmt: skip
def test_decimals_are_exact(number: str, expected: str | None) -> None:
    type_ = pa.struct([("d", pa.decimal128(10, 2))])
    value = None if expected is None else Decimal(expected)
    for beside in ("{}", "bad"):
        assert parse(f'{{"d":{number}}}', beside, type_=type_)[0] == {"d": value}


def test_more_digits_than_a_double_has() -> None:
    text = "12345678901234567890.123456789012345678"
    type_ = pa.struct([("d", pa.decimal128(38, 18))])
    for beside in ("{}", "bad"):
        assert parse(f'{{"d":{text}}}', beside, type_=type_)[0] == {"d": Decimal(text)}


def test_half_a_surrogate_pair_is_no_text() -> None:
    type_ = pa.struct([("t", pa.string())])
    whole, half = r'{"t":"\ud83d\ude00"}', r'{"t":"\ud83d"}'
    assert parse(whole, half, type_=type_) == [{"t": "\U0001f600"}, {"t": None}]


def test_the_last_of_repeated_keys_counts() -> None:
    assert records('{"numRecords":1,"numRecords":2}', '{"numRecords":3}') == [2, 3]


def test_deep_nesting_is_not_followed() -> None:
    deep = '{"x":' + "[" * 100_000 + "]" * 100_000 + "}"
    assert records(deep, '{"numRecords":3}')[1] == 3


def test_slices_keep_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stats_module, "STATS_ROWS", 3)
    texts = [None if n % 5 == 0 else f'{{"numRecords":{n}}}' for n in range(50)]
    texts[7] = "bad"
    expected = [None if n % 5 == 0 or n == 7 else n for n in range(50)]
    chunks = pa.chunked_array([texts[:10], [], texts[10:]], pa.string())
    assert num_records(chunks).to_pylist() == expected
    assert num_records(chunks.slice(9, 13)).to_pylist() == expected[9:22]
    assert num_records(pa.chunked_array([], pa.string())).to_pylist() == []


@pytest.mark.parametrize(
    "texts",
    [
        ('{"numRecords":1}{"numRecords":2}', "{}", '{"numRecords":3}'),
        ('{"numRecords":"}', '{"}', '{"numRecords":1}{"numRecords":2}', '{"numRecords":3}'),
        ('{"minValues":{}', "{}}", '{"numRecords":1} {"numRecords":2}', '{"numRecords":3}'),
        ('{"minValues":[{}', '{"a":1}]}', '{"numRecords":1}\n{"numRecords":2}', '{"numRecords":3}'),
        ("{", "}", '{"numRecords":1}{"numRecords":2}', '{"numRecords":3}'),
    ],
)
def test_texts_that_are_one_object_only_together_do_not_shift_rows(texts: tuple[str, ...]) -> None:
    *broken, last = records(*texts)
    assert last == 3
    assert set(broken) == {None}


def test_texts_over_several_lines() -> None:
    assert records('{\n"numRecords":\n1}', '{"numRecords":2}') == [1, 2]


def test_a_slice_of_texts_starts_where_it_starts() -> None:
    texts = pa.array([f'{{"numRecords":{number}}}' for number in range(9)])
    parsed = parse_stats(pa.chunked_array([texts.slice(4, 3)]), TYPE)
    assert [row["numRecords"] for row in parsed.to_pylist()] == [4, 5, 6]
