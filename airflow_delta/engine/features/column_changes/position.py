"""`Position`: where a column is inserted within its struct."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.model.schema import StructField, StructType
from airflow_delta.engine.model.sql_names import sql_name

__all__ = ["Position", "insert_fields", "position_of"]


@dataclass(frozen=True, slots=True)
class Position:
    """The position before all columns of a struct, or after one of them.

    Attributes:
        after: the column before the position; None for the first position.
    """

    after: str | None = None

    @property
    def sql(self) -> str:
        """The position as in SQL's ``ALTER TABLE``."""
        return "FIRST" if self.after is None else f"AFTER {sql_name([self.after])}"


def position_of(*, first: bool, after: str | None) -> Position | None:
    """Parse a user's arguments ``first`` and ``after``; None if neither is given.

    Raises:
        InvalidArgumentError: both are given.
    """
    if first and after is not None:
        raise InvalidArgumentError(f"first=True and after={after!r}: expected only one of them")
    return Position(after) if first or after is not None else None


def insert_fields(
    struct: StructType, fields: Sequence[StructField], position: Position | None
) -> StructType:
    """Insert columns into a struct, one after the other.

    Args:
        struct: the struct.
        fields: the columns.
        position: the position of the first column; None for the end.

    Raises:
        InvalidArgumentError: the position is after a column that doesn't exist.
        InvalidTableError: a name is taken, perhaps in another case.
    """
    others = struct.fields
    if position is None:
        index = len(others)
    elif position.after is None:
        index = 0
    elif position.after in struct.names:
        index = struct.names.index(position.after) + 1
    else:
        raise InvalidArgumentError(
            f"after={position.after!r}: expected a column of the same struct, which has "
            f"{', '.join(struct.names)}"
        )
    return StructType((*others[:index], *fields, *others[index:]))
