"""Readers: functions that parse the arguments of tasks, or raise an error with the argument's name.

Each argument has one reader (`TableTask.arguments`). It is called when the DAG is parsed, or after
rendering if the value has a template. A rendered number may be text: ``pin.output["version"]``
gives ``24``, a Jinja template ``"24"``.

For None, which means that the argument isn't given, a reader returns the default. For an invalid
value it raises an `ArgumentError`; an empty text and ``"None"`` are invalid.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from airflow_delta.hooks.argument_rules import (
    check_clauses,
    check_location,
    check_new_values,
    check_timestamp,
)
from airflow_delta.hooks.failures import ArgumentError
from airflow_delta.hooks.table_locations import as_locations

__all__ = [
    "TRIGGERING_EVENT",
    "Reader",
    "as_allowed_locations",
    "as_bytes",
    "as_clauses",
    "as_conf",
    "as_hours",
    "as_names",
    "as_new_values",
    "as_pinned_version",
    "as_required_location",
    "as_required_text",
    "as_spark_conf",
    "as_text",
    "as_texts",
    "as_timestamp",
    "as_version",
    "as_version_or_before",
    "choice",
    "flag",
    "is_absent",
    "location",
    "switch",
]

TRIGGERING_EVENT = "triggering_event"
"""The version that stands for the one of the asset event that has started the DAG run."""

_ABSENT = ("", "None", "null")
_FLAGS = {"true": True, "false": False}
_MOST_HOURS = 1e9
_INTEGER = re.compile(r"[+-]?[0-9]+")


class Reader(Protocol):
    """A function that parses the value of an argument."""

    def __call__(self, value: Any, *, name: str) -> Any:
        """Parse a value; raise `ArgumentError` if it is invalid."""


def is_absent(value: object) -> bool:
    """Whether a rendered value is missing: None, or the text of an empty template."""
    return value is None or (isinstance(value, str) and value.strip() in _ABSENT)


def as_version(value: str | int | None, *, name: str) -> int | None:
    """A version; None for none."""
    return _whole(value, name=name, least=0, expected="a version such as 24")


def as_pinned_version(value: str | int | None, *, name: str) -> int | str | None:
    """A version, or `TRIGGERING_EVENT`; None for none."""
    if isinstance(value, str) and value.strip() == TRIGGERING_EVENT:
        return TRIGGERING_EVENT
    expected = f"a version such as 24, or {TRIGGERING_EVENT!r}"
    return _whole(value, name=name, least=0, expected=expected)


def as_version_or_before(value: str | int | None, *, name: str) -> int | None:
    """A version, or -1 for the time before the first one; None for none."""
    return _whole(value, name=name, least=-1, expected="a version such as 24, or -1 for none")


def as_bytes(value: str | int | None, *, name: str) -> int | None:
    """A number of bytes; None for none."""
    return _whole(value, name=name, least=0, expected="a number of bytes from 0 on, or None")


def as_size(value: str | int | None, *, name: str) -> int | None:
    """A size in bytes; None for none."""
    return _whole(value, name=name, least=1, expected="a number of bytes from 1 on, or None")


def as_conf(value: Mapping[str, Any] | None, *, name: str) -> Mapping[str, Any] | None:
    """The configuration of a commit owner; None for none.

    Keys with the value None are ignored; if no others are left, the result is None.
    """
    given = _mapping(value, name=name, expected='a dictionary such as {"backfill": "10"}')
    return None if value and not given else given


def as_spark_conf(value: Mapping[str, Any] | None, *, name: str) -> dict[str, str] | None:
    """Spark properties as texts; None for none. Those whose value is None are left out."""
    expected = 'a dictionary of Spark properties such as {"spark.executor.memory": "4g"}'
    return _texts(value, name=name, expected=expected)


def as_texts(value: Mapping[str, Any] | None, *, name: str) -> dict[str, str] | None:
    """Texts by name, from texts, numbers and booleans; None for none. Values that are None are left out."""
    return _texts(value, name=name, expected='a dictionary of texts such as {"header": "true"}')


def as_texts_or_json(value: Mapping[str, Any] | str | None, *, name: str) -> dict[str, str] | None:
    """Texts by name as `as_texts` reads them, or the JSON of them; None for none."""
    if not isinstance(value, str):
        return as_texts(value, name=name)
    try:
        return as_texts(json.loads(value), name=name)
    except ValueError:
        raise _wrong(name, "a dictionary of texts, or the JSON of one", value) from None


def as_column_types(value: Any, *, name: str) -> dict[str, str] | None:
    """Types by the names of columns, in order; None for none.

    They are given as a dictionary, as a list such as ``["day:date"]``, or as the JSON of such a list. The
    JSON of a dictionary isn't taken, because ``tojson`` and databases change its order.
    """
    if value is None or isinstance(value, Mapping):
        return as_texts(value, name=name)
    try:
        pairs = [pair.rpartition(":") for pair in as_names(value, name=name) or ()]
    except ArgumentError:
        pairs = [("", "", "")]
    types = {column: kind for column, _, kind in pairs}
    if "" in types or len(types) < len(pairs):
        raise _wrong(name, 'types of columns such as {"day": "date"} or ["day:date"]', value)
    return types


def as_new_values(value: Any, *, name: str) -> dict[str, Any]:
    """New values of columns by name, of which there must be some."""
    try:
        check_new_values(value, name=name)
    except ValueError as error:
        raise ArgumentError(str(error)) from None
    return dict(value)


def as_clauses(value: Any, *, name: str) -> list[dict[str, Any]]:
    """The clauses of a merge, of which there must be some."""
    try:
        check_clauses(value, name=name)
    except ValueError as error:
        raise ArgumentError(str(error)) from None
    return [dict(clause) for clause in value]


def as_timestamp(value: str | int | datetime | None, *, name: str) -> str | int | None:
    """A point in time: epoch milliseconds or ISO-8601; None for none."""
    if value is None:
        return None
    text = value.isoformat() if isinstance(value, datetime) else str(value).strip()
    found = int(text) if _INTEGER.fullmatch(text) else text
    try:
        check_timestamp(value if isinstance(value, bool) else found)
    except ValueError:
        expected = (
            "ISO-8601 with an offset such as 2026-01-31T12:00:00Z, or milliseconds since 1970"
        )
        raise _wrong(name, expected, value) from None
    return found


def as_hours(value: str | float | None, *, name: str) -> float | None:
    """A number of hours; None for none."""
    if value is None:
        return None
    try:
        hours = math.nan if isinstance(value, bool) else float(str(value).strip())
    except ValueError:
        hours = math.nan
    if not 0 <= hours <= _MOST_HOURS:
        raise _wrong(name, "a number of hours such as 168", value)
    return hours


def as_ratio(value: str | float | None, *, name: str) -> float | None:
    """A number from 0 to 1; None for none."""
    if value is None:
        return None
    try:
        ratio = math.nan if isinstance(value, bool) else float(str(value).strip())
    except ValueError:
        ratio = math.nan
    if not 0 <= ratio <= 1:
        raise _wrong(name, "a number from 0 to 1 such as 0.05", value)
    return ratio


def as_text(value: Any, *, name: str) -> str | None:
    """A text; None for none."""
    if value is not None and (not isinstance(value, str) or is_absent(value)):
        raise _wrong(name, "a text, or None", value)
    return value


def as_required_text(value: Any, *, name: str) -> str:
    """A text, which must be given."""
    if not isinstance(value, str) or is_absent(value):
        raise ArgumentError(f"{name}: expected a text, found {value!r}")
    return value


def as_required_location(value: str | None, *, name: str) -> str:
    """An absolute path or a URI, which must be given."""
    if is_absent(value):
        expected = "an absolute path such as /data/sales or a URI such as s3://lake/sales"
        raise ArgumentError(f"{name}: expected {expected}, found {value!r}")
    return _location(value, name=name)


def location(value: str | None, *, name: str) -> str | None:
    """An absolute path or a URI; None for none."""
    if value is not None and is_absent(value):
        raise _wrong(name, "an absolute path or a URI", value)
    return None if value is None else as_required_location(value, name=name)


def as_allowed_locations(value: Sequence[str] | str | None, *, name: str) -> tuple[str, ...]:
    """Absolute paths and URIs, as a list or as a text with commas; none for None."""
    if value is not None and not isinstance(value, str | list | tuple):
        raise _wrong(name, "a list of locations, or a text with commas", value)
    return tuple(_location(item, name=name) for item in as_locations(value))


def as_names(value: Sequence[str] | str | None, *, name: str) -> list[str] | None:
    """A list of names, or the JSON of one; None for none."""
    found: Any = value
    if value is None:
        return None
    if isinstance(value, str):
        try:
            found = json.loads(value)
        except ValueError:
            found = None
    if not isinstance(found, list | tuple) or not all(isinstance(item, str) for item in found):
        raise _wrong(name, 'a list of names such as ["id"]', value)
    return list(found)


def choice(*values: str, default: str | None) -> Callable[..., Any]:
    """Create a reader of one of several texts.

    :param values: the texts.
    :param default: the result for None.
    """

    def read(value: str | None, *, name: str) -> str | None:
        """Check that the value is one of the texts."""
        if value is not None and value not in values:
            raise _wrong(name, f"one of {', '.join(values)}", value)
        return default if value is None else value

    return read


def flag(*, default: bool) -> Callable[..., Any]:
    """Create a reader of true and false, which may be text from a template.

    :param default: the result for None.
    """

    def read(value: str | bool | None, *, name: str) -> bool:
        """Take the value as true or false, in any case."""
        if value is None:
            return default
        found = _FLAGS.get(str(value).strip().lower())
        if found is None:
            raise _wrong(name, "true or false", value)
        return found

    return read


def switch(*, default: bool) -> Callable[..., Any]:
    """Create a reader of True and False, for an argument that isn't templated.

    A text is an error, because Python would treat even ``"false"`` as true.

    :param default: the result for None.
    """

    def read(value: bool | None, *, name: str) -> bool:
        """Check that the value isn't a text."""
        if value is not None and not isinstance(value, bool):
            raise _wrong(name, "True or False (it isn't templated)", value)
        return default if value is None else value

    return read


