"""What a target of a change feed says of itself: which versions it tells the changes of.

**A Delta table** says it by transaction identifiers (PROTOCOL.md, "Transaction Identifiers"), which each
commit of a feed sets:

================================================  ===================================================
application id                                    version
================================================  ===================================================
``airflow-delta:changes-from:<first>``            the last of the versions that are told one after
                                                  another from ``<first>`` on
``airflow-delta:changes-of:<table id>``           the last version that is told of the table as long
                                                  as it had this id
``airflow-delta:changes-until``                   the last version that is told. Every feed sets it,
                                                  so that two at a time are a conflict
================================================  ===================================================

A target that an earlier release has written has only the second: it tells some versions up to that one,
and which they are nobody knows. ``airflow-delta:changes-from:unknown`` keeps that up to where.

Identifiers can get lost: a table with ``delta.setTransactionRetentionDuration`` forgets them, so it can't
be a target; and one that has no identifier, but rows of the versions that are to be appended, isn't
appended to.

**A directory of parquet files** says it by a directory for each range, see
`airflow_delta.change_feeds.directories`. A range that isn't complete doesn't count, and makes room for
one that has the same versions.

The source is known by its log, which goes on where a table is replaced (``REPLACE TABLE``, an overwrite of
its schema), although its metadata get another id then: it is the source if it had, at the last version that
is told, the id that was kept with it. A table that was made anew at the same place had another one.

No PySpark here, see `airflow_delta.change_feeds.request`.
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
    marker_of,
    range_directories,
)
from airflow_delta.change_feeds.request import FeedRequest, check_columns, refusal
from airflow_delta.change_feeds.table_identity import is_same_log
from airflow_delta.engine.changes.file_changes import COMMIT_VERSION

if TYPE_CHECKING:
    from airflow_delta.engine import DeltaTable, Snapshot
    from airflow_delta.engine.storage.base import Storage

__all__ = [
    "Told",
    "check_lost",
    "check_source",
    "identifiers_of",
    "is_new",
    "start_mark",
    "told_before",
    "told_before_table",
    "told_by_files",
    "told_by_table",
    "told_by_target",
]

_FROM = "airflow-delta:changes-from:"
_OF = "airflow-delta:changes-of:"
_UNTIL = "airflow-delta:changes-until"
_UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Told:
    """Which versions' changes a target has.

    Attributes:
        ranges: first and last versions, ascending; between two ranges is a version that isn't told.
        unknown_until: up to this version others may be told, and which they are isn't known.
        ids: the last version that is told by the id that the source's metadata had then. Of a directory
            that of the newest range only.
    """

    ranges: tuple[tuple[int, int], ...] = ()
    unknown_until: int | None = None
    ids: Mapping[str, int] = field(default_factory=dict)

    @property
    def last(self) -> int | None:
        """The last version that is told; None where none is."""
        unknown = [] if self.unknown_until is None else [self.unknown_until]
        return max([*unknown, *(last for _, last in self.ranges)], default=None)


def is_new(request: FeedRequest, told: Told) -> bool:
    """Whether a range is still to be appended to a target.

    Raises:
        InvalidArgumentError: some of its versions are there, or may be. Facts: target.
    """
    start, end = request.start, request.end
    if any(first <= start and end <= last for first, last in told.ranges):
        return False
    there = [
        f"{max(first, start)} to {min(last, end)}"
        for first, last in told.ranges
        if first <= end and start <= last
    ]
    if there:
        raise refusal(
            request,
            f"it has the changes of versions {' and '.join(there)} already: ask for the others by "
            "themselves",
        )
    if told.unknown_until is not None and start <= told.unknown_until:
        raise refusal(
            request,
            f"it has changes up to version {told.unknown_until}, and an earlier release, which has "
            f"written them, left no word from which version on: go on at version "
            f"{told.unknown_until + 1}",
        )
    return True


def told_by_table(request: FeedRequest, held: Snapshot) -> Told:
    """What a Delta target tells.

    Raises:
        InvalidArgumentError: it forgets what it tells. Facts: target.
    """
    if held.properties.set_transaction_retention_ms is not None:
        raise refusal(
            request,
            "with its property delta.setTransactionRetentionDuration it forgets which changes it has: "
            "unset the property",
        )
    marks = {app_id: txn.version for app_id, txn in held.transactions.items()}
    ids = _by_rest(marks, _OF)
    firsts = _by_rest(marks, _FROM)
    unknown_until = firsts.pop(_UNKNOWN, None)
    if ids and _UNTIL not in marks:
        unknown_until = max(ids.values())
    ranges = _united((int(first), last) for first, last in firsts.items())
    return Told(ranges, unknown_until, ids)


def told_by_files(request: FeedRequest, target: Storage) -> Told:
    """What a directory of parquet files tells. Ranges that aren't complete don't count.

    Of the range that is asked for, and of the newest one, the files are those that were written; looking
    into all markers would take a request for each.

    Raises:
        InvalidArgumentError: it holds what no feed has written, or a version twice, or a marker can't be
            read. Facts: target.
        CommitConflictError: another run writes the same range at this time, or was killed in doing so.
    """
    found = range_directories(request, target)
    check_ranges_apart(request, found)
    complete = {(found[name].first, found[name].last): name for name in complete_ranges(found)}
    if not complete:
        return Told()
    newest = max(complete, key=lambda versions: versions[1])
    ids = {}
    for versions in {newest, (request.start, request.end)} & complete.keys():
        marker = marker_of(request, target, complete[versions])
        if marker is not None:
            check_listed(request, complete[versions], marker, found[complete[versions]].sizes)
            ids[versions] = marker["table_id"]
    return Told(_united(complete), ids={ids[newest]: newest[1]} if newest in ids else {})


def told_by_target(request: FeedRequest, target: DeltaTable) -> Told:
    """What a target of either format tells; nothing where there is none.

    Raises:
        InvalidArgumentError: it is of the other format; see `told_by_table` and `told_by_files`.
        DeltaError: the target can't be read.
    """
    if request.format == "parquet":
        return told_by_files(request, target.storage)
    if target.exists():
        return told_by_table(request, target.snapshot())
    check_no_ranges(request, target.storage)
    return Told()


def told_before(request: FeedRequest, source: DeltaTable, target: DeltaTable) -> Told | None:
    """What a target tells before a range is appended to it; None where it has all of the range.

    This is all that can be found out without Spark about whether the range can be appended.

    Raises:
        InvalidArgumentError: it can't, however often it is tried. Facts: target.
        CommitConflictError: another run writes the same range at this time.
        DeltaError: table or target can't be read.
    """
    if request.format == "delta" and target.exists():
        return told_before_table(request, source, target.snapshot())
    told = told_by_target(request, target)
    check_source(request, told, source)
    if not is_new(request, told):
        return None
    if request.format == "delta":
        check_columns(request, source.snapshot(request.end).schema)
    return told


def told_before_table(request: FeedRequest, source: DeltaTable, held: Snapshot) -> Told | None:
    """As `told_before`, of a Delta target at a version.

    Raises:
        InvalidArgumentError: see `told_before`.
        DeltaError: table or target can't be read.
    """
    told = told_by_table(request, held)
    check_source(request, told, source)
    if not is_new(request, told):
        return None
    check_lost(request, told, held)
    check_columns(request, source.snapshot(request.end).schema, held.schema)
    return told


def check_source(request: FeedRequest, told: Told, source: DeltaTable) -> None:
    """Check that what a target tells are changes of this table.

    Raises:
        InvalidArgumentError: they are those of another one, or that can't be known. Facts: target.
        DeltaError: the table can't be read.
    """
    if not told.ids:
        return
    table_id, version = max(told.ids.items(), key=lambda mark: mark[1])
    same = is_same_log(source, table_id, version)
    if same is None:
        raise refusal(
            request,
            f"whether its changes are those of this table can't be told: at version {version} theirs had "
            f"the id {table_id}, this one has another id now, and cleanup has taken that version",
        )
    if not same:
        raise refusal(
            request,
            f"it has the changes of another table, whose id was {table_id} at version {version}",
        )


def check_lost(request: FeedRequest, told: Told, held: Snapshot) -> None:
    """Check that a Delta target without identifiers doesn't have changes that it tells nothing about.

    Raises:
        InvalidArgumentError: it may have some of the range, as far as its statistics tell. Facts: target.
        DeltaError: its files can't be told.
    """
    if told.last is not None or held.schema.field(COMMIT_VERSION) is None:
        return
    import pyarrow.compute as pc

    version = pc.field(COMMIT_VERSION)
    asked = (version >= request.start) & (version <= request.end)
    some = held.files(columns=["path"], predicate=asked)
    if some.num_rows:
        raise refusal(
            request,
            f"it says of no version that it has its changes, but {some['path'][0].as_py()} may have rows "
            "of these",
        )


def identifiers_of(request: FeedRequest, told: Told, source_id: str) -> dict[str, int]:
    """The transaction identifiers of the commit that appends a range to a Delta target.

    Args:
        request: the range, of which the target has nothing.
        told: what the target tells before.
        source_id: the id of the source's metadata at the range's last version.
    """
    ((first, last),) = (
        found
        for found in _united([*told.ranges, (request.start, request.end)])
        if found[0] <= request.start <= found[1]
    )
    marks = {
        start_mark(first): last,
        f"{_OF}{source_id}": max(request.end, told.ids.get(source_id, 0)),
        _UNTIL: max(request.end, told.last or 0),
    }
    if told.unknown_until is not None:
        marks[f"{_FROM}{_UNKNOWN}"] = told.unknown_until
    return marks


def start_mark(first: int) -> str:
    """The application id whose version is the last of those that a Delta target tells from this one on."""
    return f"{_FROM}{first}"


def _by_rest(marks: Mapping[str, int], prefix: str) -> dict[str, int]:
    """The versions of the application ids that begin so, by what follows."""
    return {
        app_id.removeprefix(prefix): version
        for app_id, version in marks.items()
        if app_id.startswith(prefix)
    }


def _united(ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The same versions in the fewest ranges, ascending."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(last, found[-1][1])
        else:
            found.append((first, last))
    return tuple(found)
