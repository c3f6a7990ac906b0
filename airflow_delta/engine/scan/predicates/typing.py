"""Turn the tree of a predicate into a pyarrow expression, by the types of a table's columns.

The expression is true of exactly those rows of which the predicate is true in SQL's logic of three values.
Where the predicate is false or null the expression isn't true: which of the two, it doesn't keep. So NOT is
pushed down to the tests first, where pyarrow's functions differ from SQL: its ``is_in`` of a null is false,
and the opposite of that would be true.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.model.schema import BOOLEAN, STRING, DataType, StructType
from airflow_delta.engine.scan.columns import find_column
from airflow_delta.engine.scan.predicates.constants import family, set_of, typed
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


def to_expression(node: Node, schema: StructType, *, table: str) -> pc.Expression:
    """The expression of a predicate.

    Args:
        node: the predicate.
        schema: the table's, logical names.
        table: the table's location, for messages.

    Raises:
        InvalidArgumentError: it names a column that the table doesn't have, or compares one with what its
            type can't be compared with. Facts: column.
    """
    return _Typing(schema, table).true_of(node)


class _Typing:
    def __init__(self, schema: StructType, table: str) -> None:
        self._schema = schema
        self._table = table

    def true_of(self, node: Node, *, negated: bool = False) -> pc.Expression:
        """What is true where the node, or its opposite, is true."""
        match node:
            case Not(operand):
                return self.true_of(operand, negated=not negated)
            case And(operands) | Or(operands):
                parts = [*map(partial(self.true_of, negated=negated), operands)]
                return _joined(parts, all_of=isinstance(node, And) != negated)
            case Comparison():
                return self._comparison(node, negated=negated)
            case In():
                return self._is_in(node, negated=negated)
            case IsNull(column):
                path, _ = self._found(column)
                field = pc.field(*path)
                return field.is_valid() if negated else field.is_null()
            case Like():
                return self._like(node, negated=negated)
            case Column():
                return self._boolean_column(node, negated=negated)
            case Constant(value):
                if not (value is None or isinstance(value, bool)):
                    raise self._refusal(f"the constant {value!r} is neither true nor false", None)
                return pc.scalar(value is not None and value is not negated)

    def _comparison(self, node: Comparison, *, negated: bool) -> pc.Expression:
        match node.left, node.right:
            case Column() as left, Column() as right:
                outcome = _compared(node.operator, *self._columns(left, right))
            case Column() as column, Constant() as constant:
                outcome = self._with_constant(node.operator, column, constant)
            case Constant() as constant, Column() as column:
                outcome = self._with_constant(_MIRRORED[node.operator], column, constant)
            case left, right:
                return pc.scalar(self._constants(node.operator, left, right, negated=negated))
        if outcome is None:  # a comparison with NULL is null, and so is its opposite
            return pc.scalar(False)
        # Not the opposite operator: of NaN neither may be true.
        return ~outcome if negated else outcome

    def _columns(self, left: Column, right: Column) -> tuple[pc.Expression, pc.Expression]:
        (path, type_), (other_path, other_type) = self._found(left), self._found(right)
        kind, other_kind = self._family(path, type_), self._family(other_path, other_type)
        if kind != other_kind:
            raise self._refusal(
                f"the column {'.'.join(path)!r} of type {type_} can't be compared with "
                f"{'.'.join(other_path)!r} of type {other_type}",
                path,
            )
        return pc.field(*path), pc.field(*other_path)

    def _with_constant(self, operator: str, column: Column, constant: Constant) -> Any:
        path, data_type = self._found(column)
        self._family(path, data_type)
        if constant.value is None:
            return None
        return _compared(operator, pc.field(*path), self._typed(path, data_type, constant))

    def _constants(self, operator: str, left: Operand, right: Operand, *, negated: bool) -> bool:
        """A comparison of constants, such as ``1 = 1``, as generated predicates have it."""
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
        path, data_type = self._found(node.column)
        self._family(path, data_type)
        known = [value for value in node.values if value.value is not None]
        has_null = len(known) < len(node.values)
        scalars = [self._typed(path, data_type, constant) for constant in known]
        field = pc.field(*path)
        if not negated:
            return field.isin(set_of(scalars, data_type)) if scalars else pc.scalar(False)
        if has_null:  # it may be that one
            return pc.scalar(False)
        if not scalars:
            return pc.scalar(True)
        return field.is_valid() & ~field.isin(set_of(scalars, data_type))

    def _like(self, node: Like, *, negated: bool) -> pc.Expression:
        path, data_type = self._found(node.column)
        if data_type != STRING:
            raise self._refusal(
                f"LIKE is for texts, and the column {'.'.join(path)!r} is of type {data_type}", path
            )
        field = pc.field(*path)
        if node.is_whole:
            outcome = field == node.prefix
        elif not node.prefix:
            return pc.scalar(False) if negated else field.is_valid()
        else:
            end = _after(node.prefix)
            outcome = field >= node.prefix
            outcome = outcome if end is None else outcome & (field < end)
        return ~outcome if negated else outcome

    def _boolean_column(self, column: Column, *, negated: bool) -> pc.Expression:
        path, data_type = self._found(column)
        if data_type != BOOLEAN:
            raise self._refusal(
                f"the column {'.'.join(path)!r} is of type {data_type}, which is neither true nor false: "
                "compare it with something",
                path,
            )
        field = pc.field(*path)
        return ~field if negated else field

    def _found(self, column: Column) -> tuple[tuple[str, ...], DataType]:
        """The path of a column, and its type."""
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

    def _typed(self, path: Sequence[str], data_type: DataType, constant: Constant) -> pa.Scalar:
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


def _joined(parts: list[pc.Expression], *, all_of: bool) -> pc.Expression:
    """All or any of some; a balanced tree, as a chain of thousands would nest that deep."""
    while len(parts) > 1:
        pairs = zip(parts[::2], parts[1::2], strict=False)
        odd = parts[-1:] if len(parts) % 2 else []
        parts = [left & right if all_of else left | right for left, right in pairs] + odd
    return parts[0]


def _kind(value: Any) -> type:
    """What a constant of a text can be compared with."""
    return Decimal if type(value) in (int, float) else type(value)


def _compared(operator: str, left: Any, right: Any) -> pc.Expression:
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
    """The least text that is greater than all that begin with a prefix; None where there is none."""
    cut = prefix.rstrip(_LAST_CHARACTER)
    if not cut:
        return None
    following = ord(cut[-1]) + 1
    # These aren't characters, but halves of some in UTF-16.
    return cut[:-1] + chr(0xE000 if 0xD800 <= following <= 0xDFFF else following)
