"""Parse intervals in table properties, such as ``interval 30 days``, into milliseconds.

Properties such as ``delta.logRetentionDuration`` have a calendar interval as in Spark: pairs of a whole
number and a unit, in any case, perhaps after the word ``interval``::

    interval 1 week        7 days        1 week 2 hours 30 minutes

Months and years are refused, because their length depends on the date. Negative intervals are refused too.
The sum is rounded down to milliseconds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from airflow_delta.engine.errors import InvalidTableError

__all__ = ["parse_interval"]

_MICROSECONDS: Mapping[str, int] = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_CALENDAR_UNITS = frozenset({"month", "year"})
_MAX_MS = 2**63 - 1
_MAX_DIGITS = 20
_TOO_LONG = "its milliseconds don't fit into 64 bits"
_PART = re.compile(r"([+-]?\d+)\s+([a-z]+)(?:\s+|$)", re.ASCII)


def parse_interval(text: str) -> int:
    """The length of an interval in milliseconds.

    Raises:
        InvalidTableError: the text is no interval, is negative, has units without a fixed length
            (months, years) or doesn't fit 64 bits. Facts: value.
    """
    parts = text.strip().lower()
    if parts.split(maxsplit=1)[:1] == ["interval"]:
        parts = parts.removeprefix("interval").lstrip()
    if not parts:
        raise _invalid(text, "it has no parts")
    position = microseconds = 0
    while position < len(parts):
        part = _PART.match(parts, position)
        if part is None:
            raise _invalid(text, f"{parts[position:]!r} is no whole number followed by a unit")
        microseconds += _as_microseconds(part[1], part[2], text)
        position = part.end()
    if microseconds < 0:
        raise _invalid(text, "it is negative")
    milliseconds = microseconds // 1_000
    if milliseconds > _MAX_MS:
        raise _invalid(text, _TOO_LONG)
    return milliseconds


def _as_microseconds(number: str, unit: str, text: str) -> int:
    name = unit.removesuffix("s")
    if name in _CALENDAR_UNITS:
        raise _invalid(text, f"the length of a {name} depends on the date")
    if name not in _MICROSECONDS:
        raise _invalid(text, f"{unit!r} is no unit of time")
    if len(number) > _MAX_DIGITS:  # Python refuses to read numbers of thousands of digits
        raise _invalid(text, _TOO_LONG)
    return int(number) * _MICROSECONDS[name]


def _invalid(text: str, reason: str) -> InvalidTableError:
    return InvalidTableError(
        f"{text!r} is no valid interval: {reason}; expected for example 'interval 7 days' or "
        "'interval 1 week 2 hours'",
        value=text,
    )
