"""Read the fields of the log's JSON objects strictly, and report exactly where one is wrong.

Each field of an action has a type. These readers only accept values of that type; for example ``true`` is
no number. An explicit ``null`` means the same as a missing field, because writers use either. Other fields
are ignored ("Protocol Evolution": clients must ignore unrecognised fields).

``where`` names the object, such as ``commit 7, line 3: metaData``. A message is then
``commit 7, line 3: metaData.id: expected a string, found the number 12``.

`json_record` makes whole objects from such fields. PROTOCOL.md, "Actions".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

from airflow_delta.engine.errors import CorruptLogError

__all__ = [
    "is_text",
    "json_object",
    "nullable_string_map",
    "optional",
    "optional_strings",
    "required",
    "required_string_map",
    "string_map",
]

T = TypeVar("T", str, int, bool)

_INT64 = range(-(2**63), 2**63)
_TYPE_NAMES: Mapping[type, str] = {str: "a string", int: "a 64-bit integer", bool: "true or false"}
_STRING_MAP = "an object with string values"
_MAX_CHARACTERS = 80


def required(obj: Mapping[str, Any], key: str, kind: type[T], where: str) -> T:
    """The value of a required field.

    Args:
        obj: the JSON object.
        key: the field's name.
        kind: ``str``, ``int`` (64 bit, as the protocol's Long) or ``bool``.
        where: what ``obj`` is, for the message.

    Raises:
        CorruptLogError: the field is missing, null or of another type. Facts: where.
    """
    value = optional(obj, key, kind, where)
    if value is None:
        raise _missing(key, _TYPE_NAMES[kind], where)
    return value


def optional(obj: Mapping[str, Any], key: str, kind: type[T], where: str) -> T | None:
    """The value of an optional field; None if it is missing or null.

    Raises:
        CorruptLogError: the value is of another type. Facts: where.
    """
    value = obj.get(key)
    if value is None:
        return None
    # `type(...) is` rather than isinstance: bool is a subclass of int.
    if type(value) is kind and (kind is not int or value in _INT64):
        if isinstance(value, str):
            _check_text(value, f"{where}.{key}", where)
        return value
    raise _wrong_type(value, f"{where}.{key}", _TYPE_NAMES[kind], where)


def optional_strings(obj: Mapping[str, Any], key: str, where: str) -> tuple[str, ...] | None:
    """An array of strings, in order; None if it is missing or null.

    Raises:
        CorruptLogError: the value is no array of strings. Facts: where.
    """
    value = obj.get(key)
    if value is None:
        return None
    if not isinstance(value, list | tuple) or not all(type(item) is str for item in value):
        raise _wrong_type(value, f"{where}.{key}", "an array of strings", where)
    for item in value:
        _check_text(item, f"{where}.{key}", where)
    return tuple(value)


def string_map(obj: Mapping[str, Any], key: str, where: str) -> dict[str, str]:
    """A map of strings to strings, without entries whose value is null; empty if it is missing or null.

    Raises:
        CorruptLogError: the value is no such map. Facts: where.
    """
    entries = nullable_string_map(obj, key, where) or {}
    return {name: value for name, value in entries.items() if value is not None}


def nullable_string_map(
    obj: Mapping[str, Any], key: str, where: str
) -> dict[str, str | None] | None:
    """A map of strings to strings or nulls; None if the map is missing or null.

    Raises:
        CorruptLogError: the value is no such map. Facts: where.
    """
    value = obj.get(key)
    if value is None:
        return None
    path = f"{where}.{key}"
    if not isinstance(value, Mapping):
        raise _wrong_type(value, path, _STRING_MAP, where)
    for name, item in value.items():
        if item is not None and type(item) is not str:
            raise _wrong_type(item, f"{path}[{name!r}]", "a string", where)
        for text in (name, item):
            if isinstance(text, str):
                _check_text(text, path, where)
    return dict(value)


def required_string_map(obj: Mapping[str, Any], key: str, where: str) -> dict[str, str | None]:
    """A required map of strings to strings or nulls.

    Raises:
        CorruptLogError: the value is missing, null or no such map. Facts: where.
    """
    value = nullable_string_map(obj, key, where)
    if value is None:
        raise _missing(key, _STRING_MAP, where)
    return value


def json_object(value: Any, where: str) -> Mapping[str, Any]:
    """The value itself, if it is a JSON object.

    Raises:
        CorruptLogError: it is something else. Facts: where.
    """
    if type(value) is dict or isinstance(value, Mapping):
        return value
    raise _wrong_type(value, where, "an object", where)


def is_text(value: str) -> bool:
    """Whether a text can be encoded in UTF-8. JSON can escape half a surrogate pair, which can't."""
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_text(value: str, path: str, where: str) -> None:
    if not is_text(value):
        raise CorruptLogError(
            f"{path}: expected a text, found one with half a surrogate pair, which is no character",
            where=where,
        )


def _missing(key: str, expected: str, where: str) -> CorruptLogError:
    return CorruptLogError(
        f"{where}.{key}: expected {expected}, found nothing; the field is required", where=where
    )


def _wrong_type(value: Any, path: str, expected: str, where: str) -> CorruptLogError:
    return CorruptLogError(f"{path}: expected {expected}, found {_describe(value)}", where=where)


def _describe(value: Any) -> str:
    if value is None:
        return "null"
    try:
        text = json.dumps(value, ensure_ascii=False, default=repr)
    except RecursionError:  # it could be parsed just so
        return "a value that is nested very deeply"
    if len(text) > _MAX_CHARACTERS:
        text = f"{text[:_MAX_CHARACTERS]}…"
    if isinstance(value, bool):
        return text
    for kind, name in ((str, "string"), (int | float, "number"), (Mapping, "object")):
        if isinstance(value, kind):
            return f"the {name} {text}"
    return f"the array {text}" if isinstance(value, list | tuple) else text
