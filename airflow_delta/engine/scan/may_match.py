"""Decide for many files at once whether a predicate may have an outcome for one of their rows.

The outcomes are true, false and null. A file is kept if true is possible. Below a ``~`` it matters whether
false is possible, so each node is evaluated for both outcomes. Whether null is possible never matters,
because no row matches by it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.python_arrays import array_of, scalar_of
from airflow_delta.engine.features.schema_walk import SchemaPath
from airflow_delta.engine.scan.bounds import UNBOUNDED, Bounds
from airflow_delta.engine.scan.comparison import may_compare, same_value
from airflow_delta.engine.scan.expressions import (
    And,
    Column,
    Comparison,
    IsIn,
    IsNull,
    Literal,
    Node,
    Not,
    Or,
)
from airflow_delta.engine.scan.literals import comparable, literal_bounds
from airflow_delta.engine.scan.masks import Mask, all_of, any_of, known_true, opposite

__all__ = ["may_be"]

_MAX_RANGES = 64
"""A longer list of values is tested as so many ranges of neighbouring values."""


def may_be(outcome: bool, node: Node, bounds: Mapping[SchemaPath, Bounds]) -> Mask:
    """Whether a predicate may be true, or false, for a row of each file.

    Args:
        outcome: the outcome.
        node: the predicate.
        bounds: the bounds of columns; nothing is known of a column that is missing.
    """
    match node:
        case And(operands) | Or(operands):
            answers = (may_be(outcome, operand, bounds) for operand in operands)
            # One false operand makes an And false, and one true operand makes an Or true.
            return all_of(answers) if isinstance(node, And) is outcome else any_of(answers)
        case Not(operand):
            return may_be(not outcome, operand, bounds)
        case Comparison(operator, left, right):
            return _comparison(operator, left, right, outcome, bounds)
        case IsNull(column, nan_is_null):
            known = bounds.get(column.path, UNBOUNDED)
            if not outcome:
                return known.has_value
            return any_of((known.has_null, nan_is_null and known.has_nan))
        case IsIn():
            known = bounds.get(node.column.path, UNBOUNDED)
            return _may_be_in(node, known) if outcome else _may_not_be_in(node, known)
        case Literal(value):
            return _is(value, outcome)
        case Column():
            return _comparison("==", node, Literal(scalar_of(True, pa.bool_())), outcome, bounds)
        case _:
            return True


def _is(value: pa.Scalar, outcome: bool) -> bool:
    """Whether a constant, as a predicate, has an outcome. One that isn't boolean fails on rows later."""
    constant = value.as_py()
    return constant is outcome if constant is None or isinstance(constant, bool) else True


def _comparison(
    operator: str,
    left: Literal | Column,
    right: Literal | Column,
    outcome: bool,
    bounds: Mapping[SchemaPath, Bounds],
) -> Mask:
    constants = [side.value for side in (left, right) if isinstance(side, Literal)]
    if not all(value.is_valid for value in constants):
        return False  # A comparison with null is null.
    return may_compare(
        operator,
        _side_bounds(left, right, bounds),
        _side_bounds(right, left, bounds),
        outcome=outcome,
    )


def _side_bounds(
    side: Literal | Column, other: Literal | Column, bounds: Mapping[SchemaPath, Bounds]
) -> Bounds:
    if isinstance(side, Column):
        return bounds.get(side.path, UNBOUNDED)
    if isinstance(other, Literal):
        return literal_bounds(side.value, other.value.type)
    known = bounds.get(other.path, UNBOUNDED)
    return literal_bounds(side.value, None if known.minimum is None else known.minimum.type)


def _may_be_in(node: IsIn, known: Bounds) -> Mask:
    by_null = node.null_is_in and known.has_null
    by_nan = _has_nan(node.values) and known.has_nan
    values = None if by_nan is True else _as_rows_take(node.values, known)
    if values is None:
        by_value: Mask = len(node.values) > 0
    else:
        ranges = _ranges(values, known)
        by_value = any_of(may_compare("==", known, part, outcome=True) for part in ranges)
        # If a file has a single value, it must be in the list, not only in a range.
        by_value = all_of((by_value, opposite(_one_value_not_in(values, known))))
    return any_of((by_null, all_of((known.has_value, any_of((by_nan, by_value))))))


