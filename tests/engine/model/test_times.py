"""Points in time: numbers of the log as datetimes and texts."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from airflow_delta.engine.model.actions import CommitInfo
from airflow_delta.engine.model.times import duration_text, utc_datetime, utc_text


def test_a_number_of_the_log_is_an_aware_datetime() -> None:
    moment = utc_datetime(1_769_860_800_123)
    assert moment == datetime(2026, 1, 31, 12, 0, 0, 123000, tzinfo=timezone.utc)
    assert moment is not None
    assert moment.utcoffset() == timedelta(0)
    assert utc_datetime(-1) == datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=timezone.utc)
    assert utc_datetime(None) is None


@pytest.mark.parametrize("number", [10**18, -(10**18), 2**63 - 1])
def test_a_number_that_no_calendar_has_is_no_datetime(number: int) -> None:
    assert utc_datetime(number) is None
    assert utc_text(number) == str(number)
    info = CommitInfo.from_json({"timestamp": number}, version=3)
    assert (info.timestamp, info.timestamp_ms) == (None, number)
    assert info.to_dict()["timestamp"] == str(number)


def test_the_times_of_a_commit() -> None:
    raw = {"timestamp": 1_000, "inCommitTimestamp": 2_500}
    info = CommitInfo.from_json(raw, version=3)
    assert info.timestamp == datetime(1970, 1, 1, 0, 0, 1, tzinfo=timezone.utc)
    assert info.in_commit_timestamp == datetime(1970, 1, 1, 0, 0, 2, 500000, tzinfo=timezone.utc)
    assert (info.timestamp_ms, info.in_commit_timestamp_ms) == (1_000, 2_500)
    # The log keeps the protocol's field.
    assert info.to_json() == raw


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(), "0 seconds"),
        (timedelta(seconds=1), "1 second"),
        (timedelta(milliseconds=1), "0.001 seconds"),
        (timedelta(minutes=90), "1 hour 30 minutes"),
        (timedelta(days=7), "7 days"),
        (timedelta(days=1200, hours=1, seconds=2.5), "1,200 days 1 hour 2.5 seconds"),
    ],
)
def test_a_duration_is_exact(duration: timedelta, text: str) -> None:
    assert duration_text(duration // timedelta(milliseconds=1)) == text
