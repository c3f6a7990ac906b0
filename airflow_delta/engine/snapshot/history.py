"""History and time travel: versions and the times of their commits.

A commit's time is

* its ``inCommitTimestamp``, for versions from the table's enablement version on (all versions, if in-commit
  timestamps are enabled without an enablement version);
* otherwise the modification time of its file, adjusted to ascend: it is at least one millisecond after the
  time of the commit before. File times ascend from the oldest commit that still exists, so
  every question gets the same answer; a limited history is the exception (`_SETTLING`).

Spec: RFC in-commit-timestamps; PROTOCOL.md, "Commit Provenance Information".
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import replace
from itertools import chain

from airflow_delta.engine.errors import (
    InvalidTableError,
    ObjectNotFoundError,
    TimestampOutOfRangeError,
    VersionNotFoundError,
)
from airflow_delta.engine.features.in_commit_timestamps import (
    TimestampSource,
    timestamp_source,
    versions_to_search,
)
from airflow_delta.engine.log.commit_file import read_commit_info, read_commit_infos
from airflow_delta.engine.log.commit_run import CommitRun, ScannedLog, scan_log
from airflow_delta.engine.log.files import LogCommit
from airflow_delta.engine.log.listing import list_names
from airflow_delta.engine.log.newest_segment import newest_commits
from airflow_delta.engine.log.segment import LogSegment, load_segment
from airflow_delta.engine.model.actions import CommitInfo, Metadata, Protocol
from airflow_delta.engine.model.lazy import lazy_property
from airflow_delta.engine.model.times import utc_text
from airflow_delta.engine.storage.base import Storage

__all__ = ["Timeline"]

_SETTLING = 100
"""Commits before the oldest one listed that a limited history considers for the times of files, as many as
Delta Spark does: considering all would make it as expensive as a whole history. The times differ only if a
file before these commits is newer than theirs."""


class Timeline:
    """The existing commits of a table, with their times.

    Args:
        storage: where the log is.
        segment: the segment of the newest version; commits made since then are left out.
        protocol: the protocol of the newest version.
        metadata: its metadata. The two show where in-commit timestamps begin.
        newest: the ``commitInfo`` of the newest version, if it is known.
    """

    def __init__(
        self,
        storage: Storage,
        segment: LogSegment,
        *,
        protocol: Protocol,
        metadata: Metadata,
        newest: CommitInfo | None = None,
    ) -> None:
        self._storage = storage
        self._segment = segment
        self._table = segment.table
        self._latest = segment.version
        self._protocol = protocol
        self._metadata = metadata
        self._newest_info = newest

    def _known(self, start: int) -> tuple[LogCommit, ...]:
        """The newest commits, from a version on, as far as the segment contains them."""
        return tuple(commit for commit in self._segment.commits if commit.version >= start)

    @lazy_property
    def _log(self) -> ScannedLog:
        """The whole log up to the newest version, in one pass."""
        known = self._known(0)
        end = known[0].version - 1 if known else self._latest
        return scan_log(chain(list_names(self._storage, end=end) if end >= 0 else (), known))

    @property
    def commits(self) -> CommitRun:
        """The existing commits, contiguous up to the newest.

        None is missing after the checkpoint of the segment, or the segment wouldn't exist. A
        cleanup may have deleted older ones.
        """
        return self._log.commits

    @property
    def checkpoints(self) -> tuple[int, ...]:
        """The versions of the complete checkpoints, ascending, judged by their names."""
        return self._log.checkpoints

    def _commits_from(self, start: int) -> CommitRun:
        """The commits from a version on, without listing older ones."""
        known = self._known(start)
        end = known[0].version - 1 if known else self._latest
        older = newest_commits(self._storage, oldest=start, newest=end) if end >= start else ()
        return scan_log((*older, *known)).commits

    @lazy_property
    def _file_times(self) -> array[int]:
        """The ascending file times of `commits`."""
        return _make_ascending(self.commits.times)

    @property
    def earliest_recreatable(self) -> int:
        """The oldest version whose state can be rebuilt.

        Raises:
            VersionNotFoundError: no version can.
        """
        first = self.commits.first if self.commits else self._latest + 1
        if first == 0:
            return 0
        starts = [version for version in self._log.checkpoints if version >= first - 1]
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
            VersionNotFoundError: the commit's file is gone, so its time is unknown.
            CorruptLogError: the commit should contain its time, but doesn't.
        """
        if self._is_in_commit(version):
            return self._in_commit_time_of(version)
        index = version - self.commits.first
        if not 0 <= index < len(self.commits):
            raise self._commit_is_gone(version)
        return self._file_times[index]

    def version_at(self, timestamp_ms: int, *, can_return_latest: bool = False) -> int:
        """The newest version that existed at a time.

        Args:
            timestamp_ms: epoch milliseconds.
            can_return_latest: for a time after the newest commit, return the newest version.

        Raises:
            TimestampOutOfRangeError: the time is before the oldest version that can be rebuilt, or
                after the newest commit without ``can_return_latest``.
        """
        first, last = self._first_timed(self.earliest_recreatable), self._latest
        if timestamp_ms > (end := self.timestamp_ms(last)):
            if can_return_latest:
                return last
            raise self._out_of_range(timestamp_ms, first, last, end)
        searched = versions_to_search(
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

    def segment_at(self, version: int) -> LogSegment:
        """The files that rebuild a version, without searching the log again.

        Args:
            version: a version up to the newest.

        Raises:
            VersionNotFoundError: the version can't be rebuilt.
            CorruptLogError: the log has a gap, or holds a commit of zero bytes.
        """
        newest = self._segment
        if newest.checkpoint is None or newest.checkpoint.version <= version:
            return newest.until(version)
        start = max((c for c in self._log.checkpoints if c <= version), default=0)
        return load_segment(self._storage, version=version, start=start, verified=newest.verified)

    def history(self, limit: int | None = None, *, since_ms: int | None = None) -> list[CommitInfo]:
        """The ``commitInfo`` of the commits, newest first, with the times that readers use.

        Args:
            limit: the maximum number; None for all existing commits. With a limit, the times of
                files ascend from 100 commits before the oldest one returned; see the module.
            since_ms: leave out commits whose files are older than this time, in epoch milliseconds. They
                aren't read.

        Raises:
            CorruptLogError: a commit is empty or can't be parsed.
        """
        if limit == 0:
            return []
        commits, times = self._newest(limit)
        listed = commits if limit is None else commits[-limit:]
        if since_ms is not None:
            start = listed.first - commits.first
            listed = listed[bisect_left(times, since_ms, start) - start :]
        versions = range(listed.first + len(listed) - 1, listed.first - 1, -1)
        sizes = dict(zip(reversed(versions), listed.sizes, strict=True))
        paths = {version: commit.path for version, commit in listed.unbackfilled.items()}
        raw = read_commit_infos(self._storage, versions, paths=paths, sizes=sizes)
        start = self._first_in_commit(listed.first, versions.start + 1)
        # A commit that has vanished has been cleaned up in the meantime.
        infos = (CommitInfo.from_json(raw[v] or {}, version=v) for v in versions if v in raw)
        return [
            replace(info, timestamp_ms=_in_commit_time(info, self._table))
            if info.version >= start
            else replace(info, timestamp_ms=times[info.version - commits.first])
            for info in infos
        ]

    def _newest(self, limit: int | None) -> tuple[CommitRun, array[int]]:
        """At least as many of the newest commits as requested, and their file times."""
        start = 0 if limit is None else max(0, self._latest - limit + 1)
        if start and not self._is_in_commit(start):
            # In-commit timestamps are independent; the times of files depend on older commits.
            start = max(0, start - _SETTLING)
        if not start:
            return self.commits, self._file_times
        commits = self._commits_from(start)
        return commits, _make_ascending(commits.times)

    def _first_timed(self, earliest: int) -> int:
        """The oldest version that can be rebuilt and whose time is known."""
        return max(earliest, self.commits.first) if self.commits else earliest

    def _is_in_commit(self, version: int) -> bool:
        source = timestamp_source(version, self._protocol, self._metadata, table=self._table)
        return source is TimestampSource.COMMIT_INFO

    def _first_in_commit(self, start: int, end: int) -> int:
        """The first version with an in-commit timestamp, from ``start`` to before ``end``; or ``end``."""
        # From the first such version on all versions have one, so a binary search saves reading
        # commits.
        return start + bisect_left(range(start, end), True, key=self._is_in_commit)

    def _in_commit_time_of(self, version: int) -> int:
        if self._newest_info is not None and version == self._newest_info.version:
            return _in_commit_time(self._newest_info, self._table)
        try:
            path = self._segment.path_of(version)
            raw = read_commit_info(self._storage, version, path=path)
        except ObjectNotFoundError as error:
            raise self._commit_is_gone(version) from error
        return _in_commit_time(CommitInfo.from_json(raw or {}, version=version), self._table)

    def _commit_is_gone(self, version: int) -> VersionNotFoundError:
        commits = self.commits
        known = (commits.first, commits.first + len(commits) - 1) if commits else None
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
            f"no version belongs to the time {utc_text(timestamp_ms)}: the table can be read from "
            f"{utc_text(start)} (version {first}) to {utc_text(end)} (version {last}); "
            + (
                "ask for the newest version; DeltaTable.snapshot and version_at give it for later times, "
                "too, with can_return_latest=True"
                if timestamp_ms > end
                else "ask for a later time, or for the earliest version"
            ),
            table=self._table,
            timestamp_ms=timestamp_ms,
            earliest_ms=start,
            latest_ms=end,
        )


def _make_ascending(times: Iterable[int]) -> array[int]:
    """The times of files, adjusted so that each is later than the one before."""
    ascending = array("q")
    previous = -1
    # The rule is a recurrence: each value needs the one before.
    for time in times:
        previous = max(time, previous + 1)
        ascending.append(previous)
    return ascending


def _in_commit_time(info: CommitInfo, table: str) -> int:
    if info.in_commit_timestamp_ms is None:
        raise InvalidTableError(
            f"commit {info.version} has no inCommitTimestamp in a commitInfo at its start, though the "
            "table has in-commit timestamps on; its writer broke the protocol",
            table=table,
            version=info.version,
        )
    return info.in_commit_timestamp_ms
