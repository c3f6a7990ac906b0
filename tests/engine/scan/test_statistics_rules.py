"""Statistics, rule by rule: what each may be used for, and what it may not."""

from __future__ import annotations

import json
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from airflow_delta.engine.model.schema_json import parse_schema
from tests.engine.scan.rows import (
    adds,
    checkpoint,
    kept,
    kept_of_checkpoint,
    schema,
    spark_maximum,
    stats,
)

UTC = timezone.utc
STRUCT = {
    "type": "struct",
    "fields": [{"name": "x", "type": "integer", "nullable": True, "metadata": {}}],
}
COLUMNS = schema(
    a="long", i="integer", t="string", f="double", r="float", d="decimal(10,2)",
    big="decimal(38,18)", day="date", ts="timestamp", n="timestamp_ntz", g="boolean",
    bin="binary", s=STRUCT, l={"type": "array", "elementType": "long", "containsNull": True},
)  # fmt: skip
a, t, f, r, d, big, ts, n = (pc.field(name) for name in ("a", "t", "f", "r", "d", "big", "ts", "n"))


def is_kept(predicate: Any, text: str | None) -> bool:
    files = adds(text)
    by_text = kept(predicate, files, COLUMNS) == [0]
    by_struct = kept_of_checkpoint(predicate, checkpoint(files, COLUMNS), COLUMNS) == [0]
    # A text may hold what a struct can't, but not the other way round.
    assert by_struct or not by_text
    return by_text


def between(name: str, low: Any, high: Any, **more: Any) -> str:
    return stats(low={name: low}, high={name: high}, **more)


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        (a > 5, False), (a >= 5, True), (a < 1, False), (a <= 1, True), (a == 3, True),
        (a == 6, False), (a == 0, False), (a != 3, True), (~(a > 0), False), (~(a <= 4), True),
        (~(a != 6), False), (pc.scalar(5) < a, False), (pc.scalar(5) <= a, True),
        (a.isin([0, 6]), False), (a.isin([0, 3]), True), (a.isin([]), False),
        (~a.isin([3]), True), (a > 4.5, True), (a > 5.5, False), (a > Decimal("5.1"), False),
        ((a > 1) & (a > 5), False), ((a > 5) | (a < 1), False), ((a > 5) | (a == 2), True),
        (~((a >= 1) & (a <= 5)), False), (~((a > 5) | (a < 1)), True),
        (a.is_null(), False), (a.is_valid(), True), (~a.is_valid(), False),
        (a == pa.scalar(None, pa.int64()), False), (a.isin([None]), False),
        (a > pc.scalar("7").cast(pa.int64()), False), (a > a, True), (a + 1 > 9, True),
        (a.cast(pa.int32()) > 9, True), (pc.if_else(a > 9, True, False), True),
        (a.isin(list(range(6, 500))), False), (a.isin(list(range(-500, 1))), False),
        (a.isin([*range(-500, 1), 3, *range(6, 500)]), True),
        (pc.scalar(False), False), (pc.scalar(True), True), (pc.scalar(None), False),
        ((pc.field("g")) & (a > 5), False),
    ],
)  # fmt: skip
def test_a_column_of_whole_numbers_from_one_to_five_without_nulls(
    predicate: Any, expected: bool
) -> None:
    text = between("a", 1, 5, nulls={"a": 0, "g": 0})
    assert is_kept(predicate, text) == expected


@pytest.mark.parametrize(
    ("value", "predicate", "expected"),
    [
        (4, a != 4, False), (4, ~(a == 4), False), (4, ~a.isin([4, 5]), False),
        (4, ~a.isin([5]), True), (4, a.isin([*range(4), *range(5, 500)]), False),
        (4, a.isin(range(500)), True),
    ],
)  # fmt: skip
def test_a_column_of_one_value(value: int, predicate: Any, expected: bool) -> None:
    assert is_kept(predicate, between("a", value, value, nulls={"a": 0})) == expected


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        (a > 0, False), (~(a > 0), False), (a != 0, False), (a == a, False), (a.is_null(), True),
        (a.is_valid(), False), (a.isin([1]), False), (a.isin([1, None]), True), (~a.isin([1]), True),
        (pc.is_in(a, value_set=pa.array([1, None]), skip_nulls=True), False),
        (~a.isin([1, None]), False), ((a > 0) | a.is_null(), True), (f > 0, False),
        (f.is_null(nan_is_null=True), True), (~f.is_null(nan_is_null=True), False),
        (pc.field("g"), False), (~pc.field("g"), False), (pc.field("bin") == b"", False),
        (t == "", False), (pc.field("s", "x") > 0, False),
    ],
)  # fmt: skip
def test_a_column_of_nulls(predicate: Any, expected: bool) -> None:
    nulls = dict.fromkeys(("a", "f", "g", "bin", "t"), 10) | {"s": {"x": 10}}
    assert is_kept(predicate, stats(nulls=nulls)) == expected


