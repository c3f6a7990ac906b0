"""Convert a `pyarrow.compute.Expression` to a tree of frozen nodes.

Only expressions that can be decided by bounds have a node; all others become `UNKNOWN`, which keeps all
files. Conjunctions and disjunctions are flat, so that a long chain doesn't become a deep tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.features.schema_walk import SchemaPath
from airflow_delta.engine.scan.expression_tokens import (
    Token,
    UnreadableExpressionError,
    expression_tokens,
)

__all__ = [
    "UNKNOWN",
    "And",
    "Column",
    "Comparison",
    "IsIn",
    "IsNull",
    "Literal",
    "Node",
    "Not",
    "Or",
    "Predicate",
    "Unknown",
    "read_predicate",
    "useful_columns",
]


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant."""

    value: Any
    """A `pyarrow.Scalar`, perhaps a null one."""


@dataclass(frozen=True, slots=True)
class Column:
    """The value of a column, by its logical names from the top down."""

    path: SchemaPath


@dataclass(frozen=True, slots=True)
class Unknown:
    """An expression that bounds can't decide. The only instance is `UNKNOWN`."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """``left operator right``; null where a side is null."""

    operator: str
    """``<``, ``<=``, ``>``, ``>=``, ``==`` or ``!=``."""
    left: Literal | Column
    right: Literal | Column


@dataclass(frozen=True, slots=True)
class IsIn:
    """Whether the value of a column is in a list. It counts as never null, which keeps no fewer files."""

    column: Column
    values: Any
    """The values that aren't null, as a `pyarrow.Array` without duplicates."""
    null_is_in: bool
    """Whether a null is in the list."""


@dataclass(frozen=True, slots=True)
class IsNull:
    """Whether a column is null; never null itself."""

    column: Column
    nan_is_null: bool


@dataclass(frozen=True, slots=True)
class Not:
    """The negation of a node; null stays null."""

    operand: Node


