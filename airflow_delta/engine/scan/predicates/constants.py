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
"""

from __future__ import annotations

import math
import re
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from airflow_delta.engine.arrow.python_arrays import array_of, scalar_of
from airflow_delta.engine.model.schema import DataType, DecimalType, PrimitiveType
from airflow_delta.engine.scan.predicates.nodes import Constant

__all__ = ["family", "set_of", "typed"]

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
_FAR = 1e38
_MOMENT = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,6}))?)?)?(Z|z|[+-]\d\d(?::?\d\d)?)?",
    re.ASCII,
)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?", re.ASCII)


class _WrongTypeError(Exception):
    """The constant doesn't fit the type. The caller, which knows the column, raises the error."""


def family(data_type: DataType) -> str | None:
    """The family of comparable types that a type is in; None for a type without an order."""
    if isinstance(data_type, DecimalType):
        return "number"
    return _FAMILIES.get(data_type.name) if isinstance(data_type, PrimitiveType) else None


def typed(constant: Constant, data_type: DataType) -> pa.Scalar | str:
    """Convert a constant that isn't NULL to a scalar, to compare a column with.

    Returns:
        The scalar; or, if the constant doesn't fit, a description of what was expected.
    """
    kind = family(data_type)
    assert kind is not None
    try:
        return _scalar(constant, kind, data_type)
    except (_WrongTypeError, pa.ArrowException, OverflowError):
        return _EXPECTED[kind]


def set_of(scalars: list[pa.Scalar], data_type: DataType) -> pa.Array:
    """Convert constants, at least one, to values of a column, without those that the column can't have."""
    if family(data_type) != "number":
        return array_of([each.as_py() for each in scalars], scalars[0].type)
    values = [each.as_py() for each in scalars]
    if isinstance(data_type, PrimitiveType) and data_type.name in _FLOATS:
        return array_of([float(value) for value in values], pa.float64())
    exact = [Decimal(value) for value in values if math.isfinite(value)]
    if isinstance(data_type, PrimitiveType):
        whole = (int(value) for value in exact if value == value.to_integral_value())
        return array_of([value for value in whole if -(2**63) <= value < 2**63], pa.int64())
    assert isinstance(data_type, DecimalType)
    type_ = pa.decimal128(data_type.precision, data_type.scale)
    return pa.array([value for value in exact if _fits(value, type_)], type_)


def _scalar(constant: Constant, kind: str, data_type: DataType) -> pa.Scalar:
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


def _number(value: Any, data_type: DataType) -> pa.Scalar:
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
    if isinstance(value, float):
        # Integers compare exactly with a whole number.
        if not value.is_integer() or abs(value) >= _FAR:
            return scalar_of(value, pa.float64())
        value = int(value)
    if isinstance(data_type, DecimalType):
        type_ = pa.decimal128(data_type.precision, data_type.scale)
        if _fits(Decimal(value), type_):
            return pa.scalar(Decimal(value), type_)
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return scalar_of(value, pa.int64())
    return _own_decimal(Decimal(value))


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


def _fits(value: Decimal, type_: pa.Decimal128Type) -> bool:
    """Whether a decimal type can represent a value exactly."""
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    needed = len(digits) + exponent + type_.scale
    cut = digits[type_.scale + exponent :] if exponent < -type_.scale else ()
    return not any(cut) and (not any(digits) or needed <= type_.precision)


def _own_decimal(value: Decimal) -> pa.Scalar:
    """A decimal as a scalar of just the necessary precision and scale."""
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    scale = max(0, -exponent)
    precision = max(len(digits) + max(0, exponent), scale, 1)
    if precision > _MOST_DIGITS:
        raise _WrongTypeError
    return pa.scalar(value, pa.decimal128(precision, scale))


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
