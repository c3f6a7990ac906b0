"""Look up how an earlier run appended a range of changes. No PySpark here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_delta.change_feeds.directories import range_directory, read_marker
from airflow_delta.change_feeds.progress import range_app_id, table_progress
from airflow_delta.change_feeds.request import FeedRequest

if TYPE_CHECKING:
    from airflow_delta.engine import DeltaTable

__all__ = ["EarlierAppend", "earlier_append"]


@dataclass(frozen=True, slots=True)
class EarlierAppend:
    """A range that the target has completely.

    Attributes:
        counts: the number of changes of each kind. None for a Delta target, whose log doesn't
            contain it, and if a Parquet target has the versions in other ranges.
        committed_version: the version of a Delta target that has the changes; None if it isn't in
            the log any more.
    """

    counts: Mapping[str, int] | None = None
    committed_version: int | None = None


def earlier_append(request: FeedRequest, target: DeltaTable) -> EarlierAppend:
    """Look up a range that the target has completely (`load_progress` returned None).

    Raises:
        DeltaError: the target can't be read.
    """
    if request.format == "parquet":
        directory = range_directory(request.start, request.end)
        marker = read_marker(request, target.storage, directory)
        return EarlierAppend(counts=marker["counts"] if marker else None)
    progress = table_progress(request, target.snapshot())
    (first,) = (first for first, last in progress.ranges if first <= request.start <= last)
    commit = target.version_of_transaction(range_app_id(first), request.end)
    return EarlierAppend(committed_version=commit)