def _whole(value: object, *, name: str, least: int, expected: str) -> int | None:
    if value is None:
        return None
    text = str(value).strip()
    # In Python a bool is an int, but it isn't meant as a number.
    if isinstance(value, bool) or not _INTEGER.fullmatch(text) or int(text) < least:
        raise _wrong(name, expected, value)
    return int(text)


def _mapping(conf: Any, *, name: str, expected: str) -> Mapping[str, Any] | None:
    """A dictionary without the keys whose value is None."""
    if conf is None:
        return None
    if not isinstance(conf, Mapping) or not all(isinstance(key, str) for key in conf):
        raise _wrong(name, expected, conf)
    return {key: value for key, value in conf.items() if value is not None}


def _texts(value: Mapping[str, Any] | None, *, name: str, expected: str) -> dict[str, str] | None:
    given = _mapping(value, name=name, expected=expected)
    if given is None:
        return None
    for key, item in given.items():
        if not isinstance(item, str | int | float):
            raise _wrong(f"{name}[{key!r}]", "a text, a number or a boolean", item)
    return {
        key: str(item).lower() if isinstance(item, bool) else str(item)
        for key, item in given.items()
    }


def _location(value: object, *, name: str) -> str:
    try:
        return check_location(value, name=name)
    except ValueError as error:
        raise ArgumentError(str(error)) from None


def _wrong(name: str, expected: str, value: object) -> ArgumentError:
    nothing = "; leave the argument out, or pass None, for its default" * is_absent(value)
    return ArgumentError(f"{name}: expected {expected}, found {value!r}{nothing}")
