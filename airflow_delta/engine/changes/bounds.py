"""Resolve a range of changes, given by versions or times, to versions.

Both ends belong to the range. A time at the start means the first commit at or after it; a time at the end
means the last commit at or before it. So consecutive periods neither overlap nor miss a commit, if each
begins one millisecond after the end of the one before. A time after the newest commit is refused, as in the
reference implementation, because commits with such a time may still be made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from airflow_delta.engine.errors import (
    ChangesNotAvailableError,
    InvalidArgumentError,
    TimestampOutOfRangeError,
    VersionNotFoundError,
)
from airflow_delta.engine.log.segment import check_version
from airflow_delta.engine.model.times import utc_text
from airflow_delta.engine.snapshot.history import Timeline

__all__ = ["Bound", "Moment", "resolve_range"]


@dataclass(frozen=True, slots=True)
class Moment:
    """An end of a range, given as a time in epoch milliseconds."""

    timestamp_ms: int


Bound: TypeAlias = int | Moment
"""An end of a range: a version or a time."""


def resolve_range(
    timeline: Timeline, start: Bound, end: Bound | None, *, latest: int, table: str
) -> range:
    """The versions from ``start`` to ``end``, after a check that all of their commits exist.

    Args:
        timeline: the timeline of the newest version.
        start: the first version; or a time, for the first commit at or after it.
        end: the last version; or a time, for the last commit at or before it. None for the newest version.
        latest: the newest version.
        table: the table's location, for errors.

    Raises:
        InvalidArgumentError: the range ends before it starts, or an end is no version.
        VersionNotFoundError: a version is higher than the newest.
        TimestampOutOfRangeError: a time is outside of the commits' times, or no commit lies between two
            times.
        ChangesNotAvailableError: a cleanup deleted commits of the range.
        CorruptLogError: commits are missing that no cleanup deletes.
    """
    available = _available(timeline, latest, table)
    first = _start(timeline, start, available, table)
    last = _end(timeline, latest if end is None else end, table)
    if max(first, last) > latest:
        version = max(first, last)
        raise VersionNotFoundError(
            f"there is no version {version} yet: the newest is {latest}",
            table=table,
            version=version,
            earliest=available.start,
            latest=latest,
        )
    if first > last:
        raise _empty(start, end, first, last, timeline, table)
    if last >= available.stop:
        raise ChangesNotAvailableError(
            f"the changes from version {first} to {last} aren't available: the commits from "
            f"{available.stop} to {latest} are missing, and a checkpoint only contains the state after "
            "them; restore the files from a backup, or read the table itself",
            table=table,
            start=first,
            end=last,
            earliest=available.start,
            latest=latest,
        )
    if first < available.start:
        raise ChangesNotAvailableError(
            f"the changes from version {first} to {last} aren't available: the log has the commits from "
            f"{available.start} to {latest}, and a cleanup deleted those before; start at "
            f"{available.start}, or read the table itself",
            table=table,
            start=first,
            end=last,
            earliest=available.start,
            latest=latest,
        )
    return range(first, last + 1)


def _available(timeline: Timeline, latest: int, table: str) -> range:
    """The versions whose commits exist, and before which the table's state can be rebuilt."""
    commits = timeline.commits
    if not commits:
        raise ChangesNotAvailableError(
            "no changes are available: the log has a checkpoint, but no commit file",
            table=table,
            start=None,
            end=latest,
        )
    # The newest version may be that of a checkpoint whose commit is missing.
    first = commits[0].version
    return range(max(timeline.earliest_recreatable, first), first + len(commits))


def _start(timeline: Timeline, start: Bound, available: range, table: str) -> int:
    if not isinstance(start, Moment):
        check_version(start, table=table)
        return start
    if available.start == 0 and start.timestamp_ms <= timeline.timestamp_ms(0):
        # Nothing changed before the table was created.
        return 0
    version = timeline.version_at(start.timestamp_ms)
    return version if timeline.timestamp_ms(version) == start.timestamp_ms else version + 1


def _end(timeline: Timeline, end: Bound, table: str) -> int:
    if isinstance(end, Moment):
        return timeline.version_at(end.timestamp_ms)
    check_version(end, table=table)
    return end


def _empty(
    start: Bound, end: Bound | None, first: int, last: int, timeline: Timeline, table: str
) -> InvalidArgumentError | TimestampOutOfRangeError:
    if (
        isinstance(start, Moment)
        and isinstance(end, Moment)
        and start.timestamp_ms <= end.timestamp_ms
    ):
        return TimestampOutOfRangeError(
            f"no version was committed from {utc_text(start.timestamp_ms)} to "
            f"{utc_text(end.timestamp_ms)}: version {last}, of {utc_text(timeline.timestamp_ms(last))}, is "
            f"earlier, and version {first}, of {utc_text(timeline.timestamp_ms(first))}, is later",
            table=table,
            timestamp_ms=start.timestamp_ms,
            earliest_ms=timeline.timestamp_ms(last),
            latest_ms=timeline.timestamp_ms(first),
        )
    return InvalidArgumentError(
        f"the range of changes starts at version {first}, after its end at version {last}",
        table=table,
        start=first,
        end=last,
    )