def test_a_null_count_between_none_and_all_tells_nothing() -> None:
    text = between("a", 1, 5, nulls={"a": 3})
    assert is_kept(a.is_null(), text)
    assert is_kept(a.is_valid(), text)


def test_a_null_count_without_the_number_of_records_tells_nothing() -> None:
    """Files with deletion vectors must have numRecords; where one doesn't, it's kept."""
    assert is_kept(a.is_valid(), stats(nulls={"a": 10}, records=None))


def test_wide_bounds_are_bounds() -> None:
    text = between("a", 1, 5, nulls={"a": 0}, tightBounds=False)
    assert not is_kept(a > 5, text)
    assert not is_kept(a.is_null(), text)


@pytest.mark.parametrize(
    "text",
    [
        None, "", "{}", "[]", "null", "junk", "{", '{"numRecords":10}', '{"maxValues":null}',
        '{"maxValues":{"a":null}}', '{"maxValues":{"a":"3"}}', '{"maxValues":{"a":{"b":3}}}',
        '{"maxValues":{"a":3.5}}', '{"maxValues":[3]}', '{"maxValues":{"A":3}}',
        '{"maxValues":{"a":true}}', '{"maxValues":{"a":9223372036854775808}}',
        '{"maxValues":{"a":3}}{"maxValues":{"a":3}}', '{"maxValues":{"a":1e999999999}}',
        '{"minValues":{"a":4},"maxValues":{"a":3}}', " ", "\ufeff{}",
    ],
)  # fmt: skip
def test_statistics_that_tell_nothing_keep_the_file_and_harm_no_other(text: str | None) -> None:
    good, bad = between("a", 1, 3), between("a", 7, 9)
    assert kept(a > 5, adds(good, text, bad, good), COLUMNS) == [1, 2]


@pytest.mark.parametrize("text", ['{"maxValues":{"a":3.0}}', '{"maxValues":{"a":3e0}}'])
def test_whole_numbers_may_be_written_with_a_fraction(text: str) -> None:
    assert not is_kept(a > 5, text)


def test_statistics_that_are_no_utf8_keep_the_file() -> None:
    texts = pa.array([b'{"maxValues":{"t":"\xff"}', b'{"maxValues":{"t":"a"}}'], pa.binary())
    files = adds("", "").set_column(2, "stats", texts.view(pa.string()))
    assert kept(t > "b", files, COLUMNS) == [0]


@pytest.mark.parametrize(
    "value",
    [
        "x" * 31, "x" * 32, "x" * 33, "x" * 32 + "~", "x" * 32 + "\x7f", "x" * 32 + "é",
        "x" * 31 + "\U0001f600b", "x" * 32 + "\U0001f600", "x" * 32 + "\x7f" * 50,
        "x" * 32 + "\U0010ffff" * 3 + "a", "x" * 32 + "\U0010ffff" * 50, "\uffff" * 40,
    ],
)  # fmt: skip
def test_a_text_lies_within_the_bounds_that_writers_cut(value: str) -> None:
    low, high = value[:32], spark_maximum(value)
    text = stats(low={"t": low}, high={} if high is None else {"t": high}, nulls={"t": 0})
    assert is_kept(pc.field("t") == value, text)
    assert is_kept(pc.field("t") >= value, text)
    assert not is_kept(pc.field("t") < "x" * 31 if value[0] == "x" else t < "\ufffe", text)
    # Only a text with nothing larger than its prefix has no maximum.
    assert is_kept(t > "\U0010ffff" * 70, text) == (high is None)


def test_texts_compare_by_their_bytes_in_utf8() -> None:
    """By UTF-16 units, U+1F600 (D83D DE00) would come before U+FF5E."""
    text = between("t", "a", "\uff5e")
    assert not is_kept(t >= "\U0001f600", text)


def test_a_maximum_cut_by_an_older_writer_is_none() -> None:
    """It put U+FFFD where U+1F600 was cut, which is larger."""
    text = between("t", "x" * 32, "x" * 32 + "\ufffd")
    assert is_kept(t == "x" * 32 + "\U0001f600", text)
    assert not is_kept(t < "x", text)


def test_half_a_surrogate_pair_is_no_bound() -> None:
    text = '{"minValues":{"t":"b"},"maxValues":{"t":"x\\ud83d"},"nullCount":{"t":0},"numRecords":1}'
    assert is_kept(t > "y", text)
    assert not is_kept(t < "a", text)
    assert not is_kept(t.is_null(), text)


