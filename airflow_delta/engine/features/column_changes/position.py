"""Where a column goes among its neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.model.schema import StructField, StructType
from airflow_delta.engine.model.sql_names import sql_name

__all__ = ["Position", "insert_fields", "position_of"]


@dataclass(frozen=True, slots=True)
class Position:
    """A place before all columns of a struct, or behind one of them.

    Attributes:
        after: the column that it is behind; None for the first place.
    """

    after: str | None = None

    @property
    def sql(self) -> str:
        """As ``ALTER TABLE`` has it."""
        return "FIRST" if self.after is None else f"AFTER {sql_name([self.after])}"


def position_of(*, first: bool, after: str | None) -> Position | None:
    """The position that a caller asks for; None for none.

    Raises:
        InvalidArgumentError: both are given.
    """
    if first and after is not None:
        raise InvalidArgumentError(f"first=True and after={after!r}: a column has one place")
    return Position(after) if first or after is not None else None


def insert_fields(
    struct: StructType, fields: Sequence[StructField], position: Position | None
) -> StructType:
    """The struct with columns put in, one behind the other.

    Args:
        struct: the struct, without the columns.
        fields: the columns.
        position: where the first of them goes; None for the end.

    Raises:
        InvalidArgumentError: they are to go behind a column that isn't there.
        InvalidTableError: a name is there already, perhaps in another case.
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
            f"after={position.after!r}: expected one of the neighbours, which are "
            f"{', '.join(struct.names)}"
        )
    return StructType((*others[:index], *fields, *others[index:]))
