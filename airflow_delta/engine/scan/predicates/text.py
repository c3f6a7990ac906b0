"""Parse a predicate that is written as in SQL.

::

    condition   = conjunction { OR conjunction }
    conjunction = negation { AND negation }
    negation    = { NOT } test
    test        = "(" condition ")"
                | operand [ comparison ]
    comparison  = ( "=" | "==" | "!=" | "<>" | "<" | "<=" | ">" | ">=" ) operand
                | IS [ NOT ] NULL
                | [ NOT ] BETWEEN operand AND operand
                | [ NOT ] IN "(" constant { "," constant } ")"
                | [ NOT ] LIKE text
    operand     = column | constant
    column      = name { "." name }
    constant    = number | text | TRUE | FALSE | NULL | X'hexadecimal' | DATE text | TIMESTAMP text

A name is in backticks unless it is made of letters, digits and underscores; keywords are in any case. What
SQL has beyond that (functions, arithmetic, subqueries) is refused by name: what is known of files says
nothing about it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeVar

from airflow_delta.engine.errors import InvalidArgumentError
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

__all__ = ["parse_text"]

_T = TypeVar("_T")

_MOST_NESTED = 100
_SHOWN_CHARACTERS = 80
_KEYWORDS = frozenset({"AND", "OR", "NOT", "IN", "IS", "NULL", "BETWEEN", "LIKE", "TRUE", "FALSE"})
_TYPED_TEXTS = frozenset({"DATE", "TIMESTAMP", "TIMESTAMP_NTZ"})
_COMPARISONS = {"=": "==", "==": "==", "!=": "!=", "<>": "!=", "<": "<", "<=": "<=", ">": ">"} | {
    ">=": ">="
}
_TOKEN = re.compile(
    r"""
      (?P<space>  \s+ )
    | (?P<bytes>  [xX]'(?:[0-9a-fA-F]{2})*' )
    | (?P<text>   '(?:[^']|'')*' )
    | (?P<quoted> `(?:[^`]|``)+` )
    | (?P<number> (?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?![\w.]) )
    | (?P<word>   [^\W\d]\w* )
    | (?P<symbol> <=|>=|<>|!=|==|[=<>(),.+-] )
    """,
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class _Token:
    """A word of the text.

    Attributes:
        kind: ``keyword``, ``word``, ``quoted``, ``text``, ``bytes``, ``number``, ``symbol`` or ``end``.
        text: as it is written; keywords in upper case.
        place: where it begins.
    """

    kind: str
    text: str
    place: int


def parse_text(text: str, *, table: str) -> Node:
    """The tree of a predicate.

    Args:
        text: the predicate; see the module.
        table: the table's location, for messages.

    Raises:
        InvalidArgumentError: it isn't one. The message says where, what was found and what was expected.
            Facts: position.
    """
    return _Parser(text, table).parsed()


class _Parser:
    """Parses one text, by a method for each rule of the grammar."""

    def __init__(self, text: str, table: str) -> None:
        self._text = text
        self._table = table
        self._tokens = [*self._read()]
        self._next = 0
        self._depth = 0

    def parsed(self) -> Node:
        """The tree of all of the text."""
        node = self._condition()
        if self._token.kind != "end":
            raise self._unexpected("AND, OR or the end")
        return node

    # Tokens

    def _read(self) -> Iterator[_Token]:
        place = 0
        while place < len(self._text):
            match = _TOKEN.match(self._text, place)
            if match is None or self._text.startswith("--", place):
                raise self._cannot_read(place)
            kind, text = str(match.lastgroup), match[0]
            if kind == "word" and text.upper() in _KEYWORDS:
                yield _Token("keyword", text.upper(), place)
            elif kind != "space":
                yield _Token(kind, text, place)
            place = match.end()
        yield _Token("end", "", place)

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _taken(self) -> _Token:
        token = self._token
        self._next += 1
        return token

    def _accepts(self, text: str) -> bool:
        """Take the next token if it is this keyword or symbol."""
        if self._token.kind in ("keyword", "symbol") and self._token.text == text:
            self._next += 1
            return True
        return False

    def _expect(self, text: str) -> None:
        if not self._accepts(text):
            raise self._unexpected(repr(text))

    # The grammar

    def _condition(self) -> Node:
        operands = self._separated(self._conjunction, "OR")
        return operands[0] if len(operands) == 1 else Or(operands)

    def _conjunction(self) -> Node:
        operands = self._separated(self._negation, "AND")
        return operands[0] if len(operands) == 1 else And(operands)

    def _separated(self, part: Callable[[], _T], separator: str) -> tuple[_T, ...]:
        parts = [part()]
        while self._accepts(separator):
            parts.append(part())
        return tuple(parts)

    def _negation(self) -> Node:
        is_negated = False
        while self._accepts("NOT"):
            is_negated = not is_negated
        node = self._test()
        return Not(node) if is_negated else node

    def _test(self) -> Node:
        if not self._accepts("("):
            return self._comparison(self._operand())
        self._depth += 1
        if self._depth > _MOST_NESTED:
            raise self._error(f"there are more than {_MOST_NESTED} parentheses in each other")
        node = self._condition()
        self._expect(")")
        self._depth -= 1
        return node

    def _comparison(self, left: Operand) -> Node:
        if self._token.kind == "symbol" and self._token.text in _COMPARISONS:
            return Comparison(_COMPARISONS[self._taken().text], left, self._operand())
        if self._accepts("IS"):
            is_negated = self._accepts("NOT")
            self._expect("NULL")
            node: Node = IsNull(self._column_of(left, "IS NULL"))
        else:
            is_negated = self._accepts("NOT")
            if self._accepts("BETWEEN"):
                low = self._operand()
                self._expect("AND")
                high = self._operand()
                node = And((Comparison(">=", left, low), Comparison("<=", left, high)))
            elif self._accepts("IN"):
                self._expect("(")
                column = self._column_of(left, "IN")
                node = In(column, self._separated(self._constant, ","))
                self._expect(")")
            elif self._accepts("LIKE"):
                node = self._like(self._column_of(left, "LIKE"))
            elif is_negated:
                raise self._unexpected("BETWEEN, IN or LIKE")
            else:
                return left
        return Not(node) if is_negated else node

    def _like(self, column: Column) -> Like:
        if self._token.kind != "text":
            raise self._unexpected("a text in single quotes")
        token = self._taken()
        prefix, is_whole = _prefix(_unquoted(token.text))
        if prefix is None:
            raise self._error(
                f"LIKE {token.text} can't be answered from what is known of files: only a text that "
                "ends in one % can (such as 'x%'), in which \\%, \\_ and \\\\ stand for %, _ and \\",
                token.place,
            )
        return Like(column, prefix, is_whole)

    def _column_of(self, operand: Operand, test: str) -> Column:
        if not isinstance(operand, Column):
            raise self._error(f"{test} is for columns, and {operand.value!r} is a constant")
        return operand

    def _operand(self) -> Operand:
        token = self._token
        starts_typed = token.kind == "word" and token.text.upper() in _TYPED_TEXTS
        if starts_typed and self._tokens[self._next + 1].kind == "text":
            return self._constant()
        return self._column() if token.kind in ("word", "quoted") else self._constant()

    def _column(self) -> Column:
        return Column(self._separated(self._name, "."))

    def _name(self) -> str:
        # After a dot a keyword is a name.
        token = self._token
        if token.kind not in ("word", "quoted", "keyword"):
            raise self._unexpected("a column's name")
        if self._tokens[self._next + 1].text == "(" and token.kind == "word":
            raise self._error(f"functions, such as {token.text}(…), aren't understood", token.place)
        self._next += 1
        if token.kind == "quoted":
            return token.text[1:-1].replace("``", "`")
        return self._text[token.place : token.place + len(token.text)]

    def _constant(self) -> Constant:
        sign = ""
        while self._token.text in ("+", "-") and self._token.kind == "symbol":
            sign = "-" if (self._taken().text == "-") != (sign == "-") else ""
        token = self._token
        if token.kind == "number":
            self._next += 1
            return Constant(_number(sign + token.text))
        if sign:
            raise self._unexpected("a number")
        if token.kind == "keyword" and token.text in ("TRUE", "FALSE", "NULL"):
            self._next += 1
            return Constant(None if token.text == "NULL" else token.text == "TRUE")
        if token.kind == "bytes":
            self._next += 1
            return Constant(bytes.fromhex(token.text[2:-1]))
        kind = None
        if token.kind == "word" and token.text.upper() in _TYPED_TEXTS:
            kind = self._taken().text.lower()
        if self._token.kind != "text":
            raise self._unexpected("a column or a constant")
        return Constant(_unquoted(self._taken().text), kind)

    # Errors

    def _cannot_read(self, place: int) -> InvalidArgumentError:
        rest = self._text[place:]
        if rest[0] == '"':
            why = "double quotes: a text is in single quotes ('x'), a name in backticks (`x`)"
        elif rest[0] in "'`":
            why = f"a {rest[0]} that isn't closed"
        elif rest[:2] in ("--", "/*"):
            why = "a comment, which isn't understood"
        elif rest[0] in "*/%|":
            why = f"{rest[0]!r}: arithmetic isn't understood"
        else:
            why = repr(_short(rest.split()[0]))
        return self._error(f"found {why}", place)

    def _unexpected(self, expected: str) -> InvalidArgumentError:
        token = self._token
        if token.kind == "symbol" and token.text in "+-":
            return self._error(f"arithmetic ({token.text}) isn't understood")
        found = "the end" if token.kind == "end" else repr(_short(token.text))
        return self._error(f"expected {expected}, found {found}")

    def _error(self, problem: str, place: int | None = None) -> InvalidArgumentError:
        where = self._token.place if place is None else place
        return InvalidArgumentError(
            f"predicate {_short(self._text)!r}, character {where + 1}: {problem}",
            table=self._table,
            position=where + 1,
        )


def _number(text: str) -> int | Decimal | float:
    """A number; one with an exponent is a double, as in SQL."""
    if "e" in text.lower():
        return float(text)
    return Decimal(text) if "." in text else int(text)


def _unquoted(text: str) -> str:
    return text[1:-1].replace("''", "'")


def _prefix(pattern: str) -> tuple[str | None, bool]:
    """What a pattern begins with, and whether it is all of it; None for any other pattern."""
    prefix: list[str] = []
    characters = iter(pattern)
    for character in characters:
        if character == "\\":
            escaped = next(characters, "")
            if escaped not in ("%", "_", "\\"):
                return None, False
            prefix.append(escaped)
        elif character == "%":
            return (None if next(characters, None) is not None else "".join(prefix)), False
        elif character == "_":
            return None, False
        else:
            prefix.append(character)
    return "".join(prefix), True


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
