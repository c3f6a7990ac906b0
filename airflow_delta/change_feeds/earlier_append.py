"""What a target says of a range of changes that an earlier run has appended to it. No PySpark here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_delta.change_feeds.directories import marker_of, range_directory
from airflow_delta.change_feeds.progress import start_mark, told_by_table
from airflow_delta.change_feeds.request import FeedRequest

if TYPE_CHECKING:
    from airflow_delta.engine import DeltaTable

__all__ = ["EarlierAppend", "earlier_append"]


@dataclass(frozen=True, slots=True)
class EarlierAppend:
    """A range that the target has all of.

    Attributes:
        counts: how many changes of each kind. None of a Delta target, whose log doesn't say it, and where a
            parquet target has the range in other ranges than this one.
        committed_version: of a Delta target, its version with the changes; None where that isn't in the log
            any more.
    """

    counts: Mapping[str, int] | None = None
    committed_version: int | None = None


def earlier_append(request: FeedRequest, target: DeltaTable) -> EarlierAppend:
    """Look up a range that the target has all of, see `airflow_delta.change_feeds.progress.told_before`.

    Raises:
        DeltaError: the target can't be read.
    """
    if request.format == "parquet":
        directory = range_directory(request.start, request.end)
        marker = marker_of(request, target.storage, directory)
        return EarlierAppend(counts=marker["counts"] if marker else None)
    told = told_by_table(request, target.snapshot())
    (first,) = (first for first, last in told.ranges if first <= request.start <= last)
    commit = target.version_of_transaction(start_mark(first), request.end)
    return EarlierAppend(committed_version=commit)
