"""Convert the tree of a predicate to a pyarrow expression, by the types of a table's columns.

The expression is true for exactly the rows for which the predicate is true in SQL's three-valued logic. For
all others it is false or null, not necessarily the same as the predicate. So a NOT is pushed down to the
tests first, because pyarrow's functions differ from SQL: its ``is_in`` of a null is false, and the negation
of that would be true.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.python_arrays import scalar_of
from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.model.schema import BOOLEAN, STRING, DataType, DecimalType, StructType
from airflow_delta.engine.scan.columns import find_column
from airflow_delta.engine.scan.predicates.constants import (
    Equals,
    Neighbour,
    family,
    set_of,
    typed,
    wide_type,
)
from airflow_delta.engine.scan.predicates.nodes import (
    And,
    Column,
    Comparison,
    Constant,
    In,
    IsNull,
    Like,
    Node,
    Not,
    Operand,
    Or,
)

__all__ = ["to_expression"]

_LAST_CHARACTER = "\U0010ffff"
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
_BESIDE = {True: {"<": "<=", "<=": "<=", ">": ">", ">=": ">"},
           False: {"<": "<", "<=": "<", ">": ">=", ">=": ">="}}  # fmt: skip
"""The operators for a value that stands for a constant, by whether it is less; see `Neighbour`."""


def to_expression(node: Node, schema: StructType, *, table: str) -> pc.Expression:
    """Convert a predicate to an expression.

    Args:
        node: the predicate.
        schema: the schema of the table, with logical names.
        table: the table's location, for messages.

    Raises:
        InvalidArgumentError: it names a column that the table doesn't have, or compares a column with an
            incomparable value. Facts: column.
    """
    return _Converter(schema, table).convert(node)


class _Converter:
    """Converts predicates over one schema."""

    def __init__(self, schema: StructType, table: str) -> None:
        self._schema = schema
        self._table = table

    def convert(self, node: Node, *, negated: bool = False) -> pc.Expression:
        """An expression that is true where the node, or its negation, is true."""
        match node:
            case Not(operand):
                return self.convert(operand, negated=not negated)
            case And(operands) | Or(operands):
                parts = [*map(partial(self.convert, negated=negated), operands)]
                return _join(parts, all_of=isinstance(node, And) != negated)
            case Comparison():
                return self._comparison(node, negated=negated)
            case In():
                return self._is_in(node, negated=negated)
            case IsNull(column):
                path, _ = self._find(column)
                field = pc.field(*path)
                return field.is_valid() if negated else field.is_null()
            case Like():
                return self._like(node, negated=negated)
            case Column():
                return self._boolean_column(node, negated=negated)
            case Constant(value):
                if not (value is None or isinstance(value, bool)):
                    raise self._refusal(f"the constant {value!r} is neither true nor false", None)
                return _truth(value is not None and value is not negated)

    def _comparison(self, node: Comparison, *, negated: bool) -> pc.Expression:
        match node.left, node.right:
            case Column() as left, Column() as right:
                outcome = _compare(node.operator, *self._columns(left, right))
            case Column() as column, Constant() as constant:
                return self._with_constant(node.operator, column, constant, negated=negated)
            case Constant() as constant, Column() as column:
                operator = _MIRRORED[node.operator]
                return self._with_constant(operator, column, constant, negated=negated)
            case left, right:
                return _truth(self._constants(node.operator, left, right, negated=negated))
        # The opposite operator would be wrong: for NaN neither of the two may be true.
        return ~outcome if negated else outcome

    def _columns(self, left: Column, right: Column) -> tuple[pc.Expression, pc.Expression]:
        (path, type_), (other_path, other_type) = self._find(left), self._find(right)
        kind, other_kind = self._family(path, type_), self._family(other_path, other_type)
        if kind != other_kind:
            raise self._refusal(
                f"the column {'.'.join(path)!r} of type {type_} can't be compared with "
                f"{'.'.join(other_path)!r} of type {other_type}",
                path,
            )
        wide = wide_type(type_, other_type)
        return _widen(path, type_, wide), _widen(other_path, other_type, wide)

    def _with_constant(
        self, operator: str, column: Column, constant: Constant, *, negated: bool
    ) -> pc.Expression:
        path, data_type = self._find(column)
        self._family(path, data_type)
        if constant.value is None:  # A comparison with NULL is null, and so is its negation.
            return _truth(False)
        field, value = pc.field(*path), self._typed(path, data_type, constant)
        if isinstance(value, Neighbour):
            operators, value = _BESIDE[value.is_less], value.value
            is_fixed, operator = operator not in operators, operators.get(operator, operator)
        else:
            is_fixed = _is_nan(value)  # It equals nothing, and has no order.
        if is_fixed:  # The outcome is the same for all values.
            return field.is_valid() if (operator == "!=") is not negated else _truth(False)
        outcome = (
            _compare_range(operator, field, value)
            if isinstance(value, Equals)
            else _compare(operator, field, value)
        )
        return ~outcome if negated else outcome

    def _constants(self, operator: str, left: Operand, right: Operand, *, negated: bool) -> bool:
        """Compare two constants, such as ``1 = 1``, which occur in generated predicates."""
        assert isinstance(left, Constant)
        assert isinstance(right, Constant)
        if left.value is None or right.value is None:
            return False
        if _kind(left.value) is not _kind(right.value):
            raise self._refusal(
                f"the constants {left.value!r} and {right.value!r} can't be compared", None
            )
        return bool(_COMPARE[operator](left.value, right.value)) is not negated

    def _is_in(self, node: In, *, negated: bool) -> pc.Expression:
        path, data_type = self._find(node.column)
        self._family(path, data_type)
        known = [value for value in node.values if value.value is not None]
        has_null = len(known) < len(node.values)
        typed_values = [self._typed(path, data_type, constant) for constant in known]
        field = pc.field(*path)
        if negated and not node.values:
            return _truth(True)
        if negated and has_null:  # The value may be that NULL, so the outcome isn't true.
            return _truth(False)
        # A neighbour and NaN equal no value.
        scalars = [v for v in typed_values if not (isinstance(v, Neighbour) or _is_nan(v))]
        ranges = [value for value in scalars if isinstance(value, Equals)]
        scalars = [value for value in scalars if not isinstance(value, Equals)]
        parts = [_compare_range("==", field, value) for value in ranges]
        if scalars:
            parts.append(field.isin(set_of(scalars, data_type)))
        if negated:
            return _join([field.is_valid(), *(~part for part in parts)], all_of=True)
        return _join(parts, all_of=False) if parts else _truth(False)

    def _like(self, node: Like, *, negated: bool) -> pc.Expression:
        path, data_type = self._find(node.column)
        if data_type != STRING:
            raise self._refusal(
                f"LIKE is for texts, and the column {'.'.join(path)!r} is of type {data_type}", path
            )
        field = pc.field(*path)
        if node.is_whole:
            outcome = field == scalar_of(node.prefix, pa.string())
        elif not node.prefix:
            return _truth(False) if negated else field.is_valid()
        else:
            end = _after(node.prefix)
            outcome = field >= scalar_of(node.prefix, pa.string())
            outcome = outcome if end is None else outcome & (field < scalar_of(end, pa.string()))
        return ~outcome if negated else outcome

    def _boolean_column(self, column: Column, *, negated: bool) -> pc.Expression:
        path, data_type = self._find(column)
        if data_type != BOOLEAN:
            raise self._refusal(
                f"the column {'.'.join(path)!r} is of type {data_type}, which is neither true nor false: "
                "compare it with something",
                path,
            )
        field = pc.field(*path)
        return ~field if negated else field

    def _find(self, column: Column) -> tuple[tuple[str, ...], DataType]:
        """Find the path of a column, and its type."""
        path = column.path
        if column.may_be_one_name and self._schema.field(".".join(path)) is not None:
            path = (".".join(path),)
        found = find_column(
            path, self._schema, partition_columns=(), mapping_mode="none", table=self._table
        )
        return path, found.data_type

    def _family(self, path: Sequence[str], data_type: DataType) -> str:
        kind = family(data_type)
        if kind is None:
            raise self._refusal(
                f"the column {'.'.join(path)!r} is of type {data_type}, whose values can't be compared: "
                "ask whether it is null, or for a column in it",
                path,
            )
        return kind

    def _typed(
        self, path: Sequence[str], data_type: DataType, constant: Constant
    ) -> pa.Scalar | Neighbour | Equals:
        found = typed(constant, data_type)
        if isinstance(found, str):
            shown = f"{constant.kind or ''} {constant.value!r}".strip()
            raise self._refusal(
                f"the column {'.'.join(path)!r} is of type {data_type}: expected {found}, found {shown}",
                path,
            )
        return found

    def _refusal(self, problem: str, path: Sequence[str] | None) -> InvalidArgumentError:
        facts = {} if path is None else {"column": ".".join(path)}
        return InvalidArgumentError(f"predicate: {problem}", table=self._table, **facts)


def _truth(value: bool) -> pc.Expression:
    """A constant expression."""
    return pc.scalar(scalar_of(value, pa.bool_()))


def _join(parts: list[pc.Expression], *, all_of: bool) -> pc.Expression:
    """Join expressions by AND or OR, as a balanced tree, because a long chain would nest too deep."""
    while len(parts) > 1:
        pairs = zip(parts[::2], parts[1::2], strict=False)
        odd = parts[-1:] if len(parts) % 2 else []
        parts = [left & right if all_of else left | right for left, right in pairs] + odd
    return parts[0]


def _widen(path: Sequence[str], data_type: DataType, wide: pa.DataType | None) -> pc.Expression:
    """A column, converted to the `wide_type` of a comparison with another."""
    field = pc.field(*path)
    if wide is None:
        return field
    if wide != pa.float64():
        return field.cast(wide)
    if isinstance(data_type, DecimalType):
        # The double that Arrow makes of a decimal isn't always the nearest one; that of a text is.
        field = field.cast(pa.string())
    return field.cast(wide, safe=False)  # A long is rounded to the nearest double.


def _is_nan(value: pa.Scalar | Equals) -> bool:
    return (
        isinstance(value, pa.Scalar)
        and pa.types.is_floating(value.type)
        and math.isnan(value.as_py())
    )


def _compare_range(operator: str, field: pc.Expression, value: Equals) -> pc.Expression:
    """Compare a column with a number that equals several of its values."""
    match operator:
        case "==":
            return (field >= value.low) & (field <= value.high)
        case "!=":
            return (field < value.low) | (field > value.high)
    return _compare(operator, field, value.low if operator in ("<", ">=") else value.high)


def _kind(value: Any) -> type:
    """The type of a constant, the same for all numbers."""
    return Decimal if type(value) in (int, float) else type(value)


def _compare(operator: str, left: Any, right: Any) -> pc.Expression:
    return _COMPARE[operator](left, right)


_COMPARE: dict[str, Any] = {
    "==": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}


def _after(prefix: str) -> str | None:
    """The least text that is greater than all texts with a prefix; None if there is none."""
    cut = prefix.rstrip(_LAST_CHARACTER)
    if not cut:
        return None
    following = ord(cut[-1]) + 1
    # Surrogates aren't characters.
    return cut[:-1] + chr(0xE000 if 0xD800 <= following <= 0xDFFF else following)
