"""Convert the log's times, in epoch milliseconds, to aware datetimes and to text."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

__all__ = ["EPOCH", "duration_text", "utc_datetime", "utc_text"]

_UNITS_MS = (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000))

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
"""The time 0 of the log."""


def utc_datetime(timestamp_ms: int | None) -> datetime | None:
    """Convert a time in epoch milliseconds to an aware datetime in UTC.

    Args:
        timestamp_ms: the time, or None.

    Returns:
        The datetime; None for None, and for times that Python's calendar, with the years 1 to 9999, lacks.
        A log may contain any number.
    """
    if timestamp_ms is None:
        return None
    try:
        return EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return None


def utc_text(timestamp_ms: int) -> str:
    """Convert a time in epoch milliseconds to ISO-8601 in UTC, such as ``2026-01-31T12:00:00.000Z``.

    A number that is no time in Python's calendar becomes its digits.
    """
    moment = utc_datetime(timestamp_ms)
    if moment is None:
        return str(timestamp_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def duration_text(duration_ms: int) -> str:
    """A duration as exact, readable text, such as ``7 days`` or ``1 hour 30 minutes``.

    Args:
        duration_ms: the duration in milliseconds, at least 0.
    """
    parts, rest_ms = [], duration_ms
    for unit, unit_ms in _UNITS_MS:
        count, rest_ms = divmod(rest_ms, unit_ms)
        if count:
            parts.append(f"{count:,} {unit}{'' if count == 1 else 's'}")
    if rest_ms or not parts:
        seconds = f"{rest_ms / 1000:.3f}".rstrip("0").rstrip(".")
        parts.append(f"{seconds} second{'' if seconds == '1' else 's'}")
    return " ".join(parts)
