"""The typed value of a partition value's text, for ``partitionValues_parsed``, as Spark casts it.

If the typed value is null but the text isn't, a reader that prunes by typed values loses the rows
of such files. So a text that readers take for a value must not become null. Readers accept more
texts than the protocol defines ("Partition Value Serialization"). Spark above all: its writers fill
this column with a cast that gives null if it fails. This module follows the rules of that cast
(``CAST`` of a string in Spark SQL, without ANSI mode, in the time zone UTC) for the texts that the
protocol doesn't define; each type has a function here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta, timezone
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation

import numpy as np

from airflow_delta.engine.errors import InvalidTableError
from airflow_delta.engine.model.partition_values import PartitionValue, parse_partition_value
from airflow_delta.engine.model.schema import DataType, DecimalType, PrimitiveType

__all__ = ["cast_text"]

# The characters that Java, and so Spark, trims: all control characters.
_BLANKS = "".join(map(chr, range(0x21)))

_WHOLE = re.compile(r"([+-]?)(\d*)\.\d*", re.ASCII)
_DIGITS = re.compile(r"[-+.\deE]*", re.ASCII)
_SUFFIXED = re.compile(r"(.*\d\.?)[dDfF]", re.ASCII)
_DAY = re.compile(r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?)?", re.ASCII | re.DOTALL)
_MOMENT = re.compile(
    r"(?P<year>\d{4})(?:-(?P<month>\d{1,2})(?:-(?P<day>\d{1,2})"
    r"(?:[ T](?:(?P<hour>\d{1,2})(?::(?P<minute>\d{1,2})(?::(?P<second>\d{1,2})"
    r"(?:\.(?P<fraction>\d*))?(?P<zone>.*))?)?)?)?)?)?",
    re.ASCII,
)
_ZONE = re.compile(
    r"(?:UTC|GMT|UT)?(?:(?P<sign>[+-])(?P<hours>\d{1,2})(?::?(?P<minutes>\d{2}|(?<=:)\d))?"
    r"(?::?(?P<seconds>\d{2}))?)?|Z",
    re.ASCII,
)
_MOST_HOURS = 18  # The bound of java.time.ZoneOffset.

_BOOLEANS: Mapping[str, bool] = {
    **dict.fromkeys(("t", "yes", "y", "1"), True),
    **dict.fromkeys(("f", "no", "n", "0"), False),
}


def cast_text(text: str | None, data_type: DataType) -> PartitionValue | None:
    """The value that readers take a text for; None for null, for "" and if the cast fails.

    Blanks around the text are ignored, except in a string or binary. Years of more than four digits give
    None, because Python has no such times.
    """
    if not text:
        return None
    name = data_type.name if isinstance(data_type, PrimitiveType) else None
    trimmed = text if name in ("string", "binary") else text.strip(_BLANKS)
    try:
        return parse_partition_value(trimmed, data_type)
    except InvalidTableError:
        pass  # Not a text that the protocol defines.
    try:
        if isinstance(data_type, DecimalType):
            return _decimal(trimmed, data_type)
        if name in _INTEGERS:
            return _integer(trimmed, data_type)
        return _CASTS[name](trimmed) if name in _CASTS else None
    except (ValueError, OverflowError, InvalidOperation, InvalidTableError):
        return None


def _integer(text: str, data_type: DataType) -> PartitionValue | None:
    """A number with decimals, which are cut off."""
    match = _WHOLE.fullmatch(text)
    return None if match is None else parse_partition_value(f"{match[1]}{match[2] or 0}", data_type)


def _double(text: str) -> float:
    """A number with a ``d`` or ``f`` behind it."""
    match = _SUFFIXED.fullmatch(text)
    number = parse_partition_value(text if match is None else match[1], PrimitiveType("double"))
    assert isinstance(number, float)
    return number


def _float(text: str) -> float:
    """Likewise; a number that is too large is infinite."""
    with np.errstate(over="ignore"):
        return float(np.float32(_double(text)))


def _decimal(text: str, data_type: DecimalType) -> Decimal | None:
    """A number with more decimals than there is room for, rounded half up."""
    if _DIGITS.fullmatch(text) is None:
        return None  # Python accepts more, such as underscores.
    # More digits than any number has here, so only the scale causes rounding.
    context = Context(prec=len(text) + 2 * 38, rounding=ROUND_HALF_UP, traps=[InvalidOperation])
    rounded = Decimal(text).quantize(Decimal((0, (1,), -data_type.scale)), context=context)
    whole = parse_partition_value(str(rounded), data_type)
    return whole if isinstance(whole, Decimal) else None


def _boolean(text: str) -> bool | None:
    return _BOOLEANS.get(text.lower())


def _date(text: str) -> date | None:
    """A year, or a month, alone; anything behind a blank or a ``T`` is ignored."""
    match = _DAY.fullmatch(text)
    return None if match is None else date(*(int(part or 1) for part in match.groups()))


def _timestamp_ntz(text: str) -> datetime | None:
    """The same texts as of a timestamp; the zone is ignored."""
    match = _MOMENT.fullmatch(text)
    if match is None or _offset(match["zone"]) is None:
        return None
    return _wall_clock(match)


def _timestamp(text: str) -> datetime | None:
    """A date alone; no minutes or seconds; more decimals, which are cut off; other spellings of zones."""
    match = _MOMENT.fullmatch(text)
    offset = None if match is None else _offset(match["zone"])
    if match is None or offset is None:
        return None
    return (_wall_clock(match) - offset).replace(tzinfo=timezone.utc)


def _wall_clock(match: re.Match[str]) -> datetime:
    year, month, day = (int(match[part] or 1) for part in ("year", "month", "day"))
    hour, minute, second = (int(match[part] or 0) for part in ("hour", "minute", "second"))
    microsecond = int((match["fraction"] or "")[:6].ljust(6, "0"))
    return datetime(year, month, day, hour, minute, second, microsecond)


def _offset(zone: str | None) -> timedelta | None:
    """The offset of a zone from UTC; None if it is no zone, or a region name."""
    match = _ZONE.fullmatch((zone or "").strip(_BLANKS))
    if match is None:
        return None
    hours, minutes, seconds = (int(match[part] or 0) for part in ("hours", "minutes", "seconds"))
    if hours > _MOST_HOURS or minutes > 59 or seconds > 59:
        return None
    offset = timedelta(hours=hours, minutes=minutes, seconds=seconds)
    return -offset if match["sign"] == "-" else offset


_INTEGERS = ("byte", "short", "integer", "long")

_CASTS: Mapping[str | None, Callable[[str], PartitionValue | None]] = {
    "float": _float,
    "double": _double,
    "boolean": _boolean,
    "date": _date,
    "timestamp": _timestamp,
    "timestamp_ntz": _timestamp_ntz,
}
