"""The tree that both parsers produce. It has no types yet; the schema of the table gives them."""

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
        may_be_one_name: whether the names, joined by dots, may also be the name of a single column, which
            then takes precedence: in tuples, both are written the same way.
    """

    path: tuple[str, ...]
    may_be_one_name: bool = False


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant, as the user wrote it.

    Attributes:
        value: None (NULL), a bool, int, Decimal, float, str, bytes, date or datetime.
        kind: the name of the type, if the constant has one, as in ``DATE '2026-01-01'``; else None.
    """

    value: Any
    kind: str | None = None


Operand: TypeAlias = Column | Constant


@dataclass(frozen=True, slots=True)
class Comparison:
    """``left operator right``; null where a side is null.

    Attributes:
        operator: ``==``, ``!=``, ``<``, ``<=``, ``>`` or ``>=``.
        left: the left side.
        right: the right side.
    """

    operator: str
    left: Operand
    right: Operand


@dataclass(frozen=True, slots=True)
class In:
    """Whether the value of a column is in a list.

    It is null if the value is null, or if the list contains a NULL and not the value.
    """

    column: Column
    values: tuple[Constant, ...]


@dataclass(frozen=True, slots=True)
class IsNull:
    """Whether a column is null; never null itself."""

    column: Column


@dataclass(frozen=True, slots=True)
class Like:
    """Whether a text starts with a prefix, or equals it.

    Attributes:
        column: the column of texts.
        prefix: the prefix.
        is_whole: whether the text must equal the prefix.
    """

    column: Column
    prefix: str
    is_whole: bool


@dataclass(frozen=True, slots=True)
class Not:
    """The negation of a node; null stays null."""

    operand: Node


@dataclass(frozen=True, slots=True)
class And:
    """Whether all operands are true."""

    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Whether any operand is true."""

    operands: tuple[Node, ...]


Node: TypeAlias = "Comparison | In | IsNull | Like | Not | And | Or | Column | Constant"
"""A predicate. A boolean column or constant is one, too."""
