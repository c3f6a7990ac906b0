"""The bounds of a constant, for a comparison with a column of some type.

Values are compared as pyarrow compares them on rows. Types without a common order, such as text and
number, are incomparable: such a constant has no bounds.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

import pyarrow as pa

from airflow_delta.engine.scan.bounds import UNBOUNDED, Bounds

__all__ = ["comparable", "literal_bounds"]

# Explicit, because the context of the thread may be of any precision.
_WIDE = Context(prec=76)
_FLOAT_ERROR = Decimal(2.0**-50)
"""A relative error: a few times the error of converting a decimal to a double."""


def literal_bounds(value: pa.Scalar, other: pa.DataType | None) -> Bounds:
    """The bounds of a constant that isn't null.

    Args:
        value: the constant.
        other: the type of the value that it is compared with; None if that has no bounds anyway.
    """
    if other is None:
        return UNBOUNDED
    if pa.types.is_floating(value.type):
        number = value.as_py()
        if math.isnan(number):
            return UNBOUNDED
        if pa.types.is_decimal(other):
            return _around(number, other.scale)
    return Bounds(value, value, has_null=False)


def comparable(left: pa.DataType, right: pa.DataType) -> bool:
    """Whether values of two types can be compared: they have an order that conversions keep."""
    return _family(left) is not None and _family(left) == _family(right)


def _family(type_: pa.DataType) -> str | None:
    types = pa.types
    if types.is_integer(type_) or types.is_floating(type_) or types.is_decimal(type_):
        return "number"
    if types.is_string(type_) or types.is_large_string(type_):
        return "string"
    if types.is_binary(type_) or types.is_large_binary(type_):
        return "binary"
    if types.is_timestamp(type_) and type_.tz is not None:
        return "instant"
    if types.is_date(type_) or types.is_timestamp(type_):
        return "wall clock"
    return "boolean" if types.is_boolean(type_) else None


def _around(number: float, scale: int) -> Bounds:
    """The bounds of the decimals of a scale that may equal a float.

    Rows are compared as doubles, and converting a decimal to a double has a small error.
    """
    if math.isinf(number) or abs(number) >= 1e38:
        return UNBOUNDED
    exact = Decimal(number)
    error = _WIDE.multiply(exact.copy_abs(), _FLOAT_ERROR)
    unit = Decimal((0, (1,), -scale))
    type_ = pa.decimal256(76, scale)
    low = _WIDE.subtract(exact, error).quantize(unit, ROUND_FLOOR, _WIDE)
    high = _WIDE.add(exact, error).quantize(unit, ROUND_CEILING, _WIDE)
    return Bounds(pa.scalar(low, type_), pa.scalar(high, type_), has_null=False)