@pytest.mark.parametrize("field", [f, r])
@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        # a NaN that the bounds don't show is larger than all to Spark, and differs from all to Arrow.
        (lambda f: f > 5, True), (lambda f: f >= 5, True), (lambda f: f != 1, True),
        (lambda f: f < 0.99, False), (lambda f: f <= 0.5, False), (lambda f: f == 5, False),
        (lambda f: ~(f < 5), True), (lambda f: ~(f == 1), True), (lambda f: ~(f != 5), False),
        (lambda f: pc.scalar(5.0) < f, True), (lambda f: pc.scalar(0.99) > f, False),
        (lambda f: f.isin([5.0]), False), (lambda f: f.isin([float("nan")]), True),
        (lambda f: f == float("nan"), True), (lambda f: f < float("nan"), True),
    ],
)  # fmt: skip
def test_floats_may_hide_nan(field: Any, predicate: Any, expected: bool) -> None:
    text = stats(low={"f": 1.0, "r": 1.0}, high={"f": 1.0, "r": 1.0}, nulls={"f": 0, "r": 0})
    assert is_kept(predicate(field), text) == expected


@pytest.mark.parametrize("zero", [0.0, -0.0])
@pytest.mark.parametrize("bound", ["0.0", "-0.0"])
def test_both_zeros_are_one(zero: float, bound: str) -> None:
    text = f'{{"minValues":{{"f":{bound}}},"maxValues":{{"f":{bound}}}}}'
    assert is_kept(f == zero, text)
    assert not is_kept(f < zero, text)


@pytest.mark.parametrize("bound", ["NaN", '"NaN"', "Infinity", "-Infinity", '"-Infinity"', "1e999"])
def test_what_is_no_finite_number_is_no_bound(bound: str) -> None:
    text = f'{{"minValues":{{"f":{bound}}},"maxValues":{{"f":{bound}}}}}'
    assert kept((f < 1) | (f == 5), adds(between("f", 2, 3), text), COLUMNS) == [1]


def test_the_shortest_text_of_a_float_is_not_the_float() -> None:
    tenth = pa.scalar(0.1, pa.float32())
    assert tenth.as_py() > 0.1
    assert is_kept(r == tenth, between("r", 0.1, 0.1))
    assert not is_kept(r < 0.0999, between("r", 0.1, 0.1))


def test_statistics_of_floats_that_became_doubles() -> None:
    change = {"delta.typeChanges": [{"fromType": "float", "toType": "double"}]}
    field = {"name": "f", "type": "double", "nullable": True, "metadata": change}
    columns = parse_schema(json.dumps({"type": "struct", "fields": [field]}), "test")
    tenth = pa.scalar(0.1, pa.float32()).as_py()
    files = adds(between("f", 0.1, 0.1))
    assert kept(f == tenth, files, columns) == [0]
    assert kept(f == tenth, files, COLUMNS) == []


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        (d > Decimal("9.99"), False), (d >= Decimal("9.99"), True), (d > 9, True), (d > 10, False),
        (d > 9.98, True), (d > 10.5, False), (d == 9.99, True), (d < 1.1, True), (d < 1.0, False),
        (d < Decimal("1.10"), False), (d > pa.scalar(Decimal("9.991")), False),
        (d > float("inf"), True), (d < 1e39, True), (d.isin([Decimal("10.00")]), False),
    ],
)  # fmt: skip
def test_decimals_are_exact(predicate: Any, expected: bool) -> None:
    assert is_kept(predicate, '{"minValues":{"d":1.1},"maxValues":{"d":9.99}}') == expected


def test_decimals_beyond_double_precision_may_have_been_doubles() -> None:
    value = Decimal("1234567890.123456789012345678")
    lossy = between("big", float(value), float(value))
    assert Decimal(float(value)) != value
    assert is_kept(big == value, lossy)
    assert not is_kept(big > value + Decimal("0.00001"), lossy)
    # Few digits are exact.
    assert not is_kept(big > Decimal("0.0001"), '{"maxValues":{"big":0.0001}}')
    assert is_kept(big >= Decimal("0.0001"), '{"maxValues":{"big":0.0001}}')


def test_a_decimal_that_does_not_fit_is_no_bound() -> None:
    good = '{"maxValues":{"d":1.5}}'
    files = adds(good, '{"maxValues":{"d":1.555}}', '{"maxValues":{"d":123456789.1}}')
    assert kept(d > 5, files, COLUMNS) == [1, 2]


def test_a_decimal_with_more_digits_than_its_type() -> None:
    columns = schema(w="decimal(20,10)")
    files = adds('{"maxValues":{"w":12345678901234567890}}', '{"maxValues":{"w":5.5}}')
    assert kept(pc.field("w") > 7, files, columns) == [0]


