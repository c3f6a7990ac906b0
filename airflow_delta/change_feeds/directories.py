"""The ranges of a change feed whose target is a directory of Parquet files.

Each range is a subdirectory (`range_directory`) named like a partition, so that readers of the
whole target get a column ``change_versions``. A complete range contains the file `MARKER`. A range
without it was left by a killed run, or is still being copied.

No PySpark here, see `airflow_delta.change_feeds.request`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from airflow_delta.change_feeds.request import FeedRequest, refusal
from airflow_delta.engine.errors import CommitConflictError, ObjectNotFoundError

if TYPE_CHECKING:
    from airflow_delta.engine.storage.base import FileInfo, Storage

__all__ = [
    "MARKER",
    "UNFINISHED",
    "RangeFiles",
    "check_listed",
    "check_no_ranges",
    "check_ranges_apart",
    "complete_ranges",
    "files_read_in",
    "incomplete_ranges",
    "overlapping",
    "range_directories",
    "range_directory",
    "read_marker",
]

MARKER = "_airflow_delta_changes.json"
"""The file that marks a range of a Parquet target as complete. Readers skip it because of its name."""

UNFINISHED = "_unfinished-"
"""The prefix of the directories in which ranges are first written. Readers skip them."""

_LOG = "_delta_log"
_RANGE = re.compile(r"change_versions=([0-9]{20})-([0-9]{20})")
_HADOOP_FOLDER = "_$folder$"


@dataclass(frozen=True, slots=True)
class RangeFiles:
    """The listed directory of a range.

    Attributes:
        first: the first version.
        last: the last version.
        complete: whether it has a marker.
        sizes: the sizes of the files that readers read, by name.
    """

    first: int
    last: int
    complete: bool
    sizes: Mapping[str, int]

    def overlaps(self, first: int, last: int) -> bool:
        """Whether it has some of these versions."""
        return self.first <= last and first <= self.last


def range_directory(start: int, end: int) -> str:
    """The directory of a range, below a parquet target."""
    return f"change_versions={start:020}-{end:020}"


def range_directories(request: FeedRequest, target: Storage) -> dict[str, RangeFiles]:
    """List the ranges of a target, complete or not, by the names of their directories.

    Raises:
        InvalidArgumentError: the target has files of no feed. Facts: target.
    """
    found: dict[str, list[FileInfo]] = {}
    for info in target.walk(""):
        directory = info.path.rpartition("/")[0]
        if _RANGE.fullmatch(directory):
            found.setdefault(directory, []).append(info)
        # At any depth: a rename to a range that exists by then moves the directory into it for a
        # moment.
        elif f"/{UNFINISHED}" not in f"/{info.path}" and not _stands_for_directory(info):
            raise refusal(request, _foreign(target, info.path))
    return {directory: _range_files(directory, files) for directory, files in found.items()}


def files_read_in(target: Storage, directory: str) -> dict[str, int]:
    """The sizes of the files of a range that readers read, by name."""
    return _sizes_read(directory, target.walk(directory))


def check_ranges_apart(request: FeedRequest, found: Mapping[str, RangeFiles]) -> None:
    """Check that no two complete ranges overlap.

    Raises:
        InvalidArgumentError: two do, for example after concurrent runs. Facts: target.
    """
    in_order = sorted(
        complete_ranges(found), key=lambda name: (found[name].first, found[name].last)
    )
    # Comparing neighbours is enough: if any two ranges overlap, two neighbours do.
    for name, other in pairwise(in_order):
        one, two = found[name], found[other]
        if one.overlaps(two.first, two.last):
            raise refusal(
                request,
                f"its ranges {name} and {other} both have the changes of versions {two.first} to "
                f"{min(one.last, two.last)}, which readers see twice: delete one of the two directories "
                "(its versions that the other doesn't have can be appended again then)",
            )


def overlapping(request: FeedRequest, found: Mapping[str, RangeFiles]) -> list[str]:
    """The other complete ranges that overlap the requested range."""
    own = range_directory(request.start, request.end)
    return [
        name
        for name in complete_ranges(found)
        if name != own and found[name].overlaps(request.start, request.end)
    ]


def complete_ranges(found: Mapping[str, RangeFiles]) -> list[str]:
    """The directories with a marker."""
    return [name for name, held in found.items() if held.complete]


def incomplete_ranges(request: FeedRequest, found: Mapping[str, RangeFiles]) -> list[str]:
    """The directories without a marker that overlap the requested range."""
    return [
        name
        for name, held in found.items()
        if not held.complete and held.overlaps(request.start, request.end)
    ]


def read_marker(request: FeedRequest, target: Storage, directory: str) -> Mapping[str, Any] | None:
    """Read the marker of a range; None if there is none.

    Raises:
        InvalidArgumentError: it can't be read. Facts: target.
    """
    path = f"{directory}/{MARKER}"
    try:
        marker = json.loads(target.read(path))
    except ObjectNotFoundError:
        return None
    except ValueError as error:
        raise refusal(request, f"its {path} can't be read") from error
    if not isinstance(marker, dict) or not isinstance(marker.get("table_id"), str):
        raise refusal(request, f"its {path} doesn't contain the id of the table")
    return marker


def check_listed(
    request: FeedRequest, directory: str, marker: Mapping[str, Any], sizes: Mapping[str, int]
) -> None:
    """Check that a complete range has the files that its marker lists, and no others.

    Nothing prevents two concurrent runs, but the names of the files are unique to a run. If a directory has
    others, one of the two runs deletes its own again (`airflow_delta.spark.changes.feed`).

    Raises:
        CommitConflictError: another run is writing the same range, or was killed while it did.
    """
    listed = marker.get("files")
    if listed is None or listed == sizes:  # markers of earlier releases have no list
        return
    lost = sorted(name for name, size in listed.items() if sizes.get(name) != size)
    others = sorted(sizes.keys() - listed.keys())
    raise CommitConflictError(
        f"{request.target_uri}: the range {directory} isn't as its {MARKER} says: "
        f"{_some('it lacks', lost)}{_some('it has', others)}another run writes the same range, or was "
        "killed while it did. Try again once no other run is active, and if that doesn't help, delete "
        + ("the directory" if lost else "the files that aren't listed"),
        table=request.table_uri,
    )


def check_no_ranges(request: FeedRequest, target: Storage) -> None:
    """Check that the location of a new Delta target has no ranges of a Parquet target.

    Raises:
        InvalidArgumentError: it has some. Facts: target.
    """
    there = [name for name in target.level("").folders if _RANGE.fullmatch(name)]
    if there:
        raise refusal(
            request,
            f"it holds {min(there)}, so it is the target of a feed with the format parquet: choose that "
            "format",
        )


def _range_files(directory: str, files: Iterable[FileInfo]) -> RangeFiles:
    first, last = map(int, directory.rpartition("=")[2].split("-"))
    complete = any(info.path == f"{directory}/{MARKER}" for info in files)
    return RangeFiles(first, last, complete, _sizes_read(directory, files))


def _sizes_read(directory: str, files: Iterable[FileInfo]) -> dict[str, int]:
    """The sizes, by name, of the files directly in a directory that readers don't skip."""
    beside = f"{directory}/"
    return {
        info.path.removeprefix(beside): info.size
        for info in files
        if info.path.startswith(beside)
        and not info.path.removeprefix(beside).startswith(("_", "."))
        and not _stands_for_directory(info)
    }


def _stands_for_directory(info: FileInfo) -> bool:
    """Whether this is an empty object that represents a directory of a feed.

    Consoles of object stores and Hadoop create such objects.
    """
    name = info.path.removesuffix(_HADOOP_FOLDER)
    is_ours = not name or name.startswith(UNFINISHED) or _RANGE.fullmatch(name) is not None
    return is_ours and info.size == 0


def _foreign(target: Storage, path: str) -> str:
    if _LOG in target.level("").folders:
        return "it is a Delta table, and not a directory of Parquet files: choose the format delta"
    return f"it holds {path}, which no change feed has written"


def _some(what: str, names: Iterable[str]) -> str:
    return "".join(f"{what} {name}; " for name in list(names)[:1])
