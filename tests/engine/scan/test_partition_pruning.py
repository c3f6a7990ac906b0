"""Partition values are compared typed and exactly."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.engine.scan.rows import adds, kept, schema, stats

UTC = timezone.utc
p = pc.field("p")


def matches(type_: str, texts: list[str | None], predicate: Any) -> list[int]:
    files = adds(*[None] * len(texts), partitions=[{"p": text} for text in texts])
    columns = schema(p=type_, q="string", a="long")
    both = (predicate, predicate & (pc.field("a") == pc.field("a")))
    # Once by evaluating the predicate on the values, once as bounds beside those of a data column.
    alone, beside = (kept(each, files, columns, partition_columns=("p", "q")) for each in both)
    assert alone == beside
    return alone


@pytest.mark.parametrize(
    ("type_", "texts", "predicate", "expected"),
    [
        ("string", ["a", "b", "", None, "null", "__HIVE_DEFAULT_PARTITION__"], p == "null", [4]),
        ("string", ["a", "", None], p.is_null(), [1, 2]),
        ("string", ["a", "", None], p == "", []),
        ("string", ["a", "", None], p != "b", [0]),
        ("string", ["a", "", None], ~(p == "a"), []),
        ("string", ["a", "b", None], ~p.isin(["a"]), [1, 2]),
        ("string", ["a", "b", None], p.isin(["a", None]), [0, 2]),
        ("string", ["\uff5e", "\U0001f600"], p > "\uff5e", [1]),
        ("string", ["__HIVE_DEFAULT_PARTITION__"], p.is_null(), []),
        ("long", ["9", "10", "-0", "+7", None], p > 7, [0, 1]),
        ("long", ["9", "10", "-0", "+7"], p == 0, [2]),
        ("long", ["9", "10", "11"], p.isin(list(range(10, 200, 2))), [1]),
        ("byte", ["1", "2"], p > 300, []),
        ("byte", ["1", "2"], ~p.isin([1, 300]), [1]),
        ("double", ["1e3", "-0", "2.5", "Infinity"], p == 1000, [0]),
        ("double", ["1.0", None, "7.0"], ~p.isin([0.0, 1.0]), [1, 2]),
        ("float", ["0.0", None, "-0.0"], ~p.isin([0.0, 1.0]), [0, 1, 2]),
        ("double", ["1e3", "-0", "-Infinity"], p < 0, [2]),
        ("decimal(10,1)", ["1.10", "1.1", "2"], p == Decimal("1.1"), [0, 1]),
        ("decimal(10,1)", ["1.10", "1.1", "2"], p > 1.5, [2]),
        ("date", ["0001-01-01", "2024-1-5", "2024-01-05"], p == date(2024, 1, 5), [1, 2]),
        ("date", ["0001-01-01"], p < date(1, 1, 2), [0]),
        ("date", ["2024-01-03", "2024-01-04", None],
         p.isin(pa.array([datetime(2024, 1, 3, 12)], pa.timestamp("us"))), [0]),
        ("decimal(10,1)", ["1.10", "1.2", None], p.isin([1.12, 7.0]), [0]),
        ("timestamp_ntz", ["2024-01-01 00:00:00", "2024-01-01 00:00:00.000001"],
         p.isin([date(2024, 1, 1)]), [0]),
        ("boolean", ["true", "FALSE", None], p, [0]),
        ("boolean", ["true", "FALSE", None], ~p, [1]),
        ("binary", ["\u00ff", "a"], p == b"\xc3\xbf", [0]),
        ("timestamp_ntz", ["2024-01-01 00:00:00", "2024-01-01 00:00:00.000001"],
         p > datetime(2024, 1, 1), [1]),
    ],
)  # fmt: skip
def test_values_compare_by_type(
    type_: str, texts: list[str | None], predicate: Any, expected: list[int]
) -> None:
    assert matches(type_, texts, predicate) == expected


def test_an_instant_has_many_texts() -> None:
    texts = [
        "2024-01-01 00:00:00", "2024-01-01T00:00:00Z", "2024-01-01 05:30:00+05:30",
        "2023-12-31T16:00:00.000000-0800", "2024-01-01 00:00:00.000001",
    ]  # fmt: skip
    assert matches("timestamp", texts, p == datetime(2024, 1, 1, tzinfo=UTC)) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        ("long", "x"), ("long", "1e3"), ("decimal(10,1)", "1.15"), ("date", "2024-02-30"),
        ("timestamp", "2016-12-31 23:59:60"), ("boolean", "1"), ("long", "__HIVE_DEFAULT_PARTITION__"),
        ("timestamp_ntz", "2024-02-30"),
    ],
)  # fmt: skip
def test_a_text_that_is_no_value_keeps_its_file(type_: str, text: str) -> None:
    assert matches(type_, [text, None, ""], p.is_valid()) == [0]
    assert matches(type_, [text, None, ""], p.is_null()) == [0, 1, 2]
    assert matches(type_, [text, None], p == p) == [0]


def test_nan_keeps_its_file_where_engines_disagree() -> None:
    assert matches("double", ["NaN", "1.0"], p > 5) == [0]
    assert matches("double", ["2.0", "7.0"], p > 5) == [1]
    assert matches("double", ["NaN", None], p.is_null()) == [1]


@pytest.mark.parametrize("type_", ["double", "float"])
@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        # Spark: NaN is greater than all else, and equals itself. Arrow: it is neither, and equals nothing.
        (p > 5, [0, 3]),
        (p >= 7, [0, 3]),
        (p < 7, [1]),
        (p == 1.0, [1]),
        (p != 1.0, [0, 3]),
        (~(p == 1.0), [0, 3]),
        (~(p > 5), [0, 1]),
        (~(p < 5), [0, 3]),
        (pc.scalar(5.0) < p, [0, 3]),
        (pc.scalar(5.0) > p, [1]),
        (p == p, [0, 1, 3]),
        (p != p, [0]),
        (p.isin([1.0, 2.0]), [1]),
        (~p.isin([1.0, 2.0]), [0, 2, 3]),
        (p.isin([7.0, float("nan")]), [0, 3]),
        (p.isin([float(n) for n in range(2, 200)]), [3]),
        (~p.isin([float(n) for n in range(2, 200)]), [0, 1, 2]),
        (p.is_null(nan_is_null=True), [0, 2]),
        (p.is_null(), [2]),
        (p.is_null(nan_is_null=True) & ~p.is_null(), [0]),
        ((p == 1.0) | p.is_null(), [1, 2]),
    ],
    ids=str,
)
def test_nan_doesnt_keep_the_files_of_other_partitions(
    type_: str, predicate: Any, expected: list[int]
) -> None:
    assert matches(type_, ["NaN", "1.0", None, "7.0"], predicate) == expected


def test_any_function_of_partition_columns_is_evaluated() -> None:
    assert matches_alone("string", ["ab", "b", None], pc.starts_with(p, "a")) == [0]
    assert matches_alone("long", ["1", "2", None], p + 1 == 3) == [1]
    assert matches_alone("date", ["2024-01-05", "2023-01-05"], pc.year(p) == 2024) == [0]


def matches_alone(type_: str, texts: list[str | None], predicate: Any) -> list[int]:
    files = adds(*[None] * len(texts), partitions=[{"p": text} for text in texts])
    return kept(predicate, files, schema(p=type_), partition_columns=("p",))


def test_a_predicate_that_fails_on_the_values_keeps_all() -> None:
    assert matches_alone("long", ["1", "2"], p == "a") == [0, 1]
    assert matches_alone("long", ["1", "0"], pc.divide(pc.scalar(1), p) == 1) == [0, 1]


def test_maps_of_any_shape() -> None:
    """Keys in another order, missing keys, more keys, and no map at all."""
    maps = [
        {"p": "1", "q": "x"}, {"q": "x", "p": "2"}, {"p": "2"}, {"q": "2"}, {},
        {"other": "2", "p": "2", "q": None},
    ]  # fmt: skip
    files = adds(*[None] * len(maps), partitions=maps)
    columns = schema(p="long", q="string", a="long")

    def chosen(predicate: Any, table: pa.Table) -> list[int]:
        return kept(predicate, table, columns, partition_columns=("p", "q"))

    assert chosen(p == 2, files) == [1, 2, 5]
    assert chosen(p == 2, files.slice(1, 2)) == [1, 2]
    assert chosen(p.is_null(), files) == [3, 4]
    assert chosen((p == 2) & (pc.field("q") == "x"), files) == [1]
    regular = files.take([0, 0, 5]).slice(0, 2)
    assert chosen(p == 1, regular) == [0, 0]
    absent = files.set_column(1, "partitionValues", pa.nulls(6, files["partitionValues"].type))
    assert chosen(p.is_valid(), absent) == []


def test_partition_and_data_columns_together() -> None:
    columns = schema(p="long", a="long")
    low, high = stats(low={"a": 1}, high={"a": 5}), stats(low={"a": 6}, high={"a": 9})
    files = adds(low, high, low, high, partitions=[{"p": text} for text in ("1", "1", "2", None)])

    def chosen(predicate: Any) -> list[int]:
        return kept(predicate, files, columns, partition_columns=("p",))

    a = pc.field("a")
    assert chosen((p == 1) & (a > 5)) == [1]
    assert chosen((p == 2) | (a > 5)) == [1, 2, 3]
    assert chosen(p.is_null() & (a > 5)) == [3]
    assert chosen(~((p == 1) | (a > 5))) == [2]
    assert chosen(a > p) == [0, 1, 2]
    assert chosen((p == 3) & (a > 5)) == []