def micros(value: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + value * (datetime.resolution)


@pytest.mark.parametrize(
    ("microsecond", "written"),
    [
        (-1, "1969-12-31T23:59:59.999Z"), (2500, "1970-01-01T00:00:00.002Z"),
        (999, "1970-01-01T00:00:00.000Z"), (-1001, "1969-12-31T23:59:59.998Z"),
        # a careless writer cuts towards 1970.
        (-1, "1970-01-01T00:00:00.000Z"), (-1001, "1969-12-31T23:59:59.999Z"),
        (0, "1970-01-01T00:00:00Z"), (0, "1970-01-01T05:30:00.000+05:30"),
        (0, "1969-12-31T16:00:00.000-08:00"), (123456, "1970-01-01T00:00:00.123456Z"),
    ],
)  # fmt: skip
def test_instants_are_cut_to_milliseconds(microsecond: int, written: str) -> None:
    moment = micros(microsecond)
    text = between("ts", written, written)
    assert is_kept(ts == moment, text)
    assert not is_kept(ts > micros(microsecond + 1001), text)
    assert not is_kept(ts < micros(microsecond - 2000), text)


def test_instants_after_1970_are_cut_down_only() -> None:
    text = between("ts", "2024-01-01T00:00:00.000Z", "2024-01-02T00:00:00.000Z")
    assert not is_kept(ts < datetime(2024, 1, 1, tzinfo=UTC), text)
    assert is_kept(ts > datetime(2024, 1, 2, tzinfo=UTC), text)


@pytest.mark.parametrize(
    "written", ["2024-01-01T00:00:00.000", "2024-01-01", "2024-01-01T00:00:00Z"]
)
def test_wall_clock_times(written: str) -> None:
    text = between("n", written, written)
    assert is_kept(n == datetime(2024, 1, 1), text)
    assert not is_kept(n > datetime(2024, 1, 2), text)


@pytest.mark.parametrize(
    "written",
    ["2024-01-01T00:00:00.000", "yesterday", "2024-02-30T00:00:00Z", "+12024-01-01T00:00:00Z"],
)
def test_a_text_that_is_no_instant_is_no_bound(written: str) -> None:
    good = between("ts", "2024-01-01T00:00:00.000Z", "2024-01-01T00:00:00.000Z")
    files = adds(good, between("ts", written, written))
    assert kept(ts > datetime(2024, 6, 1, tzinfo=UTC), files, COLUMNS) == [1]


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        (pc.field("day") == date(2024, 1, 1), True), (pc.field("day") > date(2024, 1, 31), False),
        (pc.field("day") > datetime(2024, 1, 31, 1), False), (pc.field("day") < date(1, 1, 1), False),
    ],
)  # fmt: skip
def test_dates(predicate: Any, expected: bool) -> None:
    assert is_kept(predicate, between("day", "2024-01-01", "2024-01-31")) == expected


@pytest.mark.parametrize(
    "predicate",
    [
        pc.field("g") == pc.scalar(True), pc.field("g"), ~pc.field("g"), pc.field("bin") > b"z",
        pc.field("l").is_null(), pc.field("s").is_null(), t > pc.scalar("a").cast(pa.binary()),
        a > "5", t > 5, ts > datetime(2100, 1, 1), n > datetime(2100, 1, 1, tzinfo=UTC),
    ],
)  # fmt: skip
def test_nothing_follows_from_bounds_without_an_order(predicate: Any) -> None:
    """Of booleans and bytes, only Delta's null counts are used; other pairs don't compare at all."""
    low = {"g": False, "bin": "a", "a": 1, "t": "a", "ts": "2024-01-01T00:00:00.000Z"}
    text = stats(low={**low, "n": "2024-01-01T00:00:00.000"}, high={**low, "n": "2024-01-01T00:00:00.000"},
                 nulls={"g": 0})  # fmt: skip
    assert is_kept(predicate, text)


def test_nested_columns() -> None:
    text = stats(low={"s": {"x": 1}}, high={"s": {"x": 5}}, nulls={"s": {"x": 0}})
    assert not is_kept(pc.field("s", "x") > 5, text)
    assert is_kept(pc.field("s", "x") > 4, text)
    assert not is_kept(pc.field("s", "x").is_null(), text)
    assert not is_kept((pc.field("s", "x") > 5) & (a > 5), text)


def test_columns_compare_with_each_other() -> None:
    text = stats(low={"a": 1, "i": 6}, high={"a": 5, "i": 9}, nulls={})
    assert not is_kept(a > pc.field("i"), text)
    assert not is_kept(a == pc.field("i"), text)
    assert is_kept(a < pc.field("i"), text)
    assert not is_kept(~(a < pc.field("i")), text)
    assert is_kept(a > f, text)
