"""Read and write column names as in SQL: parts separated by dots, in backticks if needed.

Table properties that list columns, such as ``delta.dataSkippingStatsColumns``, contain such names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from airflow_delta.engine.errors import InvalidArgumentError, InvalidTableError

__all__ = ["listed_columns", "split_names", "sql_name"]

_PLAIN = re.compile(r"(?!\d+$)\w+", re.ASCII)
# Letters of any script: some engines write them without backticks, and they are unambiguous.
_PART = re.compile(r"\s*(?:`(?P<quoted>(?:[^`]|``)+)`|(?P<plain>\w+))\s*(?P<end>[.,]|$)")


def split_names(text: str) -> list[tuple[str, ...]]:
    """Parse SQL names that are separated by commas, as in ``a, b.c, `d,e` ``, into tuples of their parts.

    Args:
        text: the names; may be blank.

    Raises:
        InvalidTableError: a part is missing, its backtick isn't closed, or it has characters that need
            backticks.
    """
    names: list[tuple[str, ...]] = []
    parts: list[str] = []
    offset, end = 0, "" if not text.strip() else ","
    while end:
        found = _PART.match(text, offset)
        if found is None:
            raise InvalidTableError(
                f"{text!r} is no list of column names at {text[offset:]!r}: expected names separated by "
                "commas, parts separated by dots, and parts with other characters than letters, digits "
                "and '_' in backticks"
            )
        quoted, offset, end = found["quoted"], found.end(), found["end"]
        parts.append(found["plain"] if quoted is None else quoted.replace("``", "`"))
        if end != ".":
            names.append(tuple(parts))
            parts = []
    return names


def listed_columns(text: str, argument: str) -> list[tuple[str, ...]]:
    """Parse the names of columns that a user has listed; see `split_names`.

    Args:
        text: the names, separated by commas.
        argument: the name of the user's argument, for messages.

    Raises:
        InvalidArgumentError: this is no list of names.
    """
    try:
        return split_names(text)
    except InvalidTableError as error:
        raise InvalidArgumentError(f"{argument}: {error.message}") from error


def sql_name(parts: Iterable[str]) -> str:
    """Write a name from its parts, as in ``b.`c d```: the inverse of `split_names` for one name."""
    return ".".join(
        part if _PLAIN.fullmatch(part) else f"`{part.replace('`', '``')}`" for part in parts
    )
