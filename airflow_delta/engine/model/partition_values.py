"""Convert partition values between the text in ``partitionValues`` and typed Python values.

`_PARSERS` and `_WRITERS` have a function for each type, `_EXPECTED` describes the texts. Empty text is null
for every type, even for strings. A text that is no value of its type is an error: null would silently move
the rows of the file into another partition. One value has several texts, so values are compared typed.

A timestamp without a time zone is in UTC. Newer writers add a zone, as in ``1970-01-01T00:00:00.123456Z``.
If the column's type is widened, older files keep their texts, so a text of a narrower type is read too.
``__HIVE_DEFAULT_PARTITION__`` only means null in directory names; here it is an ordinary string.

PROTOCOL.md, "Partition Value Serialization".
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta, timezone
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any, TypeAlias

from airflow_delta.engine.errors import InvalidArgumentError, InvalidTableError
from airflow_delta.engine.model.schema import DataType, DecimalType, PrimitiveType

__all__ = ["PartitionValue", "has_zone", "parse_partition_value", "serialize_partition_value"]

PartitionValue: TypeAlias = "str | int | float | Decimal | bool | date | datetime | bytes"
"""A typed partition value that isn't null.

A decimal has the scale of its type, a timestamp is in UTC, and a timestamp_ntz has no time zone.
"""

_INTEGER_BITS: Mapping[str, int] = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_INTEGER = re.compile(r"[+-]?\d{1,40}", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,4})?", re.ASCII)
_SPECIAL_FLOATS: Mapping[str, float] = {
    "nan": math.nan,
    "infinity": math.inf,
    "+infinity": math.inf,
    "-infinity": -math.inf,
    "inf": math.inf,
    "+inf": math.inf,
    "-inf": -math.inf,
}
_DATE = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})", re.ASCII)
_TIMESTAMP = re.compile(
    r"(?P<date>\d{4}-\d{1,2}-\d{1,2})[ T](?P<hour>\d{1,2}):(?P<minute>\d{1,2}):(?P<second>\d{1,2})"
    r"(?:\.(?P<fraction>\d{1,6}))?(?P<zone>Z|[+-]\d{2}:?\d{2})?",
    re.ASCII,
)
# Exact: a value that would have to be rounded raises, and so does one with too many digits.
_EXACT = Context(prec=38, traps=[Inexact, InvalidOperation])


def parse_partition_value(text: str | None, data_type: DataType) -> PartitionValue | None:
    """Parse a text of ``partitionValues``; None for null and for "".

    Raises:
        InvalidTableError: the text is no value of the type, or the type is none by which a table can be
            partitioned. Facts: value, type.
    """
    if text is None or text == "":
        return None
    try:
        if isinstance(data_type, DecimalType):
            return _parse_decimal(text, data_type)
        if isinstance(data_type, PrimitiveType) and data_type.name in _PARSERS:
            return _PARSERS[data_type.name](text)
    except (ValueError, OverflowError, Inexact, InvalidOperation) as error:
        raise InvalidTableError(
            f"partition value {text!r} is no {data_type}; expected {_expected(data_type)}",
            value=text,
            type=str(data_type),
        ) from error
    raise InvalidTableError(
        f"partition value {text!r}: a {data_type} can't partition a table",
        value=text,
        type=str(data_type),
    )


def serialize_partition_value(value: PartitionValue | None, data_type: DataType) -> str | None:
    """Write a value as text for ``partitionValues``; None for null and for values with an empty text.

    Raises:
        InvalidArgumentError: the value isn't of the type: it has another Python type, is out of range, or
            is a datetime that has a time zone but must have none, or the reverse. Facts: value, type.
    """
    if value is None:
        return None
    try:
        if isinstance(data_type, DecimalType):
            return _write_decimal(value, data_type) or None
        if isinstance(data_type, PrimitiveType) and data_type.name in _WRITERS:
            return _WRITERS[data_type.name](value) or None
    except (TypeError, ValueError, OverflowError, Inexact, InvalidOperation) as error:
        raise InvalidArgumentError(
            f"{value!r} is no partition value of type {data_type}{_WRITTEN_ONLY.get(str(data_type), '')}",
            value=value,
            type=str(data_type),
        ) from error
    raise InvalidArgumentError(
        f"{value!r}: a {data_type} can't partition a table", value=value, type=str(data_type)
    )


def has_zone(text: str) -> bool:
    """Whether a text is a timestamp with a time zone.

    Some readers, such as Spark, read a timestamp without one in the zone of their session.
    """
    match = _TIMESTAMP.fullmatch(text)
    return match is not None and match["zone"] is not None


def _parse_integer(bits: int) -> Callable[[str], int]:
    def _parse(text: str) -> int:
        if _INTEGER.fullmatch(text) is None:
            raise ValueError(text)
        return _in_range(int(text), bits)

    return _parse


def _parse_double(text: str) -> float:
    special = _SPECIAL_FLOATS.get(text.lower())
    if special is not None:
        return special
    # Python's float() reads more: underscores, blanks, digits of other scripts.
    if _NUMBER.fullmatch(text) is None:
        raise ValueError(text)
    return float(text)


def _parse_float(text: str) -> float:
    return _single_precision(_parse_double(text))


def _parse_decimal(text: str, data_type: DecimalType) -> Decimal:
    if _NUMBER.fullmatch(text) is None:
        raise ValueError(text)
    return _rescaled(Decimal(text), data_type)


def _parse_boolean(text: str) -> bool:
    lower = text.lower()
    if lower not in ("true", "false"):
        raise ValueError(text)
    return lower == "true"


def _parse_date(text: str) -> date:
    match = _DATE.fullmatch(text)
    if match is None:
        raise ValueError(text)
    return date(int(match[1]), int(match[2]), int(match[3]))


def _parse_timestamp_ntz(text: str) -> datetime:
    if _DATE.fullmatch(text) is not None:  # a file from before a date was widened
        return datetime.combine(_parse_date(text), time())
    match = _TIMESTAMP.fullmatch(text)
    if match is None or match["zone"]:
        raise ValueError(text)
    return _wall_clock(match)


def _parse_timestamp(text: str) -> datetime:
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise ValueError(text)
    return (_wall_clock(match) - _offset(match["zone"])).replace(tzinfo=timezone.utc)


def _wall_clock(match: re.Match[str]) -> datetime:
    day = _parse_date(match["date"])
    microsecond = int((match["fraction"] or "").ljust(6, "0"))
    hour, minute, second = (int(match[part]) for part in ("hour", "minute", "second"))
    return datetime(day.year, day.month, day.day, hour, minute, second, microsecond)


def _offset(zone: str | None) -> timedelta:
    if zone is None or zone == "Z":
        return timedelta()
    hours, minutes = int(zone[1:3]), int(zone[-2:])
    if hours > 18 or minutes > 59:  # the bounds of java.time.ZoneOffset
        raise ValueError(zone)
    offset = timedelta(hours=hours, minutes=minutes)
    return -offset if zone[0] == "-" else offset


def _parse_binary(text: str) -> bytes:
    # The specification doesn't define bytes beyond ASCII. Delta Spark and both kernels use UTF-8.
    return text.encode()  # half of a surrogate pair, which JSON can escape, raises a ValueError


def _write_string(value: Any) -> str:
    return str(_instance(value, str))


def _write_integer(bits: int) -> Callable[[Any], str]:
    def _write(value: Any) -> str:
        return str(_in_range(_instance(value, int), bits))

    return _write


def _write_double(value: Any) -> str:
    number = float(_instance(value, float | int))
    if math.isfinite(number):
        return repr(number)
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def _write_float(value: Any) -> str:
    number = _single_precision(float(_instance(value, float | int)))
    if not math.isfinite(number):
        return _write_double(number)
    # The shortest text that reads back as the same single-precision number; 9 digits always do.
    for digits in range(1, 9):
        shortest = float(f"{number:.{digits}g}")
        if _single_precision_or_infinity(shortest) == number:
            return repr(shortest)
    return repr(float(f"{number:.9g}"))


def _write_decimal(value: Any, data_type: DecimalType) -> str:
    return f"{_rescaled(Decimal(_instance(value, Decimal | int)), data_type):f}"


def _write_boolean(value: Any) -> str:
    if not isinstance(value, bool):
        raise TypeError(value)
    return "true" if value else "false"


def _write_date(value: Any) -> str:
    if isinstance(value, datetime):  # a subclass of date, whose time would be lost
        raise TypeError(value)
    return str(_instance(value, date).isoformat())


def _write_timestamp(value: Any) -> str:
    moment = _instance(value, datetime)
    if moment.utcoffset() is None:
        raise ValueError("a timestamp needs a time zone")
    return _write_wall_clock(moment.astimezone(timezone.utc).replace(tzinfo=None))


def _write_timestamp_ntz(value: Any) -> str:
    wall_clock = _instance(value, datetime)
    if wall_clock.tzinfo is not None:
        raise ValueError("a timestamp_ntz has no time zone")
    return _write_wall_clock(wall_clock)


def _write_wall_clock(value: datetime) -> str:
    return value.isoformat(sep=" ", timespec="microseconds" if value.microsecond else "seconds")


def _write_binary(value: Any) -> str:
    return str(_instance(value, bytes).decode())  # other bytes than UTF-8 raise a ValueError


def _instance(value: Any, kind: Any) -> Any:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise TypeError(value)
    return value


def _in_range(number: int, bits: int) -> int:
    if not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
        raise OverflowError(number)
    return number


def _single_precision(number: float) -> float:
    rounded: float = struct.unpack("<f", struct.pack("<f", number))[0]
    return rounded


def _single_precision_or_infinity(number: float) -> float:
    try:
        return _single_precision(number)
    except OverflowError:  # rounding to few digits may step over the largest float
        return math.copysign(math.inf, number)


def _rescaled(number: Decimal, data_type: DecimalType) -> Decimal:
    if not number.is_finite():
        raise ValueError(number)
    rescaled = number.quantize(Decimal((0, (1,), -data_type.scale)), context=_EXACT)
    if len(rescaled.as_tuple().digits) > data_type.precision:
        raise OverflowError(number)
    return rescaled


def _expected(data_type: DataType) -> str:
    name = data_type.name if isinstance(data_type, PrimitiveType) else "decimal"
    return _EXPECTED[name]


_PARSERS: Mapping[str, Callable[[str], PartitionValue]] = {
    "string": str,
    **{name: _parse_integer(bits) for name, bits in _INTEGER_BITS.items()},
    "float": _parse_float,
    "double": _parse_double,
    "boolean": _parse_boolean,
    "date": _parse_date,
    "timestamp": _parse_timestamp,
    "timestamp_ntz": _parse_timestamp_ntz,
    "binary": _parse_binary,
}

_WRITERS: Mapping[str, Callable[[Any], str]] = {
    "string": _write_string,
    **{name: _write_integer(bits) for name, bits in _INTEGER_BITS.items()},
    "float": _write_float,
    "double": _write_double,
    "boolean": _write_boolean,
    "date": _write_date,
    "timestamp": _write_timestamp,
    "timestamp_ntz": _write_timestamp_ntz,
    "binary": _write_binary,
}

_EXPECTED: Mapping[str, str] = {
    **{name: f"a whole number of {bits} bits" for name, bits in _INTEGER_BITS.items()},
    "float": "a number, NaN, Infinity or -Infinity",
    "double": "a number, NaN, Infinity or -Infinity",
    "decimal": "a number that fits the precision and scale without rounding",
    "boolean": "true or false",
    "date": "year-month-day",
    "timestamp": "year-month-day hour:minute:second, with up to 6 decimals and an optional zone",
    "timestamp_ntz": "year-month-day, alone or with hour:minute:second, up to 6 decimals, and no zone",
    "binary": "text whose UTF-8 bytes are the value",
}

_WRITTEN_ONLY: Mapping[str, str] = {
    "binary": "; expected bytes in UTF-8, because the log contains them as text",
}
