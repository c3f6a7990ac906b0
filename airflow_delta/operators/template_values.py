"""What templated arguments hold once rendered: mostly text, where a number is meant.

``"{{ ti.xcom_pull('pin')['version'] }}"`` renders to ``"24"``, and a missing value to ``"None"``.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["as_conf", "as_flag", "as_hours", "as_names", "as_text", "as_timestamp", "as_version"]

_ABSENT = ("", "None")
_FLAGS = {"true": True, "false": False}
_MOST_HOURS = 1e9
_INTEGER = re.compile(r"[+-]?[0-9]+")


def as_version(value: str | int | None, *, name: str) -> int | None:
    """The version that a rendered argument means; None where it means none.

    :param name: the argument's name, for the message.
    :raises ValueError: it isn't a whole number.
    """
    text = str(value).strip()
    if value is None or text in _ABSENT:
        return None
    # A bool is an int to Python, and no version to anybody.
    if isinstance(value, bool) or not _INTEGER.fullmatch(text):
        raise ValueError(f"{name}: expected a version such as 24, found {value!r}")
    return int(text)


def as_conf(conf: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """The configuration that a rendered argument means; None where it means none.

    Keys whose values are left empty count as left out, and a configuration of nothing else as none.
    What isn't a mapping is left to the engine, which says so.
    """
    if not isinstance(conf, Mapping) or not conf:
        return conf
    given = {name: value for name, value in conf.items() if value is not None}
    given = {name: value for name, value in given.items() if str(value).strip() not in _ABSENT}
    return given or None


def as_timestamp(value: str | int | None) -> str | int | None:
    """The timestamp that a rendered argument means: epoch milliseconds or text; None for none.

    The text is left to the engine, which knows the formats.
    """
    text = str(value).strip()
    if value is None or text in _ABSENT:
        return None
    return int(text) if _INTEGER.fullmatch(text) else text


def as_hours(value: str | float | None, *, name: str) -> float | None:
    """The number of hours that a rendered argument means; None where it means none.

    :param name: the argument's name, for the message.
    :raises ValueError: it isn't a number, or a negative one, or beyond all time.
    """
    text = str(value).strip()
    if value is None or text in _ABSENT:
        return None
    try:
        hours = math.nan if isinstance(value, bool) else float(text)
    except ValueError:
        hours = math.nan
    if not 0 <= hours <= _MOST_HOURS:
        raise ValueError(f"{name}: expected a number of hours such as 168, found {value!r}")
    return hours


def as_flag(value: str | bool, *, name: str) -> bool:
    """Whether a rendered argument is true.

    :param name: the argument's name, for the message.
    :raises ValueError: it says neither. What is missing isn't taken for a no: much can hang on it.
    """
    found = _FLAGS.get(str(value).strip().lower())
    if found is None:
        raise ValueError(f"{name}: expected true or false, found {value!r}")
    return found


def as_text(value: str | None) -> str | None:
    """The text that a rendered argument means; None where it means none."""
    return None if value is None or value.strip() in _ABSENT else value


def as_names(value: Sequence[str] | str | None, *, name: str) -> list[str] | None:
    """The list of names that a rendered argument means; None where it means none.

    :param name: the argument's name, for the message.
    :raises ValueError: it is neither a list of texts nor the JSON of one.
    """
    found: Any = value
    if isinstance(value, str):
        if value.strip() in _ABSENT or value.strip() == "null":
            return None
        try:
            found = json.loads(value)
        except ValueError:
            found = None
    elif value is None:
        return None
    if not isinstance(found, list | tuple) or not all(isinstance(item, str) for item in found):
        raise ValueError(f'{name}: expected a list of names such as ["id"], found {value!r}')
    return list(found)
