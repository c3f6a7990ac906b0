"""Process the changes of a Delta table since the last run, exactly once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_delta.hooks.change_feed import ChangeFeed
from airflow_delta.hooks.failures import ArgumentError, with_failures_by_policy
from airflow_delta.operators.arguments import is_certain
from airflow_delta.operators.feed_progress import TaskProgress, with_progress
from airflow_delta.operators.lineage.rules import appends_changes
from airflow_delta.operators.lineage.task import with_lineage
from airflow_delta.operators.spark_task import SPARK_CONNECTION, JobTask
from airflow_delta.operators.table_commits import target_commit, with_table_commit
from airflow_delta.operators.table_task import TableTask, with_readers
from airflow_delta.operators.template_values import (
    as_pinned_version,
    as_spark_conf,
    as_text,
    as_version,
    choice,
    location,
)
from airflow_delta.operators.triggering_event import requested_version
from airflow_delta.version_compat import AirflowSkipException, Context, task_state

__all__ = ["FORMATS", "ChangeFeedOperator"]

FORMATS = ("delta", "parquet")
"""The formats of targets."""

_STATE_KEY = "range"
_NOTHING: Mapping[str, Any] = {
    "target_version": None,
    "appended": False,
    "num_changes": 0,
    "counts": {},
}
_UNCOUNTED: Mapping[str, Any] = {**_NOTHING, "num_changes": None, "counts": None}


class ChangeFeedOperator(JobTask):
    """Append the changes of a table since the last run to a target, exactly once.

    The table must have ``delta.enableChangeDataFeed``. A run processes the versions after the last
    processed one, up to the newest; if there are none, the task is skipped. The target records
    which versions it has, and Airflow's state of the asset ``airflow_delta_change_feeds``, an inlet
    of each such task, records the last one. ::

        feed = ChangeFeedOperator(
            task_id="feed", table_uri="s3://lake/sales", target_uri="s3://lake/sales_changes"
        )

    Without a target the task only returns which versions are new, for tasks that read the changes
    themselves (``airflow_delta.spark.read_changes``).

    The first try of a run that finds readable changes decides on the versions, also for retries and
    the cleared task. Changes that the target has aren't appended again. If a run fails, the next run
    takes its versions. docs/how-to/read-changes.md has the exceptions. It is an error if the table
    was put back to an earlier state, for example from a backup.

    Let only one try be active at a time, with ``max_active_tis_per_dag=1``; ``max_active_runs=1`` doesn't
    count the runs of backfills. A table may occur only once among mapped tasks.

    Returns a dictionary with ``table_uri``, ``table_id``, ``version`` (the same as
    ``end_version``), ``start_version``, ``end_version`` and ``num_files`` (the files that contain
    the changes). With a target it also has ``target_uri``, ``target_version`` (None unless the
    target is a Delta table), ``appended`` (False if the target had the changes already, or
    no row changed), ``num_changes`` and ``counts`` by kind of change (see the reference for when
    both are None). Spark is started only if there is something to append.

    :param table_uri: the table's path or URI. (templated)
    :param target_uri: the target to which the changes are appended; None: none. (templated)
    :param target_format: ``delta``: a Delta table, which is created if it doesn't exist; or
        ``parquet``: a directory with a subdirectory of files for each range. (templated)
    :param start_version: the first version; None: version 0. If later versions were processed, a run
        continues after them. (templated)
    :param end_version: the last version to be processed; None: the newest; ``triggering_event``: that of
        the asset event that has started the DAG run, or the newest if none has. (templated)
    :param delta_conn_id: the connection with the credentials of the tables' store; None: the
        default connection of the URI's scheme. (templated)
    :param commit_owner_conn_id: the connection of the SQL commit owner; None:
        ``delta_commit_owner_default`` if it exists, else the owner that the environment configures.
        Versions that aren't backfilled are backfilled before they are read. (templated)
    :param spark_conn_id: the Spark connection; must exist if there is a target. (templated)
    :param spark_conf: Spark properties of the job. (templated)
    """

    template_fields: Sequence[str] = (
        *TableTask.template_fields,
        "target_uri",
        "target_format",
        "start_version",
        "end_version",
        "spark_conn_id",
        "spark_conf",
    )
    arguments = with_readers(
        TableTask,
        target_uri=location,
        target_format=choice(*FORMATS, default="delta"),
        start_version=as_version,
        end_version=as_pinned_version,
        spark_conn_id=as_text,
        spark_conf=as_spark_conf,
    )

    datasets = appends_changes

    def __init__(
        self,
        *,
        target_uri: str | None = None,
        target_format: str = "delta",
        start_version: int | str | None = None,
        end_version: int | str | None = None,
        spark_conn_id: str = SPARK_CONNECTION,
        spark_conf: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.inlets = with_progress(self.inlets)
        self.target_uri = target_uri
        self.target_format = target_format
        self.start_version = start_version
        self.end_version = end_version
        self.spark_conn_id = spark_conn_id
        self.spark_conf = spark_conf
        self.check_arguments()

    @classmethod
    def check_together(cls, known: Mapping[str, Any]) -> None:
        """Check that the range doesn't end before it starts.

        :raises ArgumentError: it does.
        """
        start, end = known.get("start_version"), known.get("end_version")
        if isinstance(start, int) and isinstance(end, int) and start > end:
            raise ArgumentError(f"start_version={start} is after end_version={end}")

    @classmethod
    def partial(cls, *, inlets: Any = None, **kwargs: Any) -> Any:
        """Create mapped tasks, with the asset of the progress as an inlet."""
        return super().partial(inlets=with_progress(inlets), **kwargs)

    @classmethod
    def spark_arguments(cls, given: Mapping[str, Any]) -> Sequence[str]:
        """``target_uri``: Spark is needed only with a target."""
        return ["target_uri"] if is_certain(given.get("target_uri")) else []

    @with_lineage
    @with_table_commit(target_commit("WRITE", metrics=("num_changes",)))
    @with_failures_by_policy
    def execute(self, context: Context) -> dict[str, Any]:
        """Append the changes of the new versions.

        :raises AirflowSkipException: nothing is new.
        :raises TableFailure: the changes can't be read together (the message says whether ``end_version``
            helps); they can't be appended to the target, see `airflow_delta.change_feeds.request`; or the
            table can't be read. See `airflow_delta.hooks.failures`.
        :raises AirflowFailException: the table was put back to an earlier state; or nobody knows what was
            processed, see `airflow_delta.operators.feed_progress`.
        :raises DeltaError: the store failed.
        :raises AirflowException: the job failed.
        """
        hook = self.hook()
        target = self.argument("target_uri")
        feed = ChangeFeed(
            hook,
            table_uri=self.table_uri,
            target_uri=target,
            target_format=self.argument("target_format"),
        )
        progress, taken = TaskProgress(context, feed), _TakenRange(self, feed, context)
        before = taken.versions(progress)
        start, end = before or self._new_range(feed, progress, context)
        plan = feed.plan(start, end, unless_appended=before is not None)
        if plan is None:
            self.log.info("%s has versions %s to %s, which are gone", target, start, end)
            return {**self._found(start, end, *taken.facts()), "target_uri": target, **_UNCOUNTED}
        table_id, num_files = plan.metadata.id, plan.files.num_rows
        # Only after planning: if the changes can't be read, the user may have to change the bounds.
        taken.record(start, end, table_id, num_files)
        found = self._found(start, end, table_id, num_files)
        self.log.info("new versions of %s: %s to %s", self.table_uri, start, end)
        # Versions that changed no row need no Spark. The recorded progress makes the next run skip them.
        appends = target and num_files
        if target:
            report = self._append(feed, (start, end), context) if appends else _NOTHING
            self.log.info("changes: %s", report)
            found = {**found, "target_uri": target, **report}
        taken.finish("begun")
        last_appended = end if appends else feed.last_appended
        progress.advance(self.table_uri, table_id, (start, end), last_appended=last_appended)
        taken.finish("done")
        return found

    def _found(self, start: int, end: int, table_id: str, num_files: int) -> dict[str, Any]:
        return {
            "table_uri": self.table_uri,
            "table_id": table_id,
            "version": end,
            "start_version": start,
            "end_version": end,
            "num_files": num_files,
        }

    def _append(
        self, feed: ChangeFeed, versions: tuple[int, int], context: Context
    ) -> dict[str, Any]:
        report = feed.earlier(*versions) or self._submit(feed, versions, context)
        counts = report["counts"]
        return {
            "target_version": report.get("committed_version"),
            "appended": report["appended"],
            "num_changes": None if counts is None else sum(counts.values()),
            "counts": counts,
        }

    def _submit(
        self, feed: ChangeFeed, versions: tuple[int, int], context: Context
    ) -> dict[str, Any]:
        job = self.begin_job(context)
        return feed.submit(job, *versions)

    def _new_range(
        self, feed: ChangeFeed, progress: TaskProgress, context: Context
    ) -> tuple[int, int]:
        start = self.argument("start_version")
        end = requested_version(context, self.table_uri, self.argument("end_version"))
        found = feed.new_range(after=progress.version(start=start), start=start, end=end)
        if found is None:
            raise AirflowSkipException(f"nothing is new in {self.table_uri}")
        return found


class _TakenRange:
    """The versions that a run has taken, recorded in the state of its task.

    Args:
        operator: the task.
        feed: its table and target.
        context: the context of the try.
    """

    def __init__(self, operator: ChangeFeedOperator, feed: ChangeFeed, context: Context) -> None:
        self._state = task_state(context)
        self._feed = feed
        self._is_recorded = False
        self._arguments = {
            # The key is stored in task states.
            "places": list(feed.locations),
            "start_version": operator.argument("start_version"),
            "end_version": operator.argument("end_version"),
        }

    def versions(self, progress: TaskProgress) -> tuple[int, int] | None:
        """The versions that an earlier try took; None if there was none, or the arguments have changed.

        Without a target, a failed run leaves its versions to the runs that were executed since.

        Raises:
            AirflowSkipException: another run has processed them.
        """
        recorded, feed = self._recorded(), self._feed
        if not recorded or any(
            recorded.get(name) != value for name, value in self._arguments.items()
        ):
            return None
        start, end = recorded["start"], recorded["end"]
        # Even if the table is gone, the target may have its changes.
        if not feed.is_gone:
            if self._is_outdated(recorded):
                return None
            if feed.has_target:
                # Another run, or a job whose task was killed, may have appended some in the meantime.
                start = feed.first_missing(start, end)
            elif not (recorded["state"] == "done" or progress.is_of_this_run()):
                start = self._first_unprocessed(recorded, progress)
        self._is_recorded = start == recorded["start"]
        return start, end

    def _first_unprocessed(self, recorded: Mapping[str, Any], progress: TaskProgress) -> int:
        """The first of the versions that no other run has processed."""
        start: int = recorded["start"]
        end, last = recorded["end"], progress.version(start=start)
        if last is None:
            return start
        if last < end:
            return max(start, last + 1)
        # This run was stopped while it recorded its progress; other runs may have continued after that.
        if recorded["state"] == "begun" and progress.began_after(end):
            return start
        raise AirflowSkipException(f"another run has processed the versions {start} to {end}")

    def _is_outdated(self, recorded: Mapping[str, Any]) -> bool:
        """Whether the versions have been committed again, or the target has lost earlier changes."""
        table_id, end, last = recorded["table_id"], recorded["end"], recorded["target_told"]
        return (
            self._feed.is_same_table(table_id, end) is False
            or self._feed.rollback_evidence(table_id, end, recorded["commit_mark"]) is not None
            or (
                last is not None
                and (self._feed.last_appended is None or self._feed.last_appended < last)
            )
        )

    def facts(self) -> tuple[str, int]:
        """The table's id at the last version, and the number of files, as the earlier try found them."""
        recorded = self._recorded()
        return recorded["table_id"], recorded["num_files"]

    def record(self, start: int, end: int, table_id: str, num_files: int) -> None:
        """Record the versions for later tries of this run."""
        if self._is_recorded:
            return  # The record may have a later state.
        found = {
            "start": start,
            "end": end,
            "table_id": table_id,
            "num_files": num_files,
            "commit_mark": self._feed.commit_mark(end),
            "target_told": self._feed.last_appended,
            "state": "taken",
        }
        self._set({**self._arguments, **found})

    def finish(self, state: str) -> None:
        """Record the state of the versions, so that a later try returns the same ones.

        Args:
            state: ``begun`` before the progress is recorded, by which other runs go: a later try
                returns the versions unless another run has processed them. ``done`` afterwards: a
                later try returns them in any case.
        """
        recorded = self._recorded()
        if recorded is not None and recorded["state"] != "done":
            self._set({**recorded, "state": state})

    def _recorded(self) -> Any:
        return None if self._state is None else self._state.get(_STATE_KEY)

    def _set(self, value: Mapping[str, Any]) -> None:
        if self._state is not None:
            self._state.set(_STATE_KEY, dict(value))
