"""The rules of change feeds that are kept at a target: what is asked for, and what the target says.

A target says itself how far it has come, so that no range of versions is told twice in it:

* **A Delta table** by a transaction identifier in each of its commits: `feed_app_id` of the source's
  table id, whose version is the last version that the target tells the changes of.
* **A directory of parquet files** by a directory for each range, `range_directory`, with a file
  `MARKER` in it once the range is complete. The directory is called like one of a partition, so that
  readers of the whole target see the ranges as a column ``change_versions``; without the marker it is
  what a run that was killed has left, and is replaced.

What follows from that for the range that is asked for:

=======================================  ========================================================
the target tells                         the range
=======================================  ========================================================
nothing, or what came before the range   is appended
all of the range                         is there already: nothing is to be done
a part of the range                      is refused: the rest has to be asked for
the changes of another table             is refused: its versions aren't those of this one
=======================================  ========================================================

The source is known by its table id, which stays when a table is moved.

No PySpark here: whoever submits the job looks at the target first, because starting Spark takes
seconds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_delta.engine.errors import InvalidArgumentError, ObjectNotFoundError

if TYPE_CHECKING:
    from airflow_delta.engine import DeltaTable, Snapshot
    from airflow_delta.engine.storage.base import Storage

__all__ = [
    "CHANGE_KINDS",
    "FORMATS",
    "MARKER",
    "UNFINISHED",
    "FeedRequest",
    "check_apart",
    "check_feed_format",
    "feed_app_id",
    "is_new",
    "marker_of",
    "range_directory",
    "told_by_files",
    "told_by_table",
    "told_by_target",
]

FORMATS = ("parquet", "delta")
"""What a target can be."""

MARKER = "_airflow_delta_changes.json"
"""The file that says that a range of a parquet target is complete. Readers skip it for its name."""

UNFINISHED = "_unfinished-"
"""How the directories are called that a parquet target's ranges are written in. Readers skip them."""

CHANGE_KINDS = ("insert", "delete", "update_preimage", "update_postimage")
"""What ``_change_type`` can be."""

_APP_ID = "airflow-delta:changes-of:"
_RANGE = re.compile(r"change_versions=([0-9]{20})-([0-9]{20})")


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


def feed_app_id(table_id: str) -> str:
    """The application id that marks what a Delta target tells of a table, whose id this is."""
    return f"{_APP_ID}{table_id}"


def range_directory(start: int, end: int) -> str:
    """The directory of a range, below a parquet target."""
    return f"change_versions={start:020}-{end:020}"


def is_new(request: FeedRequest, told: int | None) -> bool:
    """Whether a range is still to be appended to a target that tells the changes up to a version.

    Raises:
        InvalidArgumentError: only a part of it is. Facts: target.
    """
    if told is None or told < request.start:
        return True
    if told >= request.end:
        return False
    raise _refusal(
        request, f"it has the changes up to version {told} already: go on at version {told + 1}"
    )


def told_by_table(request: FeedRequest, source_id: str, held: Snapshot) -> int | None:
    """The last version whose changes a Delta target tells; None where it tells none.

    Raises:
        InvalidArgumentError: it tells those of another table. Facts: target.
    """
    marks = {
        name.removeprefix(_APP_ID): txn.version
        for name, txn in held.transactions.items()
        if name.startswith(_APP_ID)
    }
    _check_source(request, source_id, marks)
    return marks.get(source_id)


def told_by_files(request: FeedRequest, source_id: str, target: Storage) -> int | None:
    """The last version whose changes a directory of parquet files tells; None where it tells none.

    Ranges that aren't complete don't count.

    Raises:
        InvalidArgumentError: it tells those of another table, holds what no feed has written, or a
            marker can't be read. Facts: target.
    """
    ends = {}
    # A loop over files: a listing comes one by one.
    for info in target.walk(""):
        directory, _, name = info.path.rpartition("/")
        found = _RANGE.fullmatch(directory)
        if found is None and not info.path.startswith(UNFINISHED):
            raise _refusal(request, f"it holds {info.path}, which no change feed has written")
        if found and name == MARKER:
            ends[int(found[2])] = directory
    if not ends:
        return None
    newest = max(ends)
    marker = marker_of(request, target, ends[newest])
    _check_source(request, source_id, {marker["table_id"]: newest} if marker else {})
    return newest


def marker_of(request: FeedRequest, target: Storage, directory: str) -> Mapping[str, Any] | None:
    """What the marker of a range says; None where there is none.

    Raises:
        InvalidArgumentError: it can't be read. Facts: target.
    """
    path = f"{directory}/{MARKER}"
    try:
        marker = json.loads(target.read(path))
    except ObjectNotFoundError:
        return None
    except ValueError as error:
        raise _refusal(request, f"its {path} can't be read") from error
    if not isinstance(marker, dict) or not isinstance(marker.get("table_id"), str):
        raise _refusal(request, f"its {path} doesn't say which table it is about")
    return marker


def told_by_target(request: FeedRequest, source_id: str, target: DeltaTable) -> int | None:
    """The last version whose changes the target tells, of either format; None: none, or no target.

    Raises:
        InvalidArgumentError: see `told_by_table` and `told_by_files`.
        DeltaError: the target can't be read.
    """
    if request.format == "parquet":
        return told_by_files(request, source_id, target.storage)
    return told_by_table(request, source_id, target.snapshot()) if target.exists() else None


def check_apart(request: FeedRequest, source: Storage, target: Storage) -> None:
    """Check that neither of the table and the target lies inside the other.

    Raises:
        InvalidArgumentError: one does. Facts: target.
    """
    places = [f"{storage.place.rstrip('/')}/" for storage in (source, target)]
    if places[0].startswith(places[1]) or places[1].startswith(places[0]):
        raise _refusal(request, "target and table lie inside one another")


def _check_source(request: FeedRequest, source_id: str, told: Mapping[str, int]) -> None:
    others = sorted(set(told) - {source_id})
    if others:
        raise _refusal(
            request, f"it has the changes of another table, whose id is {', '.join(others)}"
        )


def _refusal(request: FeedRequest, reason: str) -> InvalidArgumentError:
    """The error that says why nothing is appended to a target, and what to do."""
    return InvalidArgumentError(
        f"the changes of versions {request.start} to {request.end} aren't appended to "
        f"{request.target_uri}: {reason}; or choose another target",
        table=request.table_uri,
        target=request.target_uri,
    )
