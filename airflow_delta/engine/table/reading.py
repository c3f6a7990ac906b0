"""The methods of `DeltaTable` that read a table: its versions, its history and its changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_delta.engine.errors import InvalidArgumentError, TableNotFoundError
from airflow_delta.engine.log.newest import find_latest_version
from airflow_delta.engine.log.newest_segment import load_newest_segment
from airflow_delta.engine.log.proposed import is_any_proposed
from airflow_delta.engine.model.actions import CommitInfo
from airflow_delta.engine.snapshot.commit_check import check_logged_commit
from airflow_delta.engine.snapshot.opening import open_earlier, open_newest, open_snapshot
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.snapshot.timestamps import Timestamp, epoch_ms
from airflow_delta.engine.table.base import TableBase

if TYPE_CHECKING:
    from airflow_delta.engine.changes.bounds import Bound
    from airflow_delta.engine.changes.plan import ChangePlan

__all__ = ["ReadMethods"]


class ReadMethods(TableBase):
    """Open versions of a table, and ask about them."""

    def exists(self) -> bool:
        """Whether there is a Delta table at the location."""
        try:
            self.latest_version()
        except TableNotFoundError:
            return False
        return True

    def latest_version(self, known: int | None = None, *, confirm: bool = False) -> int:
        """The newest version; of a managed table the newest that its commit owner has ratified.

        Args:
            known: a version that exists or has existed. Only newer commits are searched, which takes one
                request if there are none.
            confirm: if there are none, make sure by one more request that ``known`` still exists. If a
                cleanup has deleted the commits after ``known``, only this finds the newer ones. A caller
                that polls confirms now and then, and after a pause as long as logs are kept.

        Raises:
            TableNotFoundError: there is no table.
        """
        logged = find_latest_version(self.storage, known, confirm=confirm)
        if not is_any_proposed(self.storage, after=logged):
            return logged
        return max(logged, open_newest(self.storage, owners=self._owners).version)

    def check_commit(self, version: int) -> None:
        """Check, with one request as a rule, that the commit of the newest version can be read.

        `latest_version` goes by file names alone; a caller that waits for a version checks its commit with
        this method. See ``snapshot/commit_check.py`` for what is checked. `snapshot` reads the rest of the
        log as well.

        Args:
            version: the newest version.

        Raises:
            VersionNotFoundError: the log has no such version.
            CorruptLogError: its commit breaks the protocol.
            UnsupportedFeatureError: its protocol demands a feature that the engine lacks.
        """
        if not check_logged_commit(self.storage, version, table=self.storage.root):
            # A cleanup deleted the commit and a checkpoint has it, or the commit owner has it.
            self._open(version)

    def snapshot(
        self,
        version: int | None = None,
        timestamp: Timestamp | None = None,
        *,
        can_return_latest: bool = False,
    ) -> Snapshot:
        """The table at a version, at a time, or now.

        Args:
            version: the version.
            timestamp: an aware datetime, an ISO-8601 text with an offset, or epoch milliseconds: the
                newest version that was there then.
            can_return_latest: a ``timestamp`` after the newest commit means the newest version, and is no
                error. The result may change until that time has come.

        Raises:
            InvalidArgumentError: both are given, or one makes no sense.
            TableNotFoundError: there is no table.
            VersionNotFoundError: the log can't rebuild the version.
            TimestampOutOfRangeError: the time is before the earliest version that can be read, or after the
                newest commit.
            CorruptLogError: a file of the log breaks the protocol.
            UnsupportedFeatureError: reading the table needs a feature that the engine lacks.
        """
        if version is not None and timestamp is not None:
            raise InvalidArgumentError("give a version or a timestamp, not both", table=self._uri)
        # Opening needs protocol and metadata only. But a broken commit must be an error now, not when the
        # files of the snapshot are read later.
        if version is None and timestamp is None:
            newest = open_newest(self.storage, owners=self._owners, parsed=True)
            return newest.read_through(self.file_access)
        snapshot = (
            self._open(version)
            if timestamp is None
            else self._at(timestamp, can_return_latest=can_return_latest)
        )
        snapshot.state.parse_commits()
        return snapshot.read_through(self.file_access)

    def version_at(self, timestamp: Timestamp, *, can_return_latest: bool = False) -> int:
        """The newest version that was there at a time; see `snapshot`."""
        milliseconds = epoch_ms(timestamp, table=self._uri)
        timeline = self._open().timeline
        return timeline.version_at(milliseconds, can_return_latest=can_return_latest)

    def history(self, limit: int | None = None) -> list[CommitInfo]:
        """The ``commitInfo`` of the commits, newest first.

        A commit's time is its in-commit timestamp, or else the modification time of its file, adjusted so
        that times ascend from commit to commit. With a limit, only the newest commits are read. Where the
        times of files count, the 100 commits before them are looked at too, so that the times are the same
        as those of `version_at` and `Snapshot.timestamp`, unless an even older file has a later time.

        Args:
            limit: the maximum number of commits; None for all whose files exist.

        Raises:
            InvalidArgumentError: the limit is no number of commits.
            TableNotFoundError: there is no table.
            CorruptLogError: a commit is empty or can't be parsed, or one is missing.
        """
        if limit is None:
            return self._open().timeline.history()
        _check_limit(limit, table=self._uri)
        newest = open_newest(self.storage, owners=self._owners, find=load_newest_segment)
        return newest.timeline.history(limit)

    def changes(self, start: Timestamp, end: Timestamp | None = None) -> ChangePlan:
        """The plan of what changed from one version to another, both included.

        Args:
            start: the first version, as an int; or an aware datetime or an ISO-8601 text with an offset,
                for the first version at or after that time.
            end: the last version, likewise, or the last one at or before a time; None for the newest.

        Raises:
            InvalidArgumentError: the range ends before it starts, or an end makes no sense.
            VersionNotFoundError: a version is beyond the newest.
            TimestampOutOfRangeError: no version belongs to a time.
            ChangesNotAvailableError: the changes weren't recorded, were deleted, or the schema changed
                in between.
        """
        from airflow_delta.engine.changes.plan import plan_changes

        first, last = self._bound(start), None if end is None else self._bound(end)
        return plan_changes(self.snapshot(), first, last)

    def _open(self, version: int | None = None) -> Snapshot:
        """A snapshot whose file actions aren't parsed yet: for questions about the log."""
        return open_snapshot(self.storage, version, owners=self._owners)

    def _at(self, timestamp: Timestamp, *, can_return_latest: bool) -> Snapshot:
        milliseconds = epoch_ms(timestamp, table=self._uri)
        newest = self._open()
        version = newest.timeline.version_at(milliseconds, can_return_latest=can_return_latest)
        return open_earlier(newest, version)

    def _bound(self, end: Timestamp) -> Bound:
        from airflow_delta.engine.changes.bounds import Moment

        return end if isinstance(end, int) else Moment(epoch_ms(end, table=self._uri))


def _check_limit(limit: object, *, table: str) -> None:
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 0:
        raise InvalidArgumentError(
            "the limit of a history is a number of commits: expected an int from 0 on, or None for "
            f"all, found {type(limit).__name__} {limit!r}",
            table=table,
        )
