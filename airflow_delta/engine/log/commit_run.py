"""The commits of a log of any length, as arrays of numbers.

The time of a commit may depend on the times of all commits before it, so history looks at the whole
log. A hundred thousand `Commit` objects would take a hundred times the memory of their sizes and
times as numbers. Nothing more needs to be stored: the name of a commit follows from its version.
Un-backfilled commits have other names; there are few of them, and they are kept as objects.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import overload

from airflow_delta.engine.log.files import (
    Commit,
    LogCommit,
    UnbackfilledCommit,
    commit_path,
    commit_version,
)
from airflow_delta.engine.log.listing import listing_of
from airflow_delta.engine.storage.base import FileInfo

__all__ = ["CommitRun", "ScannedLog", "scan_log"]


_NONE: Mapping[int, UnbackfilledCommit] = MappingProxyType({})


class CommitRun(Sequence[LogCommit]):
    """Commits of consecutive versions; indexing creates the `LogCommit` objects.

    Args:
        first: the version of the first commit.
        sizes: their sizes in bytes.
        times: their modification times, in epoch ms.
        unbackfilled: the un-backfilled ones among them, by version.
    """

    __slots__ = ("first", "sizes", "times", "unbackfilled")

    def __init__(
        self,
        first: int,
        sizes: array[int],
        times: array[int],
        unbackfilled: Mapping[int, UnbackfilledCommit] = _NONE,
    ) -> None:
        self.first = first
        self.sizes = sizes
        self.times = times
        self.unbackfilled = unbackfilled

    def __len__(self) -> int:
        return len(self.times)

    @overload
    def __getitem__(self, index: int) -> LogCommit: ...

    @overload
    def __getitem__(self, index: slice) -> CommitRun: ...

    def __getitem__(self, index: int | slice) -> LogCommit | CommitRun:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step != 1:
                raise ValueError(f"a run of commits has no slice with a step: found {step}")
            sizes, times = self.sizes[start:stop], self.times[start:stop]
            return CommitRun(self.first + start, sizes, times, self.unbackfilled)
        position = range(len(self))[index]
        version = self.first + position
        if (commit := self.unbackfilled.get(version)) is not None:
            return commit
        return Commit(version, commit_path(version), self.sizes[position], self.times[position])

    def __repr__(self) -> str:
        return f"CommitRun(first={self.first}, length={len(self)})"


@dataclass(frozen=True, slots=True)
class ScannedLog:
    """The result of one pass over the names in a log.

    Attributes:
        commits: the newest commits without a gap.
        checkpoints: the versions of complete checkpoints, ascending.
    """

    commits: CommitRun
    checkpoints: tuple[int, ...]


def scan_log(files: Iterable[FileInfo | LogCommit]) -> ScannedLog:
    """Scan files of the log, in the order of their names, into a `ScannedLog`."""
    checkpoint_files: list[FileInfo] = []
    first = 0
    sizes, times = array("q"), array("q")
    unbackfilled: dict[int, UnbackfilledCommit] = {}
    for file in files:
        if isinstance(file, UnbackfilledCommit):
            version: int | None = file.version
            unbackfilled[file.version] = file
        else:
            version = commit_version(file.path)
        if version is None:
            if isinstance(file, FileInfo) and ".checkpoint." in file.path:
                checkpoint_files.append(file)
            continue
        if version != first + len(sizes):
            first, sizes, times = version, array("q"), array("q")
        sizes.append(file.size)
        times.append(file.modified_ms)
    checkpoints = {checkpoint.version for checkpoint in listing_of(checkpoint_files).checkpoints}
    run = CommitRun(first, sizes, times, unbackfilled)
    return ScannedLog(run, tuple(sorted(checkpoints)))
