"""Ranks against a search in sorted Python values."""

from __future__ import annotations

import datetime as dt
from bisect import bisect_left
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_delta.engine.maintenance.optimize.sorting.ranks import make_ranks, shortened
from airflow_delta.engine.maintenance.optimize.sorting.text_ranks import MOST_BYTES, TextRanks

TEXTS = st.one_of(
    st.text("ab", max_size=20),
    st.text(max_size=60),
    st.builds("https://www.example.com/{}".format, st.text("abé", max_size=40)),
)


@given(st.lists(TEXTS, max_size=30), st.lists(st.none() | TEXTS, max_size=30), st.integers(0, 3))
def test_the_rank_of_a_text_counts_the_smaller_boundaries(
    bounds: list[str], values: list[str | None], offset: int
) -> None:
    keys = sorted(_key(text) for text in bounds)
    ordered = pa.array(sorted(bounds, key=str.encode), pa.string())
    found = TextRanks(ordered).ranks(pa.array([*"xyz"[:offset], *values], pa.string())[offset:])
    expected = [0 if text is None else bisect_left(keys, _key(text)) for text in values]
    assert found.tolist() == expected


def _key(text: str) -> bytes:
    return text.encode()[:MOST_BYTES].ljust(MOST_BYTES, b"\0")


DAY = dt.date(2026, 1, 1)
NAN = float("nan")
ASCENDING: dict[str, tuple[pa.DataType, list[Any]]] = {
    "long": (pa.int64(), [-(1 << 63), -5, 0, 7, (1 << 63) - 1]),
    "byte": (pa.int8(), [-128, -1, 0, 1, 127]),
    "double": (pa.float64(), [float("-inf"), -1.5, 0.0, 1e300, float("inf"), NAN]),
    "float": (pa.float32(), [-1.5, 0.0, 2.5, NAN]),
    "decimal": (
        pa.decimal128(38, 2),
        [Decimal("-1e30"), Decimal("-0.01"), Decimal("5"), Decimal("1e33")],
    ),
    "date": (pa.date32(), [DAY - dt.timedelta(90000), DAY, DAY + dt.timedelta(1)]),
    "timestamp": (
        pa.timestamp("us", "UTC"),
        [
            dt.datetime(1, 1, 1, tzinfo=dt.timezone.utc),
            dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc),
        ],
    ),
    "timestamp_ntz": (pa.timestamp("us"), [dt.datetime(1960, 1, 1), dt.datetime(9999, 12, 31)]),
    "boolean": (pa.bool_(), [False, True]),
    "string": (pa.string(), ["", "a", "b", "é", "\U0001f600"]),
    "binary": (pa.binary(), [b"", b"\x01", b"\x80", b"\xff"]),
}


@pytest.mark.parametrize("name", ASCENDING)
def test_ranks_follow_the_order_of_the_type(name: str) -> None:
    type_, values = ASCENDING[name]
    ranks = make_ranks(pa.array([None, *reversed(values)] * 3, type_), bits=4)
    # As many different ranks as values, from 0 on; null is in the first range.
    found = ranks(pa.array([*values, None], type_)).tolist()
    assert found[:-1] == sorted(set(found[:-1]))
    assert (found[0], found[-1]) == (0, 0)
    assert max(found) < 16
    assert ranks(pa.array([None], type_)).tolist() == [0]
    assert ranks(pa.array([], type_)).tolist() == []


@pytest.mark.parametrize("type_", [pa.int64(), pa.float64(), pa.string(), pa.decimal128(38, 2)])
def test_a_column_of_nulls_has_rank_0(type_: pa.DataType) -> None:
    ranks = make_ranks(pa.nulls(3, type_), bits=4)
    assert ranks(pa.nulls(2, type_)).tolist() == [0, 0]
    assert ranks(pa.array([1, 2]).cast(type_)).tolist() == [0, 0]


def test_ranges_have_equally_many_rows() -> None:
    ranks = make_ranks(pa.array([*range(1000)]), bits=2)
    found = ranks(pa.array([*range(1000)])).tolist()
    assert all(240 <= found.count(rank) <= 260 for rank in range(4))


def test_a_sample_keeps_the_beginning_of_long_texts() -> None:
    whole = pa.array(["é" * 1000, None])
    assert shortened(whole).to_pylist() == ["é".encode() * (MOST_BYTES // 2), None]
    assert shortened(pa.array([b"a" * 1000])).to_pylist() == [b"a" * MOST_BYTES]
    assert shortened(pa.array([5])).to_pylist() == [5]
