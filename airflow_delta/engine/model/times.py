"""Points in time: the log's epoch milliseconds as aware datetimes, and as text."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

__all__ = ["EPOCH", "duration_text", "utc_datetime", "utc_text"]

_UNITS_MS = (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000))

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def utc_datetime(timestamp_ms: int | None) -> datetime | None:
    """A point in time in epoch milliseconds as an aware datetime in UTC.

    Args:
        timestamp_ms: the point in time; None for none.

    Returns:
        The datetime. None where there is no point in time, or none that Python's calendar, the years 1 to
        9999, has: a log is free to hold any number.
    """
    if timestamp_ms is None:
        return None
    try:
        return EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return None


def utc_text(timestamp_ms: int) -> str:
    """A point in time in epoch milliseconds as ISO-8601 in UTC, such as ``2026-01-31T12:00:00.000Z``.

    A log is free to hold any number; one that is no time of our calendar becomes its digits.
    """
    moment = utc_datetime(timestamp_ms)
    if moment is None:
        return str(timestamp_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def duration_text(duration_ms: int) -> str:
    """A duration for people, exactly, such as ``7 days`` or ``1 hour 30 minutes``.

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
