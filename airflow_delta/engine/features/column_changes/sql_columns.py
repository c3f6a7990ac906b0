r"""Find the columns that a SQL expression may refer to, without a parser of SQL.

Constraints, generated columns and invariants are SQL text, and a column that they use must not be renamed,
dropped or widened. This engine doesn't parse the SQL of all engines. It splits the text into tokens, and
takes each name for a column unless it is certainly something else. So it may find too many columns, but
misses none.

===========================  =========================================================================
not taken for a column       because
===========================  =========================================================================
``'text'``, ``"text"``       it is a literal (by default engines in use read double quotes as such)
``-- …``, ``/* … */``        it is a comment
``abs(``, ``in (``           a function, or an operator
``date'2026-01-01'``         the type of a literal: no operand follows another
``1 day``                    a unit, for the same reason
``as int``, ``::int``        a type
``x.[…].y``                  ``y`` is inside ``x``, which is taken
===========================  =========================================================================
"""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ["columns_in_sql"]

_OPENS = re.compile(r"['\"`]|/\*")
_CLOSED = {
    "'": re.compile(r"(?P<text>'(?:[^'\\]|\\.|'')*')", re.DOTALL),
    '"': re.compile(r'(?P<text>"(?:[^"\\]|\\.|"")*")', re.DOTALL),
    "`": re.compile(r"(?P<quoted>`(?:[^`]|``)*`)"),
    "/*": re.compile(r"(?P<skip>/\*.*?\*/)", re.DOTALL),
}
_PLAIN_TOKEN = re.compile(
    r"(?P<skip>\s+|--[^\n]*)|(?P<word>\w+)|(?P<cast>::)|(?P<other>.)", re.DOTALL
)


def columns_in_sql(expression: str) -> frozenset[tuple[str, ...]]:
    """The names in an expression that may be columns, each as the list of its parts.

    Args:
        expression: a SQL expression.
    """
    return frozenset(_columns(list(_tokens(expression))))


def _tokens(expression: str) -> Iterator[tuple[str, str]]:
    """The tokens, each with its kind, in linear time."""
    unclosed: set[str] = set()
    offset = 0
    while offset < len(expression):
        opens = _OPENS.match(expression, offset)
        if opens is None or opens[0] in unclosed:
            match = _PLAIN_TOKEN.match(expression, offset)
        else:
            match = _CLOSED[opens[0]].match(expression, offset)
            if match is None:
                # No later quote of this kind is closed either. To search for its end again each time would
                # take quadratic time.
                unclosed.add(opens[0])
                continue
        assert match is not None  # any character is a token
        if match.lastgroup != "skip":
            yield match.lastgroup or "", match.group()
        offset = match.end()


def _columns(tokens: list[tuple[str, str]]) -> Iterator[tuple[str, ...]]:
    index = 0
    while index < len(tokens):
        parts = []
        before = tokens[index - 1] if index else ("", "")
        while index < len(tokens) and tokens[index][0] in ("word", "quoted"):
            parts.append(_name(*tokens[index]))
            dotted = tokens[index + 1 : index + 2] == [("other", ".")]
            index += 2 if dotted else 1
            if not dotted:
                break
        after = tokens[index] if index < len(tokens) else ("", "")
        if parts and not _is_something_else(before, after):
            yield tuple(parts)
        index += not parts


def _is_something_else(before: tuple[str, str], after: tuple[str, str]) -> bool:
    follows_operand = before[0] == "text" or (before[0] == "word" and before[1].isdigit())
    is_type = before[0] == "cast" or before[1].lower() == "as" or after[0] == "text"
    is_inside = before[1] == "."
    return follows_operand or is_type or is_inside or after[1] == "("


def _name(kind: str, text: str) -> str:
    return text[1:-1].replace("``", "`") if kind == "quoted" else text
