"""Versions and the times of their commits: history and time travel.

in-commit-timestamps.md and PROTOCOL.md, "Commit Provenance Information". A commit's time is

* its ``inCommitTimestamp``, for versions at or above the enablement version of the table (all
  versions, where in-commit timestamps are on and no enablement version is told);
* else the modification time of its file, made to ascend: a file never counts as younger than the
  commit before it plus one millisecond (edge cases A21).

File times ascend from the oldest commit that is still there, so that every question gets the same
answer whichever checkpoint a snapshot starts from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

from airflow_delta.engine.errors import (
    CorruptLogError,
    InvalidTableError,
    ObjectNotFoundError,
    TimestampOutOfRangeError,
    VersionNotFoundError,
)
from airflow_delta.engine.features.in_commit_timestamps import (
    TimestampSource,
    searched_versions,
    timestamp_source,
)
from airflow_delta.engine.log.commit_file import read_commit_info, read_commit_infos
from airflow_delta.engine.log.files import Commit
from airflow_delta.engine.log.listing import Listing, list_log
from airflow_delta.engine.log.segment import LogSegment
from airflow_delta.engine.model.actions import CommitInfo, Metadata, Protocol
from airflow_delta.engine.storage.base import Storage

__all__ = ["Timeline"]


class Timeline:
    """The commits that are there, with their times.

    Args:
        storage: where the log is.
        segment: of the newest version; commits after it, made meanwhile, are left out.
        protocol: of the newest version.
        metadata: of the newest version; the two say where in-commit timestamps begin.
    """

    def __init__(
        self, storage: Storage, segment: LogSegment, *, protocol: Protocol, metadata: Metadata
    ) -> None:
        self._storage = storage
        self._segment = segment
        self._table = segment.table
        self._latest = segment.version
        self._protocol = protocol
        self._metadata = metadata

    @cached_property
    def _listing(self) -> Listing:
        return self._listed_from(0)

    def _listed_from(self, start: int) -> Listing:
        """Commits and checkpoints from a version on; the segment spares listing its own."""
        known = tuple(
            c for c in self._segment.commits if isinstance(c, Commit) and c.version >= start
        )
        newest = Listing(known, (), (), ())
        first = known[0].version if known else self._latest + 1
        if first <= start:
            return newest
        return list_log(self._storage, start=start, end=first - 1).before(newest)

    @cached_property
    def commits(self) -> tuple[Commit, ...]:
        """The commits whose files are there, contiguous up to the newest.

        Raises:
            CorruptLogError: a version is missing between two commits that no cleanup leaves behind:
                older commits than the newest checkpoint may be gone, younger ones may not.
        """
        return self._contiguous(self._listing)

    def _contiguous(self, listing: Listing) -> tuple[Commit, ...]:
        commits, checkpoints = listing.commits, listing.checkpoints
        newest_checkpoint = checkpoints[-1].version if checkpoints else -1
        start = len(commits)
        while start and (
            start == len(commits) or commits[start - 1].version + 1 == commits[start].version
        ):
            start -= 1
        if start and commits[start].version > newest_checkpoint + 1:
            raise CorruptLogError(
                f"the commits {commits[start - 1].version + 1} to {commits[start].version - 1} are "
                "missing from the log; restore their files from a backup",
                table=self._table,
                version=commits[start - 1].version + 1,
            )
        return commits[start:]

    @cached_property
    def _file_times(self) -> list[int]:
        """The ascending file times of `commits`."""
        times: list[int] = []
        previous = -1
        # The rule is a recurrence: each value needs the one before.
        for commit in self.commits:
            previous = max(commit.modified_ms, previous + 1)
            times.append(previous)
        return times

    @property
    def earliest_recreatable(self) -> int:
        """The oldest version whose state can be rebuilt from what is there.

        Raises:
            CorruptLogError: see `commits`.
            VersionNotFoundError: none can.
        """
        first = self.commits[0].version if self.commits else self._latest + 1
        if first == 0:
            return 0
        starts = [c.version for c in self._listing.checkpoints if c.version >= first - 1]
        if not starts:
            raise VersionNotFoundError(
                f"no version can be rebuilt: the log begins at commit {first} and has no checkpoint",
                table=self._table,
                version=self._latest,
                earliest=None,
                latest=self._latest,
            )
        return starts[0]

    def timestamp_ms(self, version: int) -> int:
        """The time of a commit, in epoch milliseconds.

        Raises:
            VersionNotFoundError: the commit's file is gone, so that its time is unknown.
            CorruptLogError: the commit should hold its time and doesn't.
        """
        if self._is_in_commit(version):
            return self._in_commit_time_of(version)
        if not self.commits or not self.commits[0].version <= version <= self.commits[-1].version:
            raise self._commit_is_gone(version)
        return self._file_times[version - self.commits[0].version]

    def version_at(self, timestamp_ms: int) -> int:
        """The newest version that was there at a time.

        Args:
            timestamp_ms: epoch milliseconds.

        Raises:
            TimestampOutOfRangeError: it is before the oldest version that can be rebuilt, or after
                the newest commit.
        """
        first, last = self._first_timed(self.earliest_recreatable), self._latest
        if timestamp_ms > (end := self.timestamp_ms(last)):
            raise self._out_of_range(timestamp_ms, first, last, end)
        searched = searched_versions(
            timestamp_ms, self._protocol, self._metadata, latest=last, table=self._table
        )
        low, high = max(first, searched.start), searched.stop - 1
        if low > high or timestamp_ms < self.timestamp_ms(low):
            raise self._out_of_range(timestamp_ms, first, last, end)
        while low < high:
            middle = (low + high + 1) // 2
            if self.timestamp_ms(middle) <= timestamp_ms:
                low = middle
            else:
                high = middle - 1
        return low

    def history(self, limit: int | None = None) -> list[CommitInfo]:
        """What the commits say of themselves, newest first, with the times that readers use.

        Args:
            limit: at most so many; None for all whose files are there.

        Raises:
            CorruptLogError: a commit is empty or can't be parsed, or one is missing.
        """
        if limit == 0:
            return []
        oldest = 0 if limit is None else max(0, self._latest - limit + 1)
        if self._is_in_commit(oldest):
            # File times depend on all older ones, in-commit timestamps on nothing.
            commits = self._contiguous(self._listed_from(oldest))
        else:
            commits = self.commits
        newest = commits if limit is None else commits[-limit:]
        versions = [commit.version for commit in reversed(newest)]
        sizes = {commit.version: commit.size for commit in newest}
        raw = read_commit_infos(self._storage, versions, sizes=sizes)
        # A commit that was listed and is gone has been cleaned up meanwhile.
        return [self._told(version, raw[version]) for version in versions if version in raw]

    def _told(self, version: int, raw: Mapping[str, Any] | None) -> CommitInfo:
        info = CommitInfo.from_json(raw or {}, version=version)
        if self._is_in_commit(version):
            timestamp = _in_commit_time(info, self._table)
        else:
            timestamp = self.timestamp_ms(version)
        return replace(info, timestamp=timestamp)

    def _first_timed(self, earliest: int) -> int:
        """The oldest version that can be rebuilt and whose time is known."""
        return max(earliest, self.commits[0].version) if self.commits else earliest

    def _is_in_commit(self, version: int) -> bool:
        source = timestamp_source(version, self._protocol, self._metadata, table=self._table)
        return source is TimestampSource.COMMIT_INFO

    def _in_commit_time_of(self, version: int) -> int:
        try:
            raw = read_commit_info(self._storage, version)
        except ObjectNotFoundError as error:
            raise self._commit_is_gone(version) from error
        return _in_commit_time(CommitInfo.from_json(raw or {}, version=version), self._table)

    def _commit_is_gone(self, version: int) -> VersionNotFoundError:
        known = (self.commits[0].version, self.commits[-1].version) if self.commits else None
        return VersionNotFoundError(
            f"the commit file of version {version} is gone, and with it its time; commit files that "
            f"are there: {f'{known[0]} to {known[1]}' if known else 'none'}",
            table=self._table,
            version=version,
            earliest=known[0] if known else None,
            latest=known[1] if known else None,
        )

    def _out_of_range(
        self, timestamp_ms: int, first: int, last: int, end: int
    ) -> TimestampOutOfRangeError:
        start = self.timestamp_ms(first)
        return TimestampOutOfRangeError(
            f"no version belongs to the timestamp {timestamp_ms} ms: the table can be read from "
            f"{start} ms (version {first}) to {end} ms (version {last})",
            table=self._table,
            timestamp_ms=timestamp_ms,
            earliest_ms=start,
            latest_ms=end,
        )


def _in_commit_time(info: CommitInfo, table: str) -> int:
    if info.in_commit_timestamp is None:
        raise InvalidTableError(
            f"commit {info.version} has no inCommitTimestamp in a commitInfo at its start, though the "
            "table has in-commit timestamps on; its writer broke the protocol",
            table=table,
            version=info.version,
        )
    return info.in_commit_timestamp
