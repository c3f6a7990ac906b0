"""Check the types of users' arguments.

Python doesn't check them. Without these checks a wrong type would cause an error deep in the engine, which
names neither the table nor the argument, or would even be written into the log. The errors name the
argument, what was expected, and what was found.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import UnionType

from airflow_delta.engine.errors import InvalidArgumentError

__all__ = [
    "check_list",
    "check_mapping",
    "check_text",
    "check_texts",
    "check_type",
    "wrong_argument",
]

_MAX_CHARACTERS = 80


def wrong_argument(
    argument: str, expected: str, found: object, *, table: str | None = None
) -> InvalidArgumentError:
    """Make the error for a wrong argument.

    Args:
        argument: its name, perhaps with an index or key in it.
        expected: what it should be, such as ``"a text"``.
        found: its value.
        table: the table's location, if known.
    """
    return InvalidArgumentError(
        f"{argument}: expected {expected}, found {_describe(found)}", table=table
    )


def check_type(
    argument: str,
    value: object,
    kind: type | UnionType,
    expected: str,
    *,
    table: str | None = None,
) -> None:
    """Check that an argument is of a type.

    Args:
        argument: its name.
        value: its value.
        kind: the type.
        expected: the type, in words for messages.
        table: the table's location, if known.

    Raises:
        InvalidArgumentError: it isn't.
    """
    if not isinstance(value, kind):
        raise wrong_argument(argument, expected, value, table=table)


def check_text(
    argument: str, value: object, *, optional: bool = False, table: str | None = None
) -> None:
    """Check that an argument is a text, or None if it is optional.

    Raises:
        InvalidArgumentError: it isn't.
    """
    if not (isinstance(value, str) or (optional and value is None)):
        raise wrong_argument(
            argument, "a text or None" if optional else "a text", value, table=table
        )


def check_list(argument: str, value: object, expected: str, *, table: str | None = None) -> None:
    """Check that an argument is a list or another iterable, but no text or mapping.

    Raises:
        InvalidArgumentError: it isn't.
    """
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise wrong_argument(argument, expected, value, table=table)


def check_texts(
    argument: str, values: Iterable[str], expected: str, *, table: str | None = None
) -> tuple[str, ...]:
    """Check that an argument is a list of texts, and return them.

    Raises:
        InvalidArgumentError: it is no list, or contains something else. See `check_list`.
    """
    check_list(argument, values, expected, table=table)
    texts = tuple(values)
    for number, text in enumerate(texts):
        check_text(f"{argument}[{number}]", text, table=table)
    return texts


def check_mapping(argument: str, value: object, expected: str, *, table: str | None = None) -> None:
    """Check that an argument is a mapping whose keys are texts.

    Raises:
        InvalidArgumentError: it isn't.
    """
    check_type(argument, value, Mapping, expected, table=table)
    for key in value if isinstance(value, Mapping) else ():
        check_text(f"the keys of {argument}", key, table=table)


def _describe(value: object) -> str:
    if value is None:
        return "None"
    text = " ".join(repr(value).split())
    if len(text) > _MAX_CHARACTERS:
        text = f"{text[:_MAX_CHARACTERS]}…"
    return f"the {type(value).__name__} {text}"