def _may_not_be_in(node: IsIn, known: Bounds) -> Mask:
    by_null = False if node.null_is_in else known.has_null
    if known.has_nan is True:
        return any_of((by_null, known.has_value))
    all_in = all_of((same_value(known.minimum, known.maximum), _minimum_in(node.values, known)))
    may_differ = any_of((known.has_nan, opposite(all_in)))
    return any_of((by_null, all_of((known.has_value, may_differ))))


def _as_rows_take(values: pa.Array, known: Bounds) -> pa.Array | None:
    """The values of a list as they are compared with rows; None if that is unknown.

    Arrow converts a list to the type of the column, which may change values: a time becomes its date. If
    it can't, it converts the column.
    """
    if known.minimum is None or not comparable(values.type, known.minimum.type):
        return None
    try:
        if pa.types.is_floating(known.minimum.type):
            return _either_form(values)
        # Integers are narrower in rows than in bounds, which changes none of them.
        return values.cast(known.minimum.type)
    except pa.ArrowException:
        return None


def _either_form(values: pa.Array) -> pa.Array:
    """Numbers with all that rows of floats may take for one of them.

    The conversion to the type of the column rounds in a column of single precision. A comparison of bounds
    doesn't distinguish the zeros by their sign. NaN, which has no bounds, is left out.
    """
    doubles = values.cast(pa.float64(), safe=False)
    doubles = doubles.filter(pc.invert(pc.is_nan(doubles)))
    forms = [doubles, doubles.cast(pa.float32(), safe=False).cast(pa.float64())]
    if _count_zeros(doubles):
        forms.append(array_of([0.0, -0.0], pa.float64()))
    return pc.unique(pa.concat_arrays(forms))


def _count_zeros(values: pa.Array) -> int:
    return pc.sum(pc.equal(values, scalar_of(0.0, pa.float64()))).as_py() or 0


def _has_nan(values: pa.Array) -> bool:
    return pa.types.is_floating(values.type) and bool(pc.any(pc.is_nan(values)).as_py())


def _ranges(values: pa.Array, known: Bounds) -> Iterator[Bounds]:
    """Ranges that contain all values, and few others."""
    if len(values) > _MAX_RANGES:
        values = values.take(pc.array_sort_indices(values))
    step = -(-len(values) // _MAX_RANGES) or 1
    for first in range(0, len(values), step):
        last = min(first + step, len(values)) - 1
        low = literal_bounds(values[first], known.minimum.type).minimum
        high = literal_bounds(values[last], known.minimum.type).maximum
        yield Bounds(low, high, has_null=False)


def _one_value_not_in(values: pa.Array, known: Bounds) -> Mask:
    """Where a file has a single known value that isn't in a long list."""
    if len(values) <= _MAX_RANGES or known.has_nan is True:
        return False  # The ranges are the values themselves.
    not_in = pc.invert(pc.is_in(known.minimum, value_set=values))
    return all_of((same_value(known.minimum, known.maximum), not_in))


def _minimum_in(values: pa.Array, known: Bounds) -> Mask:
    among = _convert_values(values, known)
    if among is None:
        return False
    found = pc.is_in(known.minimum, value_set=among)
    if pa.types.is_floating(known.minimum.type) and _count_zeros(values) == 1:
        # A bound that is zero says nothing of the sign, and the list has only one of the zeros.
        is_other = pc.not_equal(known.minimum, scalar_of(0.0, pa.float64()))
        # Null where there is no bound, and a mask has no nulls.
        return known_true(pc.and_(found, is_other))
    return found


def _convert_values(values: pa.Array, known: Bounds) -> pa.Array | None:
    """Convert the values to the type of the bounds; None if that would change one."""
    if known.minimum is None or not comparable(values.type, known.minimum.type):
        return None
    try:
        converted = values.cast(known.minimum.type)
        return converted if converted.cast(values.type).equals(values) else None
    except pa.ArrowException:
        return None
