"""Parse durations in arguments: a timedelta, a number of seconds, or a text from a template."""

from __future__ import annotations

import re
from datetime import timedelta

from airflow_delta.hooks.failures import ArgumentError

__all__ = ["Duration", "as_duration_ms"]

Duration = timedelta | float | str
"""A timedelta, a number of seconds, or a text of one or of an ISO-8601 duration such as ``P7D``."""

_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")
# Without months and years, which have no fixed length.
_ISO = re.compile(
    r"P(?=.)(?:(?P<weeks>[0-9]+)W)?(?:(?P<days>[0-9]+)D)?"
    r"(?:T(?=.)(?:(?P<hours>[0-9]+)H)?(?:(?P<minutes>[0-9]+)M)?(?:(?P<seconds>[0-9]+)S)?)?"
)
_LONGEST = timedelta(days=365_000)


def as_duration_ms(value: Duration | None, *, name: str) -> int | None:
    """Parse a duration to milliseconds; None for None.

    :param value: see `Duration`.
    :param name: the argument's name, for the message.
    :raises ArgumentError: it isn't a duration, is negative or is too long.
    """
    if value is None:
        return None
    duration = value if isinstance(value, timedelta) else _read(str(value).strip())
    if duration is None or not timedelta() <= duration <= _LONGEST:
        raise ArgumentError(
            f"{name}: expected a timedelta, a number of seconds, or an ISO-8601 duration such as P7D, "
            f"found {value!r}"
        )
    return duration // timedelta(milliseconds=1)


def _read(text: str) -> timedelta | None:
    try:
        if _NUMBER.fullmatch(text):
            return timedelta(seconds=float(text))
        if found := _ISO.fullmatch(text.upper()):
            return timedelta(**{unit: int(n) for unit, n in found.groupdict().items() if n})
    except OverflowError:
        return None
    return None
