"""Convert the constants of a predicate to the types of the columns that they are compared with.

==========================  =====================================================================
type of the column          constants
==========================  =====================================================================
integers, floats, decimals  numbers of any kind, by their value; texts of numbers
``string``                  texts
``boolean``                 booleans; the texts ``true`` and ``false``
``date``                    dates; texts such as ``2026-01-31``
``timestamp``               aware datetimes; texts with an offset, such as ``2026-01-31T12:00:00Z``
``timestamp_ntz``           datetimes without a zone, dates (their midnight); texts without an offset
``binary``                  bytes
==========================  =====================================================================

Any other constant is an error. In particular, a time without a zone isn't compared with a ``timestamp``,
because it would depend on the time zone of the session.

As in Spark, numbers are compared by their exact values, but as doubles if one of them is a float. Integers
and decimals stay in the type of the column all the same: a common type may have too many digits, and the
doubles that Arrow makes of decimals aren't always the nearest ones. So a number that the column can't
have is replaced by the value of the column next to it (`Neighbour`), and a float by the values whose double
it is (`Equals`).
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from airflow_delta.engine.arrow.python_arrays import array_of, scalar_of
from airflow_delta.engine.model.schema import DataType, DecimalType, PrimitiveType
from airflow_delta.engine.scan.predicates.nodes import Constant

__all__ = ["Equals", "Neighbour", "family", "set_of", "typed", "wide_type"]

_FAMILIES = {
    **dict.fromkeys(("byte", "short", "integer", "long", "float", "double"), "number"),
    **{
        name: name for name in ("string", "boolean", "binary", "date", "timestamp", "timestamp_ntz")
    },
}
_EXPECTED = {
    "number": "a number",
    "string": "a text in single quotes",
    "boolean": "TRUE or FALSE",
    "binary": "bytes, such as X'0A'",
    "date": "a date such as '2026-01-31'",
    "timestamp": "a time with an offset such as '2026-01-31T12:00:00Z'",
    "timestamp_ntz": "a time without an offset such as '2026-01-31T12:00:00'",
}
_FLOATS = ("float", "double")
_MOST_DIGITS = 38
_FAR = Decimal(10) ** (_MOST_DIGITS + 1)
"""No value of a type is so large."""
_WIDE = Context(prec=2 * _MOST_DIGITS + 4)
_HALVES = Context(prec=1200)
"""Enough digits for the exact value of any double up to `_FAR`."""
_HALF = Decimal("0.5")
_DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 19}
_MOMENT = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,6}))?)?)?(Z|z|[+-]\d\d(?::?\d\d)?)?",
    re.ASCII,
)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?", re.ASCII)


class _WrongTypeError(Exception):
    """The constant doesn't fit the type. The caller, which knows the column, raises the error."""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A number that a column of integers or decimals can't have, by a value that it can have.

    Attributes:
        value: a value of the column's type, as a scalar. No value of the type lies between both.
        is_less: whether the value is less than the number.
    """

    value: pa.Scalar
    is_less: bool


@dataclass(frozen=True, slots=True)
class Equals:
    """A number that equals several values of a column of integers or decimals: those of a range.

    Attributes:
        low: the least of these values, as a scalar of the column's type.
        high: the greatest.
    """

    low: pa.Scalar
    high: pa.Scalar


def family(data_type: DataType) -> str | None:
    """The family of comparable types that a type is in; None for a type without an order."""
    if isinstance(data_type, DecimalType):
        return "number"
    return _FAMILIES.get(data_type.name) if isinstance(data_type, PrimitiveType) else None


def typed(constant: Constant, data_type: DataType) -> pa.Scalar | Neighbour | Equals | str:
    """Convert a constant that isn't NULL to what a column is compared with.

    Returns:
        The scalar, or what stands for it; or, if the constant doesn't fit, a description of what was
        expected.
    """
    kind = family(data_type)
    assert kind is not None
    try:
        return _scalar(constant, kind, data_type)
    except (_WrongTypeError, pa.ArrowException, OverflowError):
        return _EXPECTED[kind]


def set_of(scalars: Iterable[pa.Scalar], data_type: DataType) -> pa.Array:
    """The values of a column that equal one of some constants, as an array for ``is_in``.

    ``is_in`` converts the values to the type of the column, and distinguishes zeros by their sign; ``==``
    does neither. So values that a *float* can't have are left out, and a zero stands for both. NaN equals
    nothing.

    Args:
        scalars: constants from `typed`, of one type.
        data_type: the type of the column.
    """
    found = list(scalars)
    if not (isinstance(data_type, PrimitiveType) and data_type.name in _FLOATS):
        make = pa.array if isinstance(data_type, DecimalType) else array_of
        return make([each.as_py() for each in found], found[0].type)
    values = [value for value in (each.as_py() for each in found) if not math.isnan(value)]
    if data_type.name == "float":
        values = [value for value in values if _is_single(value)]
    if 0.0 in values:
        values += [0.0, -0.0]
    return array_of(values, pa.float64())


def wide_type(left: DataType, right: DataType) -> pa.DataType | None:
    """The type in which two columns of one family must be compared; None for Arrow's choice."""
    digits = _digits(left), _digits(right)
    if None in digits:
        # Arrow would refuse a long that has no equal double, and take floats for integers.
        return None if digits == (None, None) else pa.float64()
    whole, scale = (max(each) for each in zip(*filter(None, digits), strict=True))
    return pa.decimal256(2 * _MOST_DIGITS, scale) if whole + scale > _MOST_DIGITS else None