@dataclass(frozen=True, slots=True)
class And:
    """Whether all operands are true; null where that depends on a null."""

    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Whether any operand is true; null where that depends on a null."""

    operands: tuple[Node, ...]


Node: TypeAlias = "Literal | Column | Comparison | IsIn | IsNull | Not | And | Or | Unknown"

UNKNOWN = Unknown()


@dataclass(frozen=True, slots=True)
class Predicate:
    """A predicate as a tree.

    Attributes:
        root: the root of the tree.
        columns: all columns that the predicate names, also those in parts that became `UNKNOWN`.
    """

    root: Node
    columns: frozenset[SchemaPath]


def read_predicate(expression: Any) -> Predicate:
    """Convert a pyarrow expression to a tree.

    Raises:
        InvalidArgumentError: it is no pyarrow expression.
    """
    if not isinstance(expression, pc.Expression):
        raise InvalidArgumentError(
            f"predicate {expression!r} is a {type(expression).__name__}: expected a pyarrow.compute."
            'Expression over the columns of the table, such as pyarrow.compute.field("a") > 5'
        )
    try:
        tokens = expression_tokens(expression)
        columns = frozenset(token.value for token in tokens if token.kind == "field")
        return Predicate(_tree(tokens), columns)
    except UnreadableExpressionError:
        return Predicate(UNKNOWN, frozenset())


def useful_columns(node: Node) -> Iterator[SchemaPath]:
    """The columns whose bounds matter for a predicate, perhaps repeated."""
    match node:
        case Column(path):
            yield path
        case Comparison(_, left, right):
            yield from useful_columns(left)
            yield from useful_columns(right)
        case IsIn(column) | IsNull(column):
            yield column.path
        case Not(operand):
            yield from useful_columns(operand)
        case And(operands) | Or(operands):
            for operand in operands:
                yield from useful_columns(operand)
        case _:
            pass


@dataclass(slots=True)
class _Call:
    """A call whose arguments are being collected."""

    name: str
    arguments: list[Node]
    options: Any = None


def _tree(tokens: list[Token]) -> Node:
    """Build the tree without recursion, because a chain of thousands of ``|`` is nested that deep."""
    stack = [_Call("", [])]
    for token in tokens:
        match token:
            case Token("call", name):
                stack.append(_Call(name, []))
            case Token("field", path):
                stack[-1].arguments.append(Column(path))
            case Token("literal", value):
                stack[-1].arguments.append(Literal(value))
            case Token("options", value):
                stack[-1].options = value
            case Token("end", name) if len(stack) > 1 and stack[-1].name == name:
                node = _node(stack.pop())
                stack[-1].arguments.append(node)
            case _:
                raise UnreadableExpressionError(f"unexpected {token}")
    if len(stack) != 1 or len(stack[0].arguments) != 1:
        raise UnreadableExpressionError("not one expression")
    return stack[0].arguments[0]


def _node(call: _Call) -> Node:
    """The node of a call; `UNKNOWN` for an unsupported function, or unsupported arguments."""
    if call.name in _COMPARISONS:
        return _comparison(call)
    read = _FUNCTIONS.get(call.name)
    return UNKNOWN if read is None else read(call)


def _comparison(call: _Call) -> Node:
    match call.arguments:
        case [Literal() | Column() as left, Literal() | Column() as right]:
            return Comparison(_COMPARISONS[call.name], left, right)
    return UNKNOWN


def _and(call: _Call) -> Node:
    parts = (a.operands if isinstance(a, And) else (a,) for a in call.arguments)
    return And(tuple(operand for part in parts for operand in part))


def _or(call: _Call) -> Node:
    parts = (a.operands if isinstance(a, Or) else (a,) for a in call.arguments)
    return Or(tuple(operand for part in parts for operand in part))


def _not(call: _Call) -> Node:
    return Not(call.arguments[0]) if len(call.arguments) == 1 else UNKNOWN


def _is_null(call: _Call) -> Node:
    match call.arguments:
        case [Column() as column]:
            nan_is_null = call.options is not None and call.options["nan_is_null"].as_py()
            return IsNull(column, nan_is_null is not False)
    return UNKNOWN


def _is_valid(call: _Call) -> Node:
    match call.arguments:
        case [Column() as column]:
            return Not(IsNull(column, nan_is_null=False))
    return UNKNOWN


# pyarrow's SetLookupOptions.NullMatchingBehavior
_MATCH, _SKIP = 0, 1


def _is_in(call: _Call) -> Node:
    match call.arguments:
        case [Column() as column] if call.options is not None:
            behaviour = call.options["null_matching_behavior"].as_py()
            values = call.options["value_set"].values
            if behaviour not in (_MATCH, _SKIP) or values is None:
                return UNKNOWN
            null_is_in = behaviour == _MATCH and values.null_count > 0
            return IsIn(column, pc.unique(pc.drop_null(values)), null_is_in)
    return UNKNOWN


def _cast(call: _Call) -> Node:
    """Cast a constant. The cast of a column is `UNKNOWN`, because it may change the order of values."""
    match call.arguments:
        case [Literal(value)] if call.options is not None:
            options = dict(call.options.items())
            allowed = {name: options[name].as_py() for name in options if name.startswith("allow_")}
            try:
                target = pc.CastOptions(options["to_type"].type, **allowed)
                return Literal(pc.cast(value, options=target))
            except (pa.ArrowException, TypeError):
                return UNKNOWN
    return UNKNOWN


_COMPARISONS: Mapping[str, str] = {
    "equal": "==",
    "not_equal": "!=",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
}
_FUNCTIONS: Mapping[str, Callable[[_Call], Node]] = {
    # Without Kleene's rules more outcomes are null, for which no row matches: the same files are kept.
    "and": _and,
    "and_kleene": _and,
    "or": _or,
    "or_kleene": _or,
    "invert": _not,
    "is_null": _is_null,
    "is_valid": _is_valid,
    "is_in": _is_in,
    "cast": _cast,
}
