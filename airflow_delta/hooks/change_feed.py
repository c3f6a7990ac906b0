"""Change feeds, as a task sees to them: which versions are new, and who appends their changes."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow_delta.hooks.delta import DeltaHook
from airflow_delta.hooks.managed_commits import backfill_missing, owner_url_for_job
from airflow_delta.version_compat import AirflowFailException

if TYPE_CHECKING:
    from airflow_delta.change_feeds.request import FeedRequest
    from airflow_delta.engine import DeltaTable, Snapshot
    from airflow_delta.engine.changes.plan import ChangePlan
    from airflow_delta.hooks.spark.job import SparkJobHook

__all__ = ["ChangeFeed", "put_back_error"]

_JOB = "change_feed"
_MARKS = ("txnId", "inCommitTimestamp", "timestamp")
# Fields of commitInfo. Not each writer has the first, few tables the second.


def put_back_error(table_uri: str, version: int, reason: str) -> AirflowFailException:
    """The error that says that a table was put back to a state before the last version that was told.

    Args:
        table_uri: the table.
        version: the version.
        reason: what shows it, see `ChangeFeed.put_back`.
    """
    return AirflowFailException(
        f"the changes of {table_uri} were told up to version {version}, but {reason}: it was put back to "
        "an earlier state, as from a backup, and versions that were told are, or will be, made anew with "
        f"other changes. To do without those, give start_version {version + 1}; to have them, begin with "
        "the first version that was made anew, as start_version of a task with another task_id, and with "
        "another target if there is one"
    )


class ChangeFeed:
    """The changes of a table, and the target where they are kept.

    Args:
        hook: reaches the table and the target.
        table_uri: the table.
        target_uri: where its changes go; None: nowhere.
        target_format: ``delta`` or ``parquet``.
    """

    def __init__(
        self,
        hook: DeltaHook,
        *,
        table_uri: str,
        target_uri: str | None = None,
        target_format: str = "delta",
    ) -> None:
        self._hook = hook
        self._table_uri = table_uri
        self._target_uri = target_uri
        self._format = target_format

    @property
    def has_target(self) -> bool:
        """Whether the changes are kept somewhere."""
        return bool(self._target_uri)

    @property
    def places(self) -> tuple[str, str | None]:
        """Where the table and the target are; the same places are equal however they are spelled.

        Raises:
            DeltaError: a location can't be understood.
        """
        target = self._target.storage.place if self._target_uri else None
        return self._table.storage.place, target

    def goes_on_after(self, table_id: str, version: int) -> bool | None:
        """Whether the table is the one that had this id at a version; None where that version is gone.

        A table that is replaced gets another id, and its versions go on. One that is made anew at the
        same place has versions of its own.

        Raises:
            DeltaError: the table can't be read.
        """
        from airflow_delta.change_feeds.table_identity import is_same_log

        return is_same_log(self._table, table_id, version)

    def commit_mark(self, version: int) -> str | None:
        """What tells the commit of a version from another one of that number; None where nothing does.

        It is what the commit says of itself: the time of its file is another one in each copy of the log.

        Raises:
            DeltaError: the store failed.
        """
        from airflow_delta.engine.errors import CorruptLogError, ObjectNotFoundError
        from airflow_delta.engine.log.commit_file import read_commit_info

        path = self._newest.segment.path_of(version)
        try:
            info = read_commit_info(self._table.storage, version, path=path) or {}
        except (ObjectNotFoundError, CorruptLogError):
            # Cleaned up, or damaged. What was told of it doesn't depend on it any more.
            return None
        marks = (f"{name} {info[name]}" for name in _MARKS if info.get(name) is not None)
        return next(marks, None)

    def put_back(self, table_id: str, version: int, mark: str | None) -> str | None:
        """What shows that the table was put back to an earlier state than a version; else None.

        As by a backup, or a copy, that was taken before. Its versions from some on are made anew then,
        with other changes. (A ``RESTORE`` is a version more.)

        Args:
            table_id: the id that the table had at the version.
            version: the version.
            mark: what its commit was known by; None where it had nothing.

        Raises:
            DeltaError: the table can't be read.
        """
        newest = self._newest
        if newest.version < version:
            # With another id it may be a table that was made anew, see `goes_on_after`.
            return self._lack_of(version) if newest.metadata.id == table_id else None
        found = None if mark is None else self.commit_mark(version)
        if found in {None, mark}:
            return None
        return f"version {version} is another commit now, {found} and not {mark}"

    def new_range(
        self, *, after: int | None, start: int | None = None, end: int | None = None
    ) -> tuple[int, int] | None:
        """The first and the last version whose changes are to be processed; None where none is new.

        Args:
            after: the last version that was processed, as far as the caller knows. What a target says
                itself counts as well.
            start: no version before this one.
            end: no version after this one.

        Raises:
            InvalidArgumentError: the target must not be appended to.
            AirflowFailException: the target has changes of versions that the table doesn't have, and no
                later ones are wanted.
            DeltaError: the table or the target can't be read.
        """
        told = -1 if self.told is None else self.told
        lack = self._lack_of(told) if start is None or start <= told else None
        if lack is not None:
            raise put_back_error(self._table_uri, told, lack)
        newest = self._newest.version if end is None else min(self._newest.version, end)
        candidates = [v + 1 for v in (after, self.told) if v is not None]
        first = max([*candidates, start or 0])
        return (first, newest) if first <= newest else None

    @cached_property
    def told(self) -> int | None:
        """The last version whose changes the target has; None where it has none, and without a target.

        Raises:
            InvalidArgumentError: the target must not be appended to.
            DeltaError: the table or the target can't be read.
        """
        from airflow_delta.change_feeds.progress import check_source, told_by_target

        if not self._target_uri:
            return None
        request = self._request(0, self._newest.version)
        told = told_by_target(request, self._target)
        check_source(request, told, self._table)
        return told.last

    def first_left(self, start: int, end: int) -> int:
        """Where a range begins without the versions at its begin that the target has, unless it has all.

        Raises:
            InvalidArgumentError: the target must not be appended to.
            DeltaError: the target can't be read.
        """
        return next((last + 1 for last in self._last_from(start, end) if last < end), start)

    @property
    def is_gone(self) -> bool:
        """Whether there is no table.

        Raises:
            DeltaError: its place can't be read.
        """
        return not self._table.exists()

    def plan(self, start: int, end: int, *, unless_told: bool = False) -> ChangePlan | None:
        """What there is to read for a range, which shows before Spark starts that it can be told.

        Args:
            start: the first version.
            end: the last version.
            unless_told: have None where the range can't be told, as after a cleanup, but the target has
                all of it.

        Raises:
            DeltaError: it can't be told; see `DeltaTable.changes`.
        """
        from airflow_delta.engine.errors import DeltaError

        try:
            return self._table.changes(start, end)
        except DeltaError:
            if unless_told and self._target_has(start, end):
                return None
            raise

    def earlier(self, start: int, end: int) -> dict[str, Any] | None:
        """The report of a range that the target has all of, for which no Spark is started; else None.

        A target that can't take the range is refused here as well. ``counts`` are None where the target
        would have to be read for them.

        Raises:
            DeltaError: table or target can't be read.
            InvalidArgumentError: the target must not be appended to.
        """
        from airflow_delta.change_feeds.earlier_append import earlier_append
        from airflow_delta.change_feeds.progress import told_before

        request = self._request(start, end)
        if told_before(request, self._table, self._target) is not None:
            return None
        found = earlier_append(request, self._target)
        return {
            "appended": False,
            "counts": found.counts,
            "committed_version": found.committed_version,
        }

    def submit(self, job: SparkJobHook, start: int, end: int) -> dict[str, Any]:
        """Have Spark append the changes of a range to the target.

        The versions of a managed table are backfilled before, so that the job finds them wherever its
        driver runs. Where table or target is one, the job is told of the commit owner. Call `earlier`
        before: Spark takes seconds to start.

        Raises:
            DeltaError: the versions can't be backfilled, or the owner can't be asked.
            AirflowException: the job failed.
        """
        hook, target = self._hook, str(self._target_uri)
        backfill_missing(hook, self._table_uri, end)
        owner_url = owner_url_for_job(hook, self._table_uri) or owner_url_for_job(hook, target)
        return job.run(
            _JOB,
            {
                "table_uri": self._table_uri,
                "start": start,
                "end": end,
                "target_uri": target,
                "format": self._format,
                **hook.allowed_parameter(self._table_uri),
            },
            storage_options=hook.common_storage_options(self._table_uri, target),
            commit_owner_url=owner_url,
        )

    def _lack_of(self, version: int) -> str | None:
        """What shows that the table doesn't have a version, or not any more; None where it has it."""
        if self._newest.version >= version:
            return None
        # Where the owner of a managed table can't be asked, it is read as far as it is backfilled.
        newest = self._table.commit_status().ratified_version
        return None if newest >= version else f"its newest version is {newest} now"

    def _target_has(self, start: int, end: int) -> bool:
        """Whether the target has all changes of a range, as far as it tells."""
        return any(end <= last for last in self._last_from(start, end))

    def _last_from(self, start: int, end: int) -> list[int]:
        """The last of the versions that the target has one after another from the first of a range on."""
        from airflow_delta.change_feeds.progress import told_by_target

        if not self._target_uri:
            return []
        told = told_by_target(self._request(start, end), self._target)
        return [last for first, last in told.ranges if first <= start <= last]

    def _request(self, start: int, end: int) -> FeedRequest:
        from airflow_delta.change_feeds.request import FeedRequest

        return FeedRequest(self._table_uri, start, end, str(self._target_uri), self._format)

    @cached_property
    def _newest(self) -> Snapshot:
        """The newest version when it was first asked for."""
        return self._table.snapshot()

    @cached_property
    def _table(self) -> DeltaTable:
        return self._hook.table(self._table_uri)

    @cached_property
    def _target(self) -> DeltaTable:
        return self._hook.table(str(self._target_uri))
