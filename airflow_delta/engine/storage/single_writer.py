"""The user's word that a table has one writer: the storage option ``single_writer``.

A commit is an object that must not exist yet, and not every store can create one exclusively. Such a
store is refused for commits, unless the user says that nobody else writes to the table. Then, and only
where the store can't do better, ``create`` looks whether the object is there and writes it if not.

What that gives up is told in docs/how-to/object-stores.md: of two writers who look at the same time,
one overwrites the other's commit, and neither is told.
"""

from __future__ import annotations

from collections.abc import Mapping

from airflow_delta.engine.errors import InvalidArgumentError

__all__ = ["SINGLE_WRITER", "drop_single_writer", "is_single_writer"]

SINGLE_WRITER = "single_writer"


def is_single_writer(options: Mapping[str, object], *, uri: str | None = None) -> bool:
    """Whether the storage options say that there is one writer.

    Args:
        options: the storage options.
        uri: the location they are for, where it is known; for messages.

    Raises:
        InvalidArgumentError: the option is neither true nor false, or is given twice.
    """
    given = [value for option, value in options.items() if option.lower() == SINGLE_WRITER]
    if not given:
        return False
    text = str(given[0]).strip().lower()
    if len(given) > 1 or text not in ("true", "false"):
        raise InvalidArgumentError(
            f"the storage option {SINGLE_WRITER!r} {f'for {uri!r} ' if uri else ''}says "
            f"{' and '.join(map(repr, given))}: expected 'true', where nobody else writes to the table, "
            "or 'false'",
            option=SINGLE_WRITER,
            uri=uri,
        )
    return text == "true"


def drop_single_writer(options: Mapping[str, object]) -> dict[str, object]:
    """The other storage options."""
    return {option: value for option, value in options.items() if option.lower() != SINGLE_WRITER}
