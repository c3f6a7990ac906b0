"""Parse a predicate written as in SQL.

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

A name is in backticks unless it consists of letters, digits and underscores. Keywords are in any case. All
else that SQL has (functions, arithmetic, subqueries) is an error that names it: the bounds of files don't
decide it.
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
    """A token of the text.

    Attributes:
        kind: ``keyword``, ``word``, ``quoted``, ``text``, ``bytes``, ``number``, ``symbol`` or ``end``.
        text: as it is written; keywords in upper case.
        position: the index of its first character.
    """

    kind: str
    text: str
    position: int


def parse_text(text: str, *, table: str) -> Node:
    """Parse a predicate.

    Args:
        text: the predicate; see the module.
        table: the table's location, for messages.

    Raises:
        InvalidArgumentError: it can't be parsed. The message has the position, what was found and what was
            expected. Facts: position.
    """
    return _Parser(text, table).parse()


class _Parser:
    """Parses one text, with a method for each rule of the grammar."""

    def __init__(self, text: str, table: str) -> None:
        self._text = text
        self._table = table
        self._tokens = [*self._read()]
        self._next = 0
        self._depth = 0

    def parse(self) -> Node:
        """Parse the whole text."""
        node = self._condition()
        if self._token.kind != "end":
            raise self._unexpected("AND, OR or the end")
        return node

    # Tokens

    def _read(self) -> Iterator[_Token]:
        position = 0
        while position < len(self._text):
            match = _TOKEN.match(self._text, position)
            if match is None or self._text.startswith("--", position):
                raise self._unreadable(position)
            kind, text = str(match.lastgroup), match[0]
            if kind == "word" and text.upper() in _KEYWORDS:
                yield _Token("keyword", text.upper(), position)
            elif kind != "space":
                yield _Token(kind, text, position)
            position = match.end()
        yield _Token("end", "", position)

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _take(self) -> _Token:
        token = self._token
        self._next += 1
        return token

    def _accept(self, text: str) -> bool:
        """Take the next token if it is this keyword or symbol; return whether it was."""
        if self._token.kind in ("keyword", "symbol") and self._token.text == text:
            self._next += 1
            return True
        return False

    def _expect(self, text: str) -> None:
        if not self._accept(text):
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
        while self._accept(separator):
            parts.append(part())
        return tuple(parts)

    def _negation(self) -> Node:
        is_negated = False
        while self._accept("NOT"):
            is_negated = not is_negated
        node = self._test()
        return Not(node) if is_negated else node

    def _test(self) -> Node:
        if not self._accept("("):
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
            return Comparison(_COMPARISONS[self._take().text], left, self._operand())
        if self._accept("IS"):
            is_negated = self._accept("NOT")
            self._expect("NULL")
            node: Node = IsNull(self._column_of(left, "IS NULL"))
        else:
            is_negated = self._accept("NOT")
            if self._accept("BETWEEN"):
                low = self._operand()
                self._expect("AND")
                high = self._operand()
                node = And((Comparison(">=", left, low), Comparison("<=", left, high)))
            elif self._accept("IN"):
                self._expect("(")
                column = self._column_of(left, "IN")
                node = In(column, self._separated(self._constant, ","))
                self._expect(")")
            elif self._accept("LIKE"):
                node = self._like(self._column_of(left, "LIKE"))
            elif is_negated:
                raise self._unexpected("BETWEEN, IN or LIKE")
            else:
                return left
        return Not(node) if is_negated else node

    def _like(self, column: Column) -> Like:
        if self._token.kind != "text":
            raise self._unexpected("a text in single quotes")
        token = self._take()
        prefix, is_whole = _prefix(_unquote(token.text))
        if prefix is None:
            raise self._error(
                f"LIKE {token.text} can't be answered from what is known of files: only a text that "
                "ends in one % can (such as 'x%'), in which \\%, \\_ and \\\\ stand for %, _ and \\",
                token.position,
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
            raise self._error(
                f"functions, such as {token.text}(…), aren't understood", token.position
            )
        self._next += 1
        if token.kind == "quoted":
            return token.text[1:-1].replace("``", "`")
        return self._text[token.position : token.position + len(token.text)]

    def _constant(self) -> Constant:
        sign = ""
        while self._token.text in ("+", "-") and self._token.kind == "symbol":
            sign = "-" if (self._take().text == "-") != (sign == "-") else ""
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
            kind = self._take().text.lower()
        if self._token.kind != "text":
            raise self._unexpected("a column or a constant")
        return Constant(_unquote(self._take().text), kind)

    # Errors

    def _unreadable(self, position: int) -> InvalidArgumentError:
        rest = self._text[position:]
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
        return self._error(f"found {why}", position)

    def _unexpected(self, expected: str) -> InvalidArgumentError:
        token = self._token
        if token.kind == "symbol" and token.text in "+-":
            return self._error(f"arithmetic ({token.text}) isn't understood")
        found = "the end" if token.kind == "end" else repr(_short(token.text))
        return self._error(f"expected {expected}, found {found}")

    def _error(self, problem: str, position: int | None = None) -> InvalidArgumentError:
        number = (self._token.position if position is None else position) + 1
        return InvalidArgumentError(
            f"predicate {_short(self._text)!r}, character {number}: {problem}",
            table=self._table,
            position=number,
        )


def _number(text: str) -> int | Decimal | float:
    """Parse a number; one with an exponent is a double, as in SQL."""
    if "e" in text.lower():
        return float(text)
    return Decimal(text) if "." in text else int(text)


def _unquote(text: str) -> str:
    return text[1:-1].replace("''", "'")


def _prefix(pattern: str) -> tuple[str | None, bool]:
    """The prefix that a pattern matches, and whether it matches nothing longer.

    The prefix is None for a pattern that has other wildcards than a ``%`` at its end.
    """
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
