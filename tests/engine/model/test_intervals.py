from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_delta.engine.errors import InvalidTableError
from airflow_delta.engine.model.intervals import parse_interval

MS = {
    "millisecond": 1,
    "second": 1000,
    "minute": 60 * 1000,
    "hour": 3600 * 1000,
    "day": 24 * 3600 * 1000,
    "week": 7 * 24 * 3600 * 1000,
}


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("interval 30 days", 30),
        ("INTERVAL 30 DAYS", 30),
        ("Interval 1 Week", 7),
        ("7 days", 7),
        ("  interval   1   week   1 day ", 8),
        ("1 week -1 day", 6),
        ("+1 day", 1),
        ("0 seconds", 0),
        ("interval 1 day\t24 hours", 2),
    ],
)
def test_an_interval_is_so_many_milliseconds(text: str, days: int) -> None:
    assert parse_interval(text) == days * MS["day"]


def test_parts_below_a_millisecond_count_together() -> None:
    assert parse_interval("1 millisecond 999 microseconds") == 1
    assert parse_interval("600 microseconds 400 microseconds") == 1


@given(
    st.lists(st.tuples(st.integers(0, 10_000), st.sampled_from(sorted(MS))), min_size=1, max_size=6)
)
@settings(max_examples=50)
def test_parts_add_up(parts: list[tuple[int, str]]) -> None:
    text = " ".join(f"{number} {unit}{'s' if number != 1 else ''}" for number, unit in parts)
    assert parse_interval(text) == sum(number * MS[unit] for number, unit in parts)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no parts"),
        ("interval", "no parts"),
        ("1 month", "length of a month depends on the date"),
        ("interval 2 years", "length of a year depends on the date"),
        ("-1 day", "negative"),
        ("1 day -25 hours", "negative"),
        ("1.5 days", "no whole number"),
        ("7", "no whole number"),
        ("days 7", "no whole number"),
        ("7days", "no whole number"),
        ("7 days,", "no whole number"),
        ("7 fortnights", "'fortnights' is no unit"),
        ("7 dayss", "'dayss' is no unit"),
        ("intervals 7 days", "no whole number"),
        ("interval7 days", "no whole number"),
        ("7 interval days", "'interval' is no unit"),
        ("9223372036854775808 milliseconds", "64 bits"),
        ("9" * 5000 + " days", "64 bits"),
    ],
)
def test_what_is_no_interval(text: str, reason: str) -> None:
    with pytest.raises(InvalidTableError, match=f"no valid interval: .*{reason}") as caught:
        parse_interval(text)
    assert caught.value.value == text


def test_the_longest_interval() -> None:
    assert parse_interval("9223372036854775807 milliseconds") == 2**63 - 1
