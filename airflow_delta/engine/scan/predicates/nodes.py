"""The tree that both parsers make. It knows no types yet: they are the table's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

__all__ = [
    "And",
    "Column",
    "Comparison",
    "Constant",
    "In",
    "IsNull",
    "Like",
    "Node",
    "Not",
    "Operand",
    "Or",
]


@dataclass(frozen=True, slots=True)
class Column:
    """A column, by its logical names from the top down.

    Attributes:
        path: the names.
        may_be_one_name: whether the names, joined by dots, are the name of one column where the table has
            such a column: where nothing tells the one from the other, as in tuples.
    """

    path: tuple[str, ...]
    may_be_one_name: bool = False


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant, as the user wrote it.

    Attributes:
        value: None (NULL), a bool, int, Decimal, float, str, bytes, date or datetime.
        kind: of a text that says what it is, as ``DATE '2026-01-01'`` does: the type's name.
    """

    value: Any
    kind: str | None = None


Operand: TypeAlias = Column | Constant


@dataclass(frozen=True, slots=True)
class Comparison:
    """``left operator right``; null where a side is null.

    Attributes:
        operator: ``==``, ``!=``, ``<``, ``<=``, ``>`` or ``>=``.
        left: the one side.
        right: the other one.
    """

    operator: str
    left: Operand
    right: Operand


@dataclass(frozen=True, slots=True)
class In:
    """Whether a column's value is one of some; null where it is null, or might be the NULL among them."""

    column: Column
    values: tuple[Constant, ...]


@dataclass(frozen=True, slots=True)
class IsNull:
    """Whether a column is null; never null itself."""

    column: Column


@dataclass(frozen=True, slots=True)
class Like:
    """Whether a text begins with another one, or is that.

    Attributes:
        column: the text.
        prefix: what it begins with.
        is_whole: whether that is all of it.
    """

    column: Column
    prefix: str
    is_whole: bool


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite; null stays null."""

    operand: Node


@dataclass(frozen=True, slots=True)
class And:
    """All of some."""

    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Any of some."""

    operands: tuple[Node, ...]


Node: TypeAlias = "Comparison | In | IsNull | Like | Not | And | Or | Column | Constant"
"""A predicate. A column or a constant alone is one if it is a boolean."""