def _digits(data_type: DataType) -> tuple[int, int] | None:
    """The digits of a type before and after the point; None if it has neither integers nor decimals."""
    if isinstance(data_type, DecimalType):
        return data_type.precision - data_type.scale, data_type.scale
    found = _DIGITS.get(data_type.name) if isinstance(data_type, PrimitiveType) else None
    return None if found is None else (found, 0)


def _is_single(value: float) -> bool:
    """Whether a number is one of single precision."""
    try:
        rounded: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return False
    return rounded == value


def _scalar(constant: Constant, kind: str, data_type: DataType) -> pa.Scalar | Neighbour | Equals:
    value = constant.value
    if constant.kind is not None and not kind.startswith(constant.kind.removesuffix("_ntz")):
        raise _WrongTypeError  # DATE '…' is neither a number nor a text.
    match kind:
        case "number":
            return _number(value, data_type)
        case "boolean":
            known = {"true": True, "false": False}
            found = known.get(value.lower()) if isinstance(value, str) else value
            return scalar_of(_of_type(found, bool), pa.bool_())
        case "string":
            return scalar_of(_of_type(value, str), pa.string())
        case "binary":
            return scalar_of(bytes(_of_type(value, bytes | bytearray)), pa.binary())
        case "date":
            return scalar_of(_day(value), pa.date32())
        case _:
            zone = "UTC" if kind == "timestamp" else None
            return scalar_of(_time(value, has_zone=zone is not None), pa.timestamp("us", zone))


def _of_type(value: Any, kind: Any) -> Any:
    if not isinstance(value, kind):
        raise _WrongTypeError
    return value


def _number(value: Any, data_type: DataType) -> pa.Scalar | Neighbour | Equals:
    if isinstance(value, str):
        value = _parse_number(value)
    if hasattr(value, "item") and not isinstance(value, int | float | Decimal):
        value = value.item()  # A number of numpy.
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise _WrongTypeError
    if isinstance(value, Decimal) and not value.is_finite():
        raise _WrongTypeError
    if isinstance(data_type, PrimitiveType) and data_type.name in _FLOATS:
        return scalar_of(float(value), pa.float64())
    if isinstance(value, float) and math.isnan(value):
        return scalar_of(value, pa.float64())
    return _Values.of(data_type).nearest(value)


