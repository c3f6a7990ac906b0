"""Arguments of the wrong kind, refused where they come in.

Python doesn't ask what a caller hands over. What isn't of the kind that a signature says comes to light
somewhere below, as an error that names neither the table nor the argument, or not before it is in the
log. These checks say all of it: the argument, what was expected, and what was found.
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

_SHOWN_CHARACTERS = 80


def wrong_argument(
    argument: str, expected: str, found: object, *, table: str | None = None
) -> InvalidArgumentError:
    """The error for an argument that isn't what it should be.

    Args:
        argument: its name, and the place in it.
        expected: what it should be, such as ``"a text"``.
        found: what it is.
        table: the table's location, where it is known.
    """
    return InvalidArgumentError(
        f"{argument}: expected {expected}, found {_described(found)}", table=table
    )


def check_type(
    argument: str,
    value: object,
    kind: type | UnionType,
    expected: str,
    *,
    table: str | None = None,
) -> None:
    """Make sure that an argument is of a type.

    Args:
        argument: its name.
        value: what was given.
        kind: the type.
        expected: what to call the type.
        table: the table's location, where it is known.

    Raises:
        InvalidArgumentError: it isn't.
    """
    if not isinstance(value, kind):
        raise wrong_argument(argument, expected, value, table=table)


def check_text(
    argument: str, value: object, *, optional: bool = False, table: str | None = None
) -> None:
    """Make sure that an argument is a text; or None, where it is optional.

    Raises:
        InvalidArgumentError: it isn't.
    """
    if not (isinstance(value, str) or (optional and value is None)):
        raise wrong_argument(
            argument, "a text or None" if optional else "a text", value, table=table
        )


def check_list(argument: str, value: object, expected: str, *, table: str | None = None) -> None:
    """Make sure that an argument is a list, or something else that can be gone through.

    A text could be gone through as well, letter by letter, and a mapping key by key; neither is meant.

    Raises:
        InvalidArgumentError: it isn't.
    """
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise wrong_argument(argument, expected, value, table=table)


def check_texts(
    argument: str, values: Iterable[str], expected: str, *, table: str | None = None
) -> tuple[str, ...]:
    """The texts of a list.

    Raises:
        InvalidArgumentError: it is no list, or holds something else. See `check_list`.
    """
    check_list(argument, values, expected, table=table)
    texts = tuple(values)
    for number, text in enumerate(texts):
        check_text(f"{argument}[{number}]", text, table=table)
    return texts


def check_mapping(argument: str, value: object, expected: str, *, table: str | None = None) -> None:
    """Make sure that an argument is a mapping whose keys are texts.

    Raises:
        InvalidArgumentError: it isn't.
    """
    check_type(argument, value, Mapping, expected, table=table)
    for key in value if isinstance(value, Mapping) else ():
        check_text(f"the keys of {argument}", key, table=table)


def _described(value: object) -> str:
    if value is None:
        return "None"
    shown = " ".join(repr(value).split())
    if len(shown) > _SHOWN_CHARACTERS:
        shown = f"{shown[:_SHOWN_CHARACTERS]}…"
    return f"the {type(value).__name__} {shown}"
