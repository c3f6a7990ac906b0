"""The ranges of a change feed that a directory of parquet files has.

Each range is a directory, `range_directory`, with a file `MARKER` in it once the range is complete. The
directory is called like one of a partition, so that readers of the whole target see the ranges as a column
``change_versions``; without the marker it is what a run that was killed has left, or what one that still
runs has copied so far.

Nothing holds two runs apart: one that everybody took for dead may go on. So the marker lists the files of
its run, which no other run has, and where a directory has others, one of the two gives way
(`airflow_delta.spark.changes.feed`). Markers of earlier releases have no list, and are taken at their word.

Objects without content that stand for directories, as the consoles of object stores and Hadoop make them,
tell nothing.

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
    "marker_of",
    "overlapping",
    "range_directories",
    "range_directory",
]

MARKER = "_airflow_delta_changes.json"
"""The file that says that a range of a parquet target is complete. Readers skip it for its name."""

UNFINISHED = "_unfinished-"
"""How the directories are called that a parquet target's ranges are written in. Readers skip them."""

_LOG = "_delta_log"
_RANGE = re.compile(r"change_versions=([0-9]{20})-([0-9]{20})")
_HADOOP_FOLDER = "_$folder$"


@dataclass(frozen=True, slots=True)
class RangeFiles:
    """A range's directory as it was listed.

    Attributes:
        first: the first version.
        last: the last version.
        complete: whether the marker is there.
        sizes: the size of each file that readers read, by name.
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
    """The ranges that a directory has, complete or not, by the names of their directories.

    Raises:
        InvalidArgumentError: it holds what no feed has written. Facts: target.
    """
    found: dict[str, list[FileInfo]] = {}
    # A loop over files: a listing comes one by one.
    for info in target.walk(""):
        directory = info.path.rpartition("/")[0]
        if _RANGE.fullmatch(directory):
            found.setdefault(directory, []).append(info)
        # At any depth: a rename can put it into a range that has come first, and takes it out again.
        elif f"/{UNFINISHED}" not in f"/{info.path}" and not _stands_for_directory(info):
            raise refusal(request, _foreign(target, info.path))
    return {directory: _range_files(directory, files) for directory, files in found.items()}


def files_read_in(target: Storage, directory: str) -> dict[str, int]:
    """The size of each file of a range that readers read, by name."""
    return _sizes_read(directory, target.walk(directory))


def check_ranges_apart(request: FeedRequest, found: Mapping[str, RangeFiles]) -> None:
    """Check that no version is told by two complete ranges.

    Raises:
        InvalidArgumentError: one is, as where two runs have written at a time. Facts: target.
    """
    in_order = sorted(
        complete_ranges(found), key=lambda name: (found[name].first, found[name].last)
    )
    # Neighbours are enough: where any two overlap, some two that follow one another do.
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
    """The complete ranges that have versions of the range asked for, without that range itself."""
    own = range_directory(request.start, request.end)
    return [
        name
        for name in complete_ranges(found)
        if name != own and found[name].overlaps(request.start, request.end)
    ]


def complete_ranges(found: Mapping[str, RangeFiles]) -> list[str]:
    """The directories that have their marker."""
    return [name for name, held in found.items() if held.complete]


def incomplete_ranges(request: FeedRequest, found: Mapping[str, RangeFiles]) -> list[str]:
    """The directories that have versions of the range, and no marker."""
    return [
        name
        for name, held in found.items()
        if not held.complete and held.overlaps(request.start, request.end)
    ]


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
        raise refusal(request, f"its {path} can't be read") from error
    if not isinstance(marker, dict) or not isinstance(marker.get("table_id"), str):
        raise refusal(request, f"its {path} doesn't say which table it is about")
    return marker


def check_listed(
    request: FeedRequest, directory: str, marker: Mapping[str, Any], sizes: Mapping[str, int]
) -> None:
    """Check that a complete range has the files that its marker lists, and no others.

    Raises:
        CommitConflictError: another run is about to write the same range, or was killed in doing so.
    """
    listed = marker.get("files")
    if listed is None or listed == sizes:
        return
    lost = sorted(name for name, size in listed.items() if sizes.get(name) != size)
    others = sorted(sizes.keys() - listed.keys())
    raise CommitConflictError(
        f"{request.target_uri}: the range {directory} isn't as its {MARKER} says: "
        f"{_some('it lacks', lost)}{_some('it has', others)}another run writes the same range, or was "
        "killed in doing so. Try again once no other run is active, and if that doesn't help, delete "
        + ("the directory" if lost else "the files that aren't listed"),
        table=request.table_uri,
    )


def check_no_ranges(request: FeedRequest, target: Storage) -> None:
    """Check that a place where a Delta target is to be made has no ranges of a parquet one.

    Raises:
        InvalidArgumentError: it has. Facts: target.
    """
    there = [name for name in target.level("").folders if _RANGE.fullmatch(name)]
    if there:
        raise refusal(
            request,
            f"it holds {min(there)}, and so is the target of a feed of the format parquet: ask for that "
            "format",
        )


def _range_files(directory: str, files: Iterable[FileInfo]) -> RangeFiles:
    first, last = map(int, directory.rpartition("=")[2].split("-"))
    complete = any(info.path == f"{directory}/{MARKER}" for info in files)
    return RangeFiles(first, last, complete, _sizes_read(directory, files))


def _sizes_read(directory: str, files: Iterable[FileInfo]) -> dict[str, int]:
    """The sizes of the files right in a directory whose names readers don't skip, by name."""
    beside = f"{directory}/"
    return {
        info.path.removeprefix(beside): info.size
        for info in files
        if info.path.startswith(beside)
        and not info.path.removeprefix(beside).startswith(("_", "."))
        and not _stands_for_directory(info)
    }


def _stands_for_directory(info: FileInfo) -> bool:
    """Whether an object without content is there for a directory: the target, or one that feeds make."""
    name = info.path.removesuffix(_HADOOP_FOLDER)
    is_ours = not name or name.startswith(UNFINISHED) or _RANGE.fullmatch(name) is not None
    return is_ours and info.size == 0


def _foreign(target: Storage, path: str) -> str:
    if _LOG in target.level("").folders:
        return "it is a Delta table, and not a directory of parquet files: ask for the format delta"
    return f"it holds {path}, which no change feed has written"


def _some(what: str, names: Iterable[str]) -> str:
    return "".join(f"{what} {name}; " for name in list(names)[:1])