@dataclass(frozen=True, slots=True)
class _Values:
    """The values of a type of integers or decimals.

    Attributes:
        type: the type in Arrow.
        least: the least value.
        greatest: the greatest value.
        unit: the distance between two neighbours.
    """

    type: pa.DataType
    least: Decimal
    greatest: Decimal
    unit: Decimal

    @classmethod
    def of(cls, data_type: DataType) -> _Values:
        """The values of an integer type, as longs, or of a decimal type."""
        if not isinstance(data_type, DecimalType):
            # Narrower integers are compared as these.
            return cls(pa.int64(), Decimal(-(2**63)), Decimal(2**63 - 1), Decimal(1))
        greatest = Decimal((0, (9,) * data_type.precision, -data_type.scale))
        type_ = pa.decimal128(data_type.precision, data_type.scale)
        unit = Decimal((0, (1,), -data_type.scale))
        return cls(type_, greatest.copy_negate(), greatest, unit)

    def nearest(self, value: float | Decimal) -> pa.Scalar | Neighbour | Equals:
        """What stands for a number other than NaN."""
        low, high = self._equal_to(value)
        if low > self.greatest:
            return Neighbour(self._scalar(self.greatest), is_less=True)
        if high < self.least:
            return Neighbour(self._scalar(self.least), is_less=False)
        if low > high:
            return Neighbour(self._scalar(high), is_less=True)
        low, high = max(low, self.least), min(high, self.greatest)
        if low == high:
            return self._scalar(low)
        return Equals(self._scalar(low), self._scalar(high))

    def _equal_to(self, value: float | Decimal) -> tuple[Decimal, Decimal]:
        """The least and the greatest multiple of the unit that equals a number.

        If there is none, the former is the next greater one, and the latter the next smaller one.
        """
        if not isinstance(value, float):
            exact = Decimal(value)
            return self._multiple(exact, ROUND_CEILING), self._multiple(exact, ROUND_FLOOR)
        if math.isinf(value) or abs(value) > _FAR:
            return (Decimal(value),) * 2
        # Doubles are the nearest ones, so the border is half way to the next double.
        low, high = (
            self._multiple(
                _HALVES.multiply(_HALVES.add(Decimal(value), Decimal(after)), _HALF), mode
            )
            for after, mode in (
                (math.nextafter(value, -math.inf), ROUND_CEILING),
                (math.nextafter(value, math.inf), ROUND_FLOOR),
            )
        )
        # The border itself may belong to either double.
        low = low if float(low) >= value else _WIDE.add(low, self.unit)
        return low, high if float(high) <= value else _WIDE.subtract(high, self.unit)

    def _multiple(self, value: Decimal, rounding: str) -> Decimal:
        """Round a number to a multiple of the unit, unless it is too large to be a value."""
        # Not `abs`, which rounds as the caller's context says.
        if value.copy_abs() > _FAR:
            return value
        return value.quantize(self.unit, rounding, _WIDE)

    def _scalar(self, value: Decimal) -> pa.Scalar:
        if self.type == pa.int64():
            return scalar_of(int(value), self.type)
        return pa.scalar(value, self.type)


def _parse_number(text: str) -> int | float | Decimal:
    if not _NUMBER.fullmatch(text.strip()):
        raise _WrongTypeError
    try:
        number = Decimal(text.strip())
    except InvalidOperation as error:
        raise _WrongTypeError from error
    return (
        int(number) if number == number.to_integral_value() and number.adjusted() < 100 else number
    )


def _day(value: Any) -> date:
    if isinstance(value, str):
        moment = _MOMENT.fullmatch(value)
        if moment is None or any(moment.groups()[3:]):
            raise _WrongTypeError
        return _parse_moment(value).date()
    if isinstance(value, datetime):
        raise _WrongTypeError
    day: date = _of_type(value, date)
    return day


def _time(value: Any, *, has_zone: bool) -> datetime:
    if isinstance(value, str):
        value = _parse_moment(value)
    elif isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    moment: datetime = _of_type(value, datetime)
    if (moment.utcoffset() is not None) != has_zone:
        raise _WrongTypeError
    return moment


def _parse_moment(text: str) -> datetime:
    """Parse a time in ISO-8601, down to microseconds."""
    found = _MOMENT.fullmatch(text)
    if found is None:
        raise _WrongTypeError
    year, month, day, hour, minute, second = (int(part or 0) for part in found.groups()[:6])
    microsecond = int((found[7] or "").ljust(6, "0"))
    try:
        return datetime(
            year, month, day, hour, minute, second, microsecond, tzinfo=_parse_zone(found[8])
        )
    except ValueError as error:
        raise _WrongTypeError from error


def _parse_zone(text: str | None) -> timezone | None:
    if text is None:
        return None
    if text in "Zz":
        return timezone.utc
    digits = text[1:].replace(":", "").ljust(4, "0")
    offset = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return timezone(-offset if text[0] == "-" else offset)
