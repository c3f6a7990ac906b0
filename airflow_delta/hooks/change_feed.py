"""Change feeds for tasks: find the new versions, and have Spark append their changes."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow_delta.hooks.commit_mark import read_commit_mark
from airflow_delta.hooks.delta import DeltaHook
from airflow_delta.version_compat import AirflowFailException

if TYPE_CHECKING:
    from airflow_delta.change_feeds.request import FeedRequest
    from airflow_delta.engine import DeltaTable, Snapshot
    from airflow_delta.engine.changes.plan import ChangePlan
    from airflow_delta.hooks.spark.job import SparkJobHook

__all__ = ["ChangeFeed", "rollback_error"]

_JOB = "change_feed"


def rollback_error(table_uri: str, version: int, reason: str) -> AirflowFailException:
    """Create the error for a table that was restored from a backup older than the last processed version.

    Args:
        table_uri: the table.
        version: the last processed version.
        reason: the evidence, see `ChangeFeed.rollback_evidence`.
    """
    return AirflowFailException(
        f"the changes of {table_uri} were processed up to version {version}, but {reason}: it was put back "
        "to an earlier state, for example from a backup. Versions that were processed have been, or will "
        f"be, committed again with other changes. To skip those changes, give start_version {version + 1}; "
        "to process them, give the first version with other changes as start_version of a task with "
        "another task_id, and with another target if there is one"
    )


class ChangeFeed:
    """The changes of a table, and the target to which they are appended.

    Args:
        hook: gives access to the table and the target.
        table_uri: the table.
        target_uri: the target; None: the changes aren't appended.
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
        """Whether the changes are appended to a target."""
        return bool(self._target_uri)

    @property
    def locations(self) -> tuple[str, str | None]:
        """The locations of table and target, in a form that is equal for different spellings.

        Raises:
            DeltaError: a location is invalid.
        """
        target = self._target.storage.canonical_location if self._target_uri else None
        return self._table.storage.canonical_location, target

    def is_same_table(self, table_id: str, version: int) -> bool | None:
        """Whether the table is the one that had this id at a version; None if that version is gone.

        A table that is replaced gets another id, and its log goes on. A table that is deleted and created
        again at the same location has another log.

        Raises:
            DeltaError: the table can't be read.
        """
        from airflow_delta.change_feeds.table_identity import is_same_log

        return is_same_log(self._table, table_id, version)

    def commit_mark(self, version: int) -> str | None:
        """A value that identifies the commit of a version; None if it has none.

        Raises:
            DeltaError: the store failed.
        """
        return read_commit_mark(self._newest, version)

    def rollback_evidence(self, table_id: str, version: int, mark: str | None) -> str | None:
        """Look for evidence that the table was restored from a backup older than a version.

        Later versions then get committed again, with other changes. (A ``RESTORE`` commits a new
        version, and doesn't count.)

        Args:
            table_id: the id that the table had at the version.
            version: the version.
            mark: the `commit_mark` that the version had.

        Returns:
            The evidence in words; None if there is none.

        Raises:
            DeltaError: the table can't be read.
        """
        newest = self._newest
        if newest.version < version:
            # With another id it may be a table that was created again, see `is_same_table`.
            return self._missing_version(version) if newest.metadata.id == table_id else None
        found = None if mark is None else self.commit_mark(version)
        if found in {None, mark}:
            return None
        return f"version {version} is another commit now, {found} and not {mark}"

    def new_range(
        self, *, after: int | None, start: int | None = None, end: int | None = None
    ) -> tuple[int, int] | None:
        """Find the first and the last version whose changes are to be processed; None if none is new.

        Args:
            after: the last processed version that the caller knows. The target's own record counts as well.
            start: the first version that may be processed.
            end: the last version that may be processed.

        Raises:
            InvalidArgumentError: nothing can be appended to the target.
            AirflowFailException: the target has changes of versions that the table doesn't have, and
                ``start`` isn't after them.
            DeltaError: the table or the target can't be read.
        """
        last = -1 if self.last_appended is None else self.last_appended
        reason = self._missing_version(last) if start is None or start <= last else None
        if reason is not None:
            raise rollback_error(self._table_uri, last, reason)
        newest = self._newest.version if end is None else min(self._newest.version, end)
        candidates = [v + 1 for v in (after, self.last_appended) if v is not None]
        first = max([*candidates, start or 0])
        return (first, newest) if first <= newest else None

    @cached_property
    def last_appended(self) -> int | None:
        """The last version whose changes the target has; None if it has none, or there is no target.

        Raises:
            InvalidArgumentError: nothing can be appended to the target.
            DeltaError: the table or the target can't be read.
        """
        from airflow_delta.change_feeds.progress import check_source, target_progress

        if not self._target_uri:
            return None
        request = self._request(0, self._newest.version)
        progress = target_progress(request, self._target)
        check_source(request, progress, self._table)
        return progress.last

    def first_missing(self, start: int, end: int) -> int:
        """The first version of a range that the target lacks; ``start`` if it lacks none.

        Raises:
            InvalidArgumentError: nothing can be appended to the target.
            DeltaError: the target can't be read.
        """
        return next((last + 1 for last in self._contiguous_ends(start, end) if last < end), start)

    @property
    def is_gone(self) -> bool:
        """Whether the table doesn't exist.

        Raises:
            DeltaError: its location can't be read.
        """
        return not self._table.exists()

    def plan(self, start: int, end: int, *, unless_appended: bool = False) -> ChangePlan | None:
        """Plan how to read the changes of a range; this shows whether they can be read at all.

        Args:
            start: the first version.
            end: the last version.
            unless_appended: return None if the changes can't be read, for example after a cleanup, but the
                target has all of them.

        Raises:
            DeltaError: they can't be read; see `DeltaTable.changes`.
        """
        from airflow_delta.engine.errors import DeltaError

        try:
            return self._table.changes(start, end)
        except DeltaError:
            if unless_appended and self._target_has(start, end):
                return None
            raise

    def earlier(self, start: int, end: int) -> dict[str, Any] | None:
        """Report a range that the target has completely; None if it must be appended.

        Spark isn't needed for this. ``counts`` are None if they would have to be counted in the target.

        Raises:
            DeltaError: table or target can't be read.
            InvalidArgumentError: the range can't be appended to the target.
        """
        from airflow_delta.change_feeds.earlier_append import earlier_append
        from airflow_delta.change_feeds.progress import load_progress

        request = self._request(start, end)
        if load_progress(request, self._table, self._target) is not None:
            return None
        found = earlier_append(request, self._target)
        return {
            "appended": False,
            "counts": found.counts,
            "committed_version": found.committed_version,
        }

    def submit(self, job: SparkJobHook, start: int, end: int) -> dict[str, Any]:
        """Have Spark append the changes of a range to the target.

        The versions of a managed table are backfilled first, so that the job finds them wherever its driver
        runs. If table or target is managed, the job gets the URL of the commit owner. Call `earlier` first:
        Spark takes seconds to start.

        Raises:
            DeltaError: the versions can't be backfilled, or the owner can't be reached.
            AirflowException: the job failed.
        """
        hook, target = self._hook, str(self._target_uri)
        hook.backfill_missing(self._table_uri, end)
        owner_url = hook.owner_url_for_job(self._table_uri) or hook.owner_url_for_job(target)
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

    def _missing_version(self, version: int) -> str | None:
        """Say in words that the table doesn't have a version; None if it does."""
        if self._newest.version >= version:
            return None
        # Without its owner a managed table is read up to the backfilled version only, so ask the owner.
        newest = self._table.commit_status().ratified_version
        return None if newest >= version else f"its newest version is {newest} now"

    def _target_has(self, start: int, end: int) -> bool:
        """Whether the target has all changes of a range, according to its record."""
        return any(end <= last for last in self._contiguous_ends(start, end))

    def _contiguous_ends(self, start: int, end: int) -> list[int]:
        """The last version of the target's contiguous range that contains ``start``, if any."""
        from airflow_delta.change_feeds.progress import target_progress

        if not self._target_uri:
            return []
        progress = target_progress(self._request(start, end), self._target)
        return [last for first, last in progress.ranges if first <= start <= last]

    def _request(self, start: int, end: int) -> FeedRequest:
        from airflow_delta.change_feeds.request import FeedRequest

        return FeedRequest(self._table_uri, start, end, str(self._target_uri), self._format)

    @cached_property
    def _newest(self) -> Snapshot:
        """The newest version at the first access."""
        return self._table.snapshot()

    @cached_property
    def _table(self) -> DeltaTable:
        return self._hook.table(self._table_uri)

    @cached_property
    def _target(self) -> DeltaTable:
        return self._hook.table(str(self._target_uri))
