"""Durations as arguments hold them once rendered."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from airflow_delta.operators.durations import as_duration_ms

DAY = 86_400_000


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (timedelta(days=7), 7 * DAY),
        (0, 0),
        (86400, DAY),
        (1.5, 1500),
        ("86400", DAY),
        (" 0.25 ", 250),
        ("P7D", 7 * DAY),
        ("p1w", 7 * DAY),
        ("P1DT12H", DAY * 3 // 2),
        ("PT90M", 5_400_000),
        ("PT1H1M1S", 3_661_000),
        (None, None),
    ],
)
def test_durations(value: Any, expected: int | None) -> None:
    assert as_duration_ms(value, name="expire_after") == expected


@pytest.mark.parametrize(
    "value",
    [
        "",
        "None",
        "P",
        "PT",
        "P1M",
        "P1Y",
        "P1.5D",
        "7 days",
        "-1",
        -1,
        timedelta(-1),
        True,
        "nan",
        "inf",
        "9" * 400,
        "P9999999999D",
    ],
)
def test_no_durations(value: Any) -> None:
    with pytest.raises(ValueError, match="expire_after: expected a timedelta, a number of seconds"):
        as_duration_ms(value, name="expire_after")
