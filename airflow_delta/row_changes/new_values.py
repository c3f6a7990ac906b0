"""Check the new values of an update or a merge that a task sends to its Spark job as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_delta.engine.errors import InvalidArgumentError

__all__ = ["check_values"]


def check_values(values: Any, *, name: str) -> None:
    """Check new values by column, of JSON.

    Args:
        values: the values: for each column SQL, a number, a boolean or None.
        name: the name of the argument, for the error.

    Raises:
        InvalidArgumentError: they are something else, or there are none.
    """
    if (
        not isinstance(values, Mapping)
        or not values
        or not all(isinstance(column, str) for column in values)
        or not all(isinstance(value, str | int | float | None) for value in values.values())
    ):
        raise InvalidArgumentError(
            f"{name}: expected a dictionary of columns and their new values, each SQL, a number, a boolean "
            f"or None; found {values!r}"
        )
