"""Column names as SQL writes them: parts between dots, odd ones in backticks.

Table properties that list columns, such as ``delta.dataSkippingStatsColumns``, hold them like this.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from airflow_delta.engine.errors import InvalidTableError

__all__ = ["split_names", "sql_name"]

_PLAIN = re.compile(r"(?!\d+$)\w+", re.ASCII)
# Letters of any script: some engines take them without backticks, and nothing else is meant by them.
_PART = re.compile(r"\s*(?:`(?P<quoted>(?:[^`]|``)+)`|(?P<plain>\w+))\s*(?P<end>[.,]|$)")


def split_names(text: str) -> list[tuple[str, ...]]:
    """SQL names between commas, as in ``a, b.c, `d,e` ``; each is a tuple of its parts.

    Args:
        text: the names; blank for none.

    Raises:
        InvalidTableError: a part is missing, its backtick isn't closed, or it has characters that need
            backticks.
    """
    names: list[tuple[str, ...]] = []
    parts: list[str] = []
    place, end = 0, "" if not text.strip() else ","
    while end:
        found = _PART.match(text, place)
        if found is None:
            raise InvalidTableError(
                f"{text!r} is no list of column names at {text[place:]!r}: expected names between commas, "
                "their parts between dots, and what isn't just letters, digits and '_' in backticks"
            )
        quoted, place, end = found["quoted"], found.end(), found["end"]
        parts.append(found["plain"] if quoted is None else quoted.replace("``", "`"))
        if end != ".":
            names.append(tuple(parts))
            parts = []
    return names


def sql_name(parts: Iterable[str]) -> str:
    """A name of its parts, as in ``b.`c d```: the inverse of `split_names` for one name."""
    return ".".join(
        part if _PLAIN.fullmatch(part) else f"`{part.replace('`', '``')}`" for part in parts
    )
