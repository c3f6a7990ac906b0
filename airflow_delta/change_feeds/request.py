"""The request to append a range of changes to a target, and the checks of its columns and location.

A target records which versions' changes it has (`airflow_delta.change_feeds.progress`), so that no
version is appended twice or skipped:

=======================================  ========================================================
the target has                           the range
=======================================  ========================================================
none of the range's versions             is appended, even before or between those that it has
all of them                              is there already: nothing is done
some of them                             is refused: request the others
the changes of another table             is refused: its versions are those of another log
as a Delta table, other columns          is refused: add the columns to the target, if possible
=======================================  ========================================================

No PySpark here: the operator makes the same checks before it starts Spark, which takes seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_delta.engine.errors import InvalidArgumentError, InvalidTableError
from airflow_delta.engine.features.change_columns import CHANGE_COLUMNS
from airflow_delta.engine.features.column_names import check_column_names
from airflow_delta.engine.model.nullable import nullable
from airflow_delta.engine.model.schema import StructType

if TYPE_CHECKING:
    from airflow_delta.engine.storage.base import Storage

__all__ = [
    "CHANGE_KINDS",
    "FORMATS",
    "FeedRequest",
    "check_apart",
    "check_columns",
    "check_feed_format",
    "refusal",
]

FORMATS = ("parquet", "delta")
"""The formats of targets."""

CHANGE_KINDS = ("insert", "delete", "update_preimage", "update_postimage")
"""The values of ``_change_type``."""

_CHANGE_COLUMNS = frozenset(CHANGE_COLUMNS)


@dataclass(frozen=True, slots=True)
class FeedRequest:
    """A range of changes to be appended to a target.

    Attributes:
        table_uri: the table.
        start: the first version.
        end: the last version.
        target_uri: the target.
        format: one of `FORMATS`.
    """

    table_uri: str
    start: int
    end: int
    target_uri: str
    format: str = "delta"


def check_feed_format(name: str) -> None:
    """Check that a format is one of `FORMATS`.

    Raises:
        InvalidArgumentError: it isn't.
    """
    if name not in FORMATS:
        raise InvalidArgumentError(
            f"unknown format {name!r} of a change feed: expected one of {', '.join(FORMATS)}"
        )


def check_apart(request: FeedRequest, source: Storage, target: Storage) -> None:
    """Check that neither of the table and the target lies inside the other.

    Raises:
        InvalidArgumentError: one does. Facts: target.
    """
    table, feed = (f"{storage.canonical_location.rstrip('/')}/" for storage in (source, target))
    if table.startswith(feed) or feed.startswith(table):
        raise refusal(request, "target and table lie inside one another")


def check_columns(request: FeedRequest, schema: StructType, held: StructType | None = None) -> None:
    """Check that a Delta target can take the changes of a table with these columns.

    Args:
        request: the range.
        schema: the table's columns at the last version.
        held: the target's columns; None if it doesn't exist yet.

    Raises:
        InvalidArgumentError: the target has other columns, or can't have columns with such names.
            Facts: target.
    """
    given = {field.name: field.data_type for field in nullable(schema)}
    there = {field.name: field.data_type for field in nullable(held or StructType())}
    if held is not None and not there.keys() >= _CHANGE_COLUMNS:
        raise refusal(
            request,
            f"it has the columns {sorted(there)}, and not all of {sorted(_CHANGE_COLUMNS)}: no change feed "
            "has written it",
        )
    new = [field for field in schema if field.name not in there]
    _check_names(request, StructType(tuple(new)))
    if held is None:
        return
    if new:
        names = [field.name for field in new]
        raise refusal(
            request,
            f"it lacks the columns {names}, which the table has: add them to it, for example with "
            f"DeltaTable({request.target_uri!r}).alter.add_columns, and try again",
        )
    others = [
        name for name in there if name not in _CHANGE_COLUMNS and there[name] != given.get(name)
    ]
    if others:
        raise refusal(
            request,
            f"its columns {others} have another type in the table, or aren't in it any more: only targets "
            "with the format parquet allow that",
        )


def _check_names(request: FeedRequest, new: StructType) -> None:
    try:
        check_column_names(new, table=request.table_uri)
    except InvalidTableError as error:
        raise refusal(
            request,
            f"the names of the columns {list(error.columns)} need column mapping, and mapped tables aren't "
            "written: choose the format parquet, whose files can have such names",
        ) from error


def refusal(request: FeedRequest, reason: str) -> InvalidArgumentError:
    """Create the error that says why nothing is appended to a target, and what to do."""
    return InvalidArgumentError(
        f"the changes of versions {request.start} to {request.end} aren't appended to "
        f"{request.target_uri}: {reason}; or choose another target",
        table=request.table_uri,
        target=request.target_uri,
    )
