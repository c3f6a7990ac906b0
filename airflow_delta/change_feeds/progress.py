"""The progress of a change feed: the versions whose changes its target has.

**A Delta target** records the progress as transaction identifiers, which each commit of a feed
sets:

================================================  ===================================================
application id                                    version
================================================  ===================================================
``airflow-delta:changes-from:<first>``            the last version of the contiguous range that
                                                  starts with ``<first>``
``airflow-delta:changes-of:<table id>``           the last version that was appended while the
                                                  source had this table id
``airflow-delta:changes-until``                   the last version that was appended. Every feed
                                                  sets it, so that concurrent feeds conflict
``airflow-delta:changes-from:unknown``            up to this version an earlier release may have
                                                  appended; it set only ``changes-of``
================================================  ===================================================

**A directory of Parquet files** has a subdirectory per range
(`airflow_delta.change_feeds.directories`). Incomplete ranges don't count.

No PySpark here, see `airflow_delta.change_feeds.request`.

Spec: PROTOCOL.md, "Transaction Identifiers".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_delta.change_feeds.directories import (
    check_listed,
    check_no_ranges,
    check_ranges_apart,
    complete_ranges,
    range_directories,
    read_marker,
)
from airflow_delta.change_feeds.request import FeedRequest, check_columns, refusal
from airflow_delta.change_feeds.table_identity import is_same_log
from airflow_delta.engine.features.change_columns import COMMIT_VERSION

if TYPE_CHECKING:
    from airflow_delta.engine import DeltaTable, Snapshot
    from airflow_delta.engine.storage.base import Storage

__all__ = [
    "FeedProgress",
    "check_no_unrecorded_changes",
    "check_source",
    "directory_progress",
    "is_new",
    "load_progress",
    "load_table_progress",
    "range_app_id",
    "table_progress",
    "target_progress",
    "transaction_identifiers",
]

_FROM = "airflow-delta:changes-from:"
_OF = "airflow-delta:changes-of:"
_UNTIL = "airflow-delta:changes-until"
_UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class FeedProgress:
    """The versions whose changes a target has.

    Attributes:
        ranges: first and last versions, ascending; between two ranges at least one version is
            missing.
        unknown_until: the target may have any of the versions up to this one; which ones isn't
            recorded.
        ids: the last appended version by the table id that the source had then. For a directory
            only that of the newest range.
    """

    ranges: tuple[tuple[int, int], ...] = ()
    unknown_until: int | None = None
    ids: Mapping[str, int] = field(default_factory=dict)

    @property
    def last(self) -> int | None:
        """The last version whose changes the target has; None if it has none."""
        unknown = [] if self.unknown_until is None else [self.unknown_until]
        return max([*unknown, *(last for _, last in self.ranges)], default=None)


def is_new(request: FeedRequest, progress: FeedProgress) -> bool:
    """Whether the target has none of a range's versions; False if it has all of them.

    Raises:
        InvalidArgumentError: it has, or may have, some of them. Facts: target.
    """
    start, end = request.start, request.end
    if any(first <= start and end <= last for first, last in progress.ranges):
        return False
    there = [
        f"{max(first, start)} to {min(last, end)}"
        for first, last in progress.ranges
        if first <= end and start <= last
    ]
    if there:
        raise refusal(
            request,
            f"it has the changes of versions {' and '.join(there)} already: request the others by "
            "themselves",
        )
    if progress.unknown_until is not None and start <= progress.unknown_until:
        raise refusal(
            request,
            f"it has changes up to version {progress.unknown_until}; an earlier release has written them "
            f"and didn't record from which version on: go on at version {progress.unknown_until + 1}",
        )
    return True


def table_progress(request: FeedRequest, held: Snapshot) -> FeedProgress:
    """Read the progress from the transaction identifiers of a Delta target.

    Raises:
        InvalidArgumentError: the target's transaction identifiers expire. Facts: target.
    """
    if held.properties.set_transaction_retention_ms is not None:
        raise refusal(
            request,
            "by its property delta.setTransactionRetentionDuration the record of the changes that it has "
            "expires: unset the property",
        )
    marks = {app_id: txn.version for app_id, txn in held.transactions.items()}
    ids = _versions_by_suffix(marks, _OF)
    firsts = _versions_by_suffix(marks, _FROM)
    unknown_until = firsts.pop(_UNKNOWN, None)
    if ids and _UNTIL not in marks:
        unknown_until = max(ids.values())
    ranges = _merge_ranges((int(first), last) for first, last in firsts.items())
    return FeedProgress(ranges, unknown_until, ids)


def directory_progress(request: FeedRequest, target: Storage) -> FeedProgress:
    """Read the progress from the complete ranges of a directory of Parquet files.

    Only the requested range and the newest one are compared with their markers: reading all markers
    would take a request for each.

    Raises:
        InvalidArgumentError: it has files of no feed, or a version twice, or a marker can't be
            read. Facts: target.
        CommitConflictError: another run is writing the same range, or was killed while it did.
    """
    found = range_directories(request, target)
    check_ranges_apart(request, found)
    complete = {(found[name].first, found[name].last): name for name in complete_ranges(found)}
    if not complete:
        return FeedProgress()
    newest = max(complete, key=lambda versions: versions[1])
    ids = {}
    for versions in {newest, (request.start, request.end)} & complete.keys():
        marker = read_marker(request, target, complete[versions])
        if marker is not None:
            check_listed(request, complete[versions], marker, found[complete[versions]].sizes)
            ids[versions] = marker["table_id"]
    return FeedProgress(
        _merge_ranges(complete), ids={ids[newest]: newest[1]} if newest in ids else {}
    )


def target_progress(request: FeedRequest, target: DeltaTable) -> FeedProgress:
    """Read the progress of a target of either format; it is empty if there is no target.

    Raises:
        InvalidArgumentError: it has the other format; see `table_progress` and
            `directory_progress`.
        DeltaError: the target can't be read.
    """
    if request.format == "parquet":
        return directory_progress(request, target.storage)
    if target.exists():
        return table_progress(request, target.snapshot())
    check_no_ranges(request, target.storage)
    return FeedProgress()


def load_progress(
    request: FeedRequest, source: DeltaTable, target: DeltaTable
) -> FeedProgress | None:
    """Read the progress of a target, and check that a range can be appended; None if it has all of it.

    Makes all checks that need no Spark.

    Raises:
        InvalidArgumentError: the range can't be appended, and a retry won't help. Facts: target.
        CommitConflictError: another run is writing the same range.
        DeltaError: table or target can't be read.
    """
    if request.format == "delta" and target.exists():
        return load_table_progress(request, source, target.snapshot())
    progress = target_progress(request, target)
    check_source(request, progress, source)
    if not is_new(request, progress):
        return None
    if request.format == "delta":
        check_columns(request, source.snapshot(request.end).schema)
    return progress


def load_table_progress(
    request: FeedRequest, source: DeltaTable, held: Snapshot
) -> FeedProgress | None:
    """Like `load_progress`, for a Delta target at a version.

    Raises:
        InvalidArgumentError: see `load_progress`.
        DeltaError: table or target can't be read.
    """
    progress = table_progress(request, held)
    check_source(request, progress, source)
    if not is_new(request, progress):
        return None
    check_no_unrecorded_changes(request, progress, held)
    check_columns(request, source.snapshot(request.end).schema, held.schema)
    return progress


def check_source(request: FeedRequest, progress: FeedProgress, source: DeltaTable) -> None:
    """Check that a target has the changes of this table.

    A table that is replaced (``REPLACE TABLE``, an overwrite of its schema) gets another id, but
    its log goes on. So the table is the source if it had the recorded id at the last appended
    version.

    Raises:
        InvalidArgumentError: they are those of another table, or nobody can know. Facts: target.
        DeltaError: the table can't be read.
    """
    if not progress.ids:
        return
    table_id, version = max(progress.ids.items(), key=lambda mark: mark[1])
    same = is_same_log(source, table_id, version)
    if same is None:
        raise refusal(
            request,
            f"nobody can know whether its changes are those of this table: at version {version} their "
            f"table had the id {table_id}, this one has another id now, and cleanup has deleted that "
            "version",
        )
    if not same:
        raise refusal(
            request,
            f"it has the changes of another table, whose id was {table_id} at version {version}",
        )


def check_no_unrecorded_changes(
    request: FeedRequest, progress: FeedProgress, held: Snapshot
) -> None:
    """Check that a Delta target without transaction identifiers has no changes of the range.

    They may have expired before ``delta.setTransactionRetentionDuration`` was unset.

    Raises:
        InvalidArgumentError: according to its statistics it may have some. Facts: target.
        DeltaError: its files can't be read from the log.
    """
    if progress.last is not None or held.schema.field(COMMIT_VERSION) is None:
        return
    import pyarrow.compute as pc

    version = pc.field(COMMIT_VERSION)
    in_range = (version >= request.start) & (version <= request.end)
    some = held.files(columns=["path"], predicate=in_range)
    if some.num_rows:
        raise refusal(
            request,
            f"it has no record of any appended version, but {some['path'][0].as_py()} may have rows of "
            "these versions",
        )


def transaction_identifiers(
    request: FeedRequest, progress: FeedProgress, source_id: str
) -> dict[str, int]:
    """The transaction identifiers of the commit that appends a range to a Delta target.

    Args:
        request: the range; the target has none of its versions.
        progress: the progress before the commit.
        source_id: the source's table id at the range's last version.
    """
    ((first, last),) = (
        found
        for found in _merge_ranges([*progress.ranges, (request.start, request.end)])
        if found[0] <= request.start <= found[1]
    )
    marks = {
        range_app_id(first): last,
        f"{_OF}{source_id}": max(request.end, progress.ids.get(source_id, 0)),
        _UNTIL: max(request.end, progress.last or 0),
    }
    if progress.unknown_until is not None:
        marks[f"{_FROM}{_UNKNOWN}"] = progress.unknown_until
    return marks


def range_app_id(first: int) -> str:
    """The application id that records the contiguous range from a version on."""
    return f"{_FROM}{first}"


def _versions_by_suffix(marks: Mapping[str, int], prefix: str) -> dict[str, int]:
    """The versions of the application ids with a prefix, by the rest of the id."""
    return {
        app_id.removeprefix(prefix): version
        for app_id, version in marks.items()
        if app_id.startswith(prefix)
    }


def _merge_ranges(ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Merge overlapping and adjacent ranges; the result is ascending."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(last, found[-1][1])
        else:
            found.append((first, last))
    return tuple(found)
