"""Change feeds, as a task sees to them: which versions are new, and who appends their changes."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow_delta.hooks.delta import DeltaHook
from airflow_delta.hooks.managed_commits import backfill_missing, owner_url_for_job
from airflow_delta.version_compat import AirflowFailException

if TYPE_CHECKING:
    from airflow_delta.engine import DeltaTable, Snapshot
    from airflow_delta.engine.changes.plan import ChangePlan
    from airflow_delta.hooks.spark_job import SparkJobHook

__all__ = ["ChangeFeed", "check_feed_format"]

_JOB = "change_feed"


def check_feed_format(name: str) -> None:
    """Check that there are targets of a format.

    Raises:
        AirflowFailException: there are none, however often the task is tried.
    """
    from airflow_delta.engine.errors import InvalidArgumentError
    from airflow_delta.spark import changes_rules

    try:
        changes_rules.check_feed_format(name)
    except InvalidArgumentError as error:
        raise AirflowFailException(f"target_format: {error}") from error


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
        target = self._hook.table(self._target_uri).storage.place if self._target_uri else None
        return self._table.storage.place, target

    def goes_on_after(self, table_id: str, version: int) -> bool | None:
        """Whether the table is the one that had this id at a version; None where that version is gone.

        A table that is replaced gets another id, and its versions go on. One that is made anew at the
        same place has versions of its own.

        Raises:
            DeltaError: the table can't be read.
        """
        from airflow_delta.spark.table_identity import is_same_log

        return is_same_log(self._table, table_id, version)

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
            AirflowFailException: the target must not be appended to.
            DeltaError: the table or the target can't be read.
        """
        newest = self._newest.version if end is None else min(self._newest.version, end)
        candidates = [v + 1 for v in (after, self.told) if v is not None]
        first = max([*candidates, start or 0])
        return (first, newest) if first <= newest else None

    @cached_property
    def told(self) -> int | None:
        """The last version whose changes the target has; None where it has none, and without a target.

        Raises:
            AirflowFailException: the target must not be appended to.
            DeltaError: the table or the target can't be read.
        """
        from airflow_delta.engine.errors import InvalidArgumentError
        from airflow_delta.spark.changes_rules import FeedRequest
        from airflow_delta.spark.changes_told import check_source, told_by_target

        if not self._target_uri:
            return None
        newest = self._newest.version
        request = FeedRequest(self._table_uri, 0, newest, self._target_uri, self._format)
        try:
            told = told_by_target(request, self._hook.table(self._target_uri))
            check_source(request, told, self._table)
        except InvalidArgumentError as error:
            raise AirflowFailException(str(error)) from error
        return told.last

    def plan(self, start: int, end: int) -> ChangePlan:
        """What there is to read for a range, which shows before Spark starts that it can be told.

        Raises:
            DeltaError: it can't; see `DeltaTable.changes`.
        """
        return self._table.changes(start, end)

    def submit(self, job: SparkJobHook, start: int, end: int) -> dict[str, Any]:
        """Have Spark append the changes of a range to the target.

        The versions of a managed table are backfilled before, so that the job finds them wherever its
        driver runs. Where table or target is one, the job is told of the commit owner.

        Raises:
            DeltaError: the versions can't be backfilled, or the owner can't be asked.
            AirflowFailException: the target must not be appended to.
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
            },
            storage_options=hook.common_storage_options(self._table_uri, target),
            commit_owner_url=owner_url,
        )

    @cached_property
    def _newest(self) -> Snapshot:
        """The newest version when it was first asked for."""
        return self._table.snapshot()

    @cached_property
    def _table(self) -> DeltaTable:
        return self._hook.table(self._table_uri)
