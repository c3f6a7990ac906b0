"""Column names as SQL writes them: parts between dots, odd ones in backticks.

Table properties that list columns, such as ``delta.dataSkippingStatsColumns``, hold them like this.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["split_names", "sql_name"]

_PLAIN = re.compile(r"(?!\d+$)\w+", re.ASCII)


def split_names(text: str) -> list[tuple[str, ...]]:
    """SQL names between commas, as in ``a, b.c, `d,e` ``; each is a tuple of its parts."""
    names: list[tuple[str, ...]] = []
    parts: list[str] = []
    part, quoted, index = "", False, 0
    while index < len(text):
        character = text[index]
        if quoted and text[index : index + 2] == "``":
            part, index = part + "`", index + 1
        elif character == "`":
            quoted = not quoted
        elif not quoted and character in ".,":
            parts.append(part)
            part = ""
            if character == ",":
                names.append(tuple(parts))
                parts = []
        elif quoted or not character.isspace():
            part += character
        index += 1
    return [*names, (*parts, part)]


def sql_name(parts: Iterable[str]) -> str:
    """A name of its parts, as in ``b.`c d```: the inverse of `split_names` for one name."""
    return ".".join(
        part if _PLAIN.fullmatch(part) else f"`{part.replace('`', '``')}`" for part in parts
    )
