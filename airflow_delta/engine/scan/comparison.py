"""Decide whether a comparison can have an outcome, by the bounds of both sides.

A null on either side makes the outcome null: neither true nor false. Bounds don't apply to NaN, which
most writers leave out of minimum and maximum. Engines disagree about it: for Arrow, NaN equals nothing
and is neither less nor greater than anything; for Spark, it equals itself and is greater than all else.
An outcome counts as possible if either engine gives it. The zeros of both signs are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.python_arrays import scalar_of
from airflow_delta.engine.scan.bounds import Bounds
from airflow_delta.engine.scan.literals import comparable
from airflow_delta.engine.scan.masks import (
    Mask,
    all_of,
    any_of,
    known_true,
    opposite,
    true_unless_known,
)

__all__ = ["may_compare", "same_value"]

_NEGATED: Mapping[str, str] = {
    "<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "==",
}  # fmt: skip
_NAN_LEFT = frozenset({("<", True), ("<=", True), ("==", True), ("!=", False)})
"""Operators with the outcomes that a NaN on the left never has, neither in Arrow nor in Spark."""
_NAN_RIGHT = frozenset({(">", True), (">=", True), ("==", True), ("!=", False)})


def may_compare(operator: str, left: Bounds, right: Bounds, *, outcome: bool) -> Mask:
    """Whether ``left operator right`` may have the outcome for values within the bounds."""
    has_values = all_of((left.has_value, right.has_value))
    by_nan = any_of(
        (
            (operator, outcome) not in _NAN_LEFT and left.has_nan,
            (operator, outcome) not in _NAN_RIGHT and right.has_nan,
            all_of((left.has_nan, right.has_nan)),
        )
    )
    if by_nan is True:
        return has_values
    # Without nulls and NaN, the opposite of an operator is another operator.
    possible = _POSSIBLE[operator if outcome else _NEGATED[operator]]
    return all_of((has_values, any_of((by_nan, possible(left, right)))))


def same_value(left: Any, right: Any) -> Mask:
    """Whether two bounds are certainly equal."""
    return known_true(_compare(pc.equal, left, right))


def _may_hold(function: Callable[[Any, Any], Any], left: Any, right: Any) -> Mask:
    return true_unless_known(_compare(function, left, right))


def _compare(function: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    """Compare two bounds; null where the outcome is unknown."""
    unknown = scalar_of(None, pa.bool_())
    if left is None or right is None or not comparable(left.type, right.type):
        return unknown
    try:
        return function(left, right)
    except pa.ArrowException:  # The common type can't hold a value.
        return unknown


def _may_be_equal(left: Bounds, right: Bounds) -> Mask:
    return all_of(
        (
            _may_hold(pc.less_equal, left.minimum, right.maximum),
            _may_hold(pc.less_equal, right.minimum, left.maximum),
        )
    )


def _may_differ(left: Bounds, right: Bounds) -> Mask:
    return opposite(
        all_of(
            (
                same_value(left.minimum, left.maximum),
                same_value(right.minimum, right.maximum),
                same_value(left.minimum, right.minimum),
            )
        )
    )


_POSSIBLE: Mapping[str, Callable[[Bounds, Bounds], Mask]] = {
    "<": lambda left, right: _may_hold(pc.less, left.minimum, right.maximum),
    "<=": lambda left, right: _may_hold(pc.less_equal, left.minimum, right.maximum),
    ">": lambda left, right: _may_hold(pc.greater, left.maximum, right.minimum),
    ">=": lambda left, right: _may_hold(pc.greater_equal, left.maximum, right.minimum),
    "==": _may_be_equal,
    "!=": _may_differ,
}
