"""Parse a predicate that is a list of tuples, as pyarrow and deltalake accept it.

In ``[("day", ">=", "2026-01-01"), ("region", "in", ["eu", "us"])]`` all tuples must be true. In a list of
such lists, one list must be. The operators are ``=`` (or ``==``), ``!=`` (or ``<>``), ``<``, ``<=``,
``>``, ``>=``, ``in`` and ``not in``; and ``is`` and ``is not`` with None.

A comparison with None is an error: it would match no rows, and is usually meant as ``("a", "is", None)``.
Otherwise null is as in SQL: ``("a", "not in", [1])`` isn't true where ``a`` is null.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.scan.predicates.nodes import (
    And,
    Column,
    Comparison,
    Constant,
    In,
    IsNull,
    Node,
    Not,
    Or,
)

__all__ = ["parse_tuples"]

_COMPARISONS = {"=": "==", "==": "==", "!=": "!=", "<>": "!=", "<": "<", "<=": "<=", ">": ">"} | {
    ">=": ">="
}
_EXPECTED = (
    "a list of tuples, such as [('day', '>=', '2026-01-01'), ('region', 'in', ['eu', 'us'])], all of which "
    "must be true; or a list of such lists, of which one must be"
)


def parse_tuples(given: list[Any], *, table: str) -> Node:
    """Parse a predicate.

    Args:
        given: the list; see the module. A column inside another is ``"outer.inner"``, or a tuple of names.
        table: the table's location, for messages.

    Raises:
        InvalidArgumentError: the list is no predicate.
    """
    if given and all(isinstance(each, list) for each in given):
        return _any_of([_conjunction(each, table) for each in given])
    return _conjunction(given, table)


def _any_of(nodes: list[Node]) -> Node:
    return nodes[0] if len(nodes) == 1 else Or(tuple(nodes))


def _conjunction(given: list[Any], table: str) -> Node:
    if not given:
        raise InvalidArgumentError(
            f"predicate: expected {_EXPECTED}; found an empty list", table=table
        )
    nodes = tuple(_test(each, table) for each in given)
    return nodes[0] if len(nodes) == 1 else And(nodes)


def _test(given: Any, table: str) -> Node:
    match given:
        case (str() | tuple() as name, str() as operator, value) if isinstance(given, tuple):
            column = _column(name, table)
        case _:
            raise InvalidArgumentError(
                f"predicate: expected {_EXPECTED}; found {type(given).__name__} {given!r} in it",
                table=table,
            )
    word = " ".join(operator.lower().split())
    if word in _COMPARISONS and value is not None:
        return Comparison(_COMPARISONS[word], column, Constant(value))
    if word in ("in", "not in"):
        node: Node = In(column, tuple(map(Constant, _values(given, value, table))))
    elif word in ("is", "is not") and value is None:
        node = IsNull(column)
    else:
        raise _refusal(given, word, table)
    return Not(node) if word.endswith("not in") or word == "is not" else node


def _column(name: str | tuple[Any, ...], table: str) -> Column:
    if isinstance(name, str):
        return Column(tuple(name.split(".")), may_be_one_name=True)
    if not name or not all(isinstance(part, str) for part in name):
        raise InvalidArgumentError(
            f"predicate: expected a column's name, or the names from the top down, found {name!r}",
            table=table,
        )
    return Column(name)


def _values(given: Any, values: Any, table: str) -> list[Any]:
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise InvalidArgumentError(
            f"predicate: {given!r}: expected a list of values, found {type(values).__name__} {values!r}",
            table=table,
        )
    return list(values)


def _refusal(given: Any, word: str, table: str) -> InvalidArgumentError:
    if word in _COMPARISONS:
        instead = {"==": "is", "!=": "is not"}.get(_COMPARISONS[word])
        why = "a comparison with None is true of no row" + (
            f"; for rows without a value say {(given[0], instead, None)!r}" if instead else ""
        )
    elif word in ("is", "is not"):
        why = f"{word!r} is for None alone, found {given[2]!r}"
    else:
        operators = ", ".join([*_COMPARISONS, "in", "not in", "is", "is not"])
        why = f"there is no operator {given[1]!r}; expected one of {operators}"
    return InvalidArgumentError(f"predicate: {given!r}: {why}", table=table)
