"""The columns that a change feed has beside those of the table.

A table that keeps change data can't have columns of these names: change data files have the columns of the
table, and the kind of the change.

PROTOCOL.md, "Change Data Files".
"""

from __future__ import annotations

from collections.abc import Collection

from airflow_delta.engine.errors import InvalidTableError
from airflow_delta.engine.model.schema import StructType

__all__ = [
    "CHANGE_COLUMNS",
    "CHANGE_TYPE",
    "COMMIT_TIMESTAMP",
    "COMMIT_VERSION",
    "check_no_change_columns",
    "columns_named_as_changes",
]

CHANGE_TYPE = "_change_type"
"""What happened to a row; null in a plan of changes for change data files, which have this column."""

COMMIT_VERSION = "_commit_version"
"""The version that made the change."""

COMMIT_TIMESTAMP = "_commit_timestamp"
"""The time of the version, as in time travel and history."""

CHANGE_COLUMNS = (CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP)
"""The columns of a change that aren't columns of the table."""


def columns_named_as_changes(schema: StructType) -> list[str]:
    """The names of a table's columns that are those of `CHANGE_COLUMNS`, ignoring case."""
    return [name for name in schema.names if name.lower() in CHANGE_COLUMNS]


def check_no_change_columns(schema: StructType, *, known: Collection[str] = (), table: str) -> None:
    """Check that a table that keeps change data gets no column with a name of `CHANGE_COLUMNS`.

    Args:
        schema: the table's columns after the commit.
        known: columns that it had before while it kept change data; they may stay.
        table: the table's location, for errors.

    Raises:
        InvalidTableError: it gets one. Facts: columns.
    """
    taken = [name for name in columns_named_as_changes(schema) if name not in known]
    if taken:
        raise InvalidTableError(
            f"the columns {taken} have names of the columns of a change, and the table keeps change data: "
            "rename them, or set delta.enableChangeDataFeed to false",
            table=table,
            columns=tuple(taken),
        )
