"""The rules of change feeds that are kept at a target: what is asked for, and what is refused.

A target says itself which versions it tells the changes of (`airflow_delta.spark.changes_told`), so that
no version is told twice in it, and none is taken for told that isn't:

=======================================  ========================================================
the target tells                         the range
=======================================  ========================================================
none of the range's versions             is appended, also before or between what is there
all of them                              is there already: nothing is to be done
some of them                             is refused: the others have to be asked for
the changes of another table             is refused: its versions aren't those of this one
=======================================  ========================================================

No PySpark here: whoever submits the job looks at the target first, because starting Spark takes
seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_delta.engine.errors import InvalidArgumentError

if TYPE_CHECKING:
    from airflow_delta.engine.storage.base import Storage

__all__ = [
    "CHANGE_KINDS",
    "FORMATS",
    "FeedRequest",
    "check_apart",
    "check_feed_format",
    "refusal",
]

FORMATS = ("parquet", "delta")
"""What a target can be."""

CHANGE_KINDS = ("insert", "delete", "update_preimage", "update_postimage")
"""What ``_change_type`` can be."""


@dataclass(frozen=True, slots=True)
class FeedRequest:
    """A range of changes to be kept at a target.

    Attributes:
        table_uri: the table.
        start: the first version.
        end: the last version.
        target_uri: where the changes go.
        format: one of `FORMATS`.
    """

    table_uri: str
    start: int
    end: int
    target_uri: str
    format: str = "delta"


def check_feed_format(name: str) -> None:
    """Check that there are targets of a format.

    Raises:
        InvalidArgumentError: there are none.
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
    places = [f"{storage.place.rstrip('/')}/" for storage in (source, target)]
    if places[0].startswith(places[1]) or places[1].startswith(places[0]):
        raise refusal(request, "target and table lie inside one another")


def refusal(request: FeedRequest, reason: str) -> InvalidArgumentError:
    """The error that says why nothing is appended to a target, and what to do."""
    return InvalidArgumentError(
        f"the changes of versions {request.start} to {request.end} aren't appended to "
        f"{request.target_uri}: {reason}; or choose another target",
        table=request.table_uri,
        target=request.target_uri,
    )
