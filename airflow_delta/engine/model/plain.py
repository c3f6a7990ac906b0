"""Convert values to plain JSON values, for ``to_dict()`` of the engine's results."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import Enum
from typing import Any

from airflow_delta.engine.model.times import utc_text

__all__ = ["plain", "time_or_none"]


def plain(value: Any) -> Any:
    """Convert a value to texts, finite numbers, booleans, None, lists and dicts.

    Args:
        value: a plain value, a mapping, a list, a set, an enumeration's member, a datetime, or an object
            with ``to_dict``. NaN, the infinities and other objects become texts.
    """
    found: dict[Any, Any] = {}
    # Without recursion: a commit may have JSON as deep as Python can read it.
    pending: list[tuple[dict[Any, Any] | list[Any], Any, Any]] = [(found, None, value)]
    while pending:
        container, key, entry = pending.pop()
        made = _plain_surface(entry)
        container[key] = made
        if isinstance(made, dict):
            pending += [(made, name, inner) for name, inner in made.items()]
        elif isinstance(made, list):
            pending += [(made, index, inner) for index, inner in enumerate(made)]
    return found[None]


def _plain_surface(value: Any) -> Any:
    """A plain value, or a new dict or list whose values are yet to be converted."""
    match value:
        case None | bool() | str():
            return value
        case Enum():
            return _plain_surface(value.value)
        case int():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case Mapping():
            return {str(key): entry for key, entry in value.items()}
        case set() | frozenset():
            return sorted(map(plain, value))
        case _ if hasattr(value, "to_dict"):
            return _plain_surface(value.to_dict())
        case bytes() | bytearray():
            return value.hex()
        case Iterable():
            return list(value)
        case _:
            return str(value)


def time_or_none(timestamp_ms: int | None) -> str | None:
    """A time in epoch milliseconds as ISO-8601 in UTC; None for None."""
    return None if timestamp_ms is None else utc_text(timestamp_ms)
