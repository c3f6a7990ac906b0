"""The storage option ``single_writer``, by which the user says that a table has one writer.

A commit is an object that must not exist yet, and not every store can create one exclusively. Without this
option such a store refuses commits. With it, ``create`` checks whether the object exists and then writes
it, but only if the store has nothing better. Two writers that check at the same time overwrite each other's
commits, and neither notices it; see docs/how-to/object-stores.md.
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
        uri: their location, if it is known; for messages.

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
    """Return the other storage options."""
    return {option: value for option, value in options.items() if option.lower() != SINGLE_WRITER}
