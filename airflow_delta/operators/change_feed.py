"""Process what is new in a Delta table since the run before, once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_delta.hooks.change_feed import ChangeFeed
from airflow_delta.hooks.failures import ArgumentError, with_failures_by_policy
from airflow_delta.operators.arguments import is_certain
from airflow_delta.operators.feed_progress import FeedProgress, with_progress
from airflow_delta.operators.run_identity import run_identity
from airflow_delta.operators.table_task import TableTask, with_readers
from airflow_delta.operators.template_values import (
    as_spark_conf,
    as_text,
    as_version,
    choice,
    location,
)
from airflow_delta.version_compat import AirflowSkipException, Context, task_state

__all__ = ["FORMATS", "ChangeFeedOperator"]

FORMATS = ("delta", "parquet")
"""The formats of targets."""

_SPARK = "spark_default"
_STATE_KEY = "range"
_NOTHING: Mapping[str, Any] = {
    "target_version": None,
    "appended": False,
    "num_changes": 0,
    "counts": {},
}
_UNTOLD: Mapping[str, Any] = {**_NOTHING, "num_changes": None, "counts": None}


class ChangeFeedOperator(TableTask):
    """Take the versions of a table that are new since the last run, and append their changes to a target.

    The table must have ``delta.enableChangeDataFeed``. A run goes on after the last version that was
    processed, up to the newest; where nothing is new the task is skipped. What was processed is known
    from the target, which says so itself, and from the state that Airflow keeps of an asset: without a
    target from that alone. The asset is ``airflow_delta_change_feeds``, an inlet of each such task. ::

        feed = ChangeFeedOperator(
            task_id="feed", table_uri="s3://lake/sales", target_uri="s3://lake/sales_changes"
        )

    Without a target the task only says which versions are new, for tasks that read their changes by
    themselves (``airflow_delta.spark.read_changes``).

    The first try of a run that can tell the changes decides which versions they are, however many commits
    follow: retries take the same, and so does the task when it is cleared, unless ``start_version`` or
    ``end_version`` was changed, or another run has given the first of them to the target: then they take
    the rest. What is at the target already isn't appended again. The versions of a run that failed are
    taken by the next one, whatever its date, and the failed one has nothing left to do when it is cleared
    after that. A table that was put back to an earlier state, as from a backup, is an error.

    Let only one try be active at a time: with ``max_active_tis_per_dag=1``, because ``max_active_runs=1``
    doesn't count the runs of backfills. Name a table only once among mapped tasks.

    Returns a dictionary with ``table_uri``, ``table_id``, ``version`` (the same as ``end_version``),
    ``start_version``, ``end_version`` and ``num_files`` (that tell the changes), and with a target also
    ``target_uri``, ``target_version`` (of a target in Delta format, else None), ``appended`` (False where
    it was there already), ``num_changes`` and ``counts``, by the kind of change (both None where it was
    there already and the target doesn't say them: a Delta table doesn't).

    Spark is started only where there is something to append.

    :param table_uri: the table's path or URI. (templated)
    :param target_uri: where to append the changes to; None: nowhere. (templated)
    :param target_format: ``delta``: a Delta table, which is created where there is none; or
        ``parquet``: a directory with a directory of files for each range. (templated)
    :param start_version: the version to begin with; None: version 0. Where later ones were processed, a
        run goes on after them. (templated)
    :param end_version: go no farther than this version. (templated)
    :param delta_conn_id: the connection with the credentials of the tables' store; None: the
        default connection of the URI's scheme. (templated)
    :param commit_owner_conn_id: the connection of the SQL commit owner; None:
        ``delta_commit_owner_default`` where that exists, else what the environment says. (templated)
        Versions that aren't backfilled are backfilled before they are read.
    :param spark_conn_id: the Spark connection; must exist where there is a target. (templated)
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
        end_version=as_version,
        spark_conn_id=as_text,
        spark_conf=as_spark_conf,
    )

    def __init__(
        self,
        *,
        target_uri: str | None = None,
        target_format: str = "delta",
        start_version: int | str | None = None,
        end_version: int | str | None = None,
        spark_conn_id: str = _SPARK,
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
        self._job: Any = None
        self.check_arguments()

    @classmethod
    def check_together(cls, known: Mapping[str, Any]) -> None:
        """Check that the range has a beginning before its end.

        :raises ArgumentError: it hasn't.
        """
        start, end = known.get("start_version"), known.get("end_version")
        if start is not None and end is not None and start > end:
            raise ArgumentError(f"start_version={start} is after end_version={end}")

    @classmethod
    def partial(cls, *, inlets: Any = None, **kwargs: Any) -> Any:
        """As every operator's; mapped tasks have the asset of the progress as well."""
        return super().partial(inlets=with_progress(inlets), **kwargs)

    @classmethod
    def spark_arguments(cls, given: Mapping[str, Any]) -> Sequence[str]:
        """A target, to which Spark appends."""
        return ["target_uri"] if is_certain(given.get("target_uri")) else []

    @with_failures_by_policy
    def execute(self, context: Context) -> dict[str, Any]:
        """Append the changes of the new versions.

        :raises AirflowSkipException: nothing is new.
        :raises TableFailure: the changes can't be read in one go, and where ``end_version`` helps, the
            message says so; the target must not be appended to, see `airflow_delta.change_feeds.request`;
            or the table can't be read. See `airflow_delta.hooks.failures`.
        :raises AirflowFailException: the table was put back to an earlier state; or it isn't known what was
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
        progress, taken = FeedProgress(context, feed), _TakenRange(self, feed, context)
        before = taken.versions(progress)
        start, end = before or self._new_range(feed, progress)
        plan = feed.plan(start, end, unless_told=before is not None)
        if plan is None:
            self.log.info("%s has versions %s to %s, which are gone", target, start, end)
            return {**self._found(start, end, *taken.facts()), "target_uri": target, **_UNTOLD}
        table_id, num_files = plan.metadata.id, plan.files.num_rows
        # Not before: a range that can't be told may need other bounds.
        taken.keep(start, end, table_id, num_files)
        found = self._found(start, end, table_id, num_files)
        self.log.info("new versions of %s: %s to %s", self.table_uri, start, end)
        # Versions that changed no row need no Spark. The next run goes on after them by the progress.
        appends = target and num_files
        if target:
            told = self._append(feed, (start, end), context) if appends else _NOTHING
            self.log.info("changes: %s", told)
            found = {**found, "target_uri": target, **told}
        taken.finish("begun")
        told_until = end if appends else feed.told
        progress.advance(self.table_uri, table_id, (start, end), told=told_until)
        taken.finish("done")
        return found

    def on_kill(self) -> None:
        """End the job."""
        if self._job is not None:
            self._job.on_kill()

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
        # Imported here: DAG files are parsed often, and the Spark provider's hook imports a lot.
        from airflow_delta.hooks.spark.job import SparkJobHook

        name, _ = run_identity(context)
        connection = self.argument("spark_conn_id") or _SPARK
        self._job = SparkJobHook(connection, conf=self.argument("spark_conf"), name=name)
        return feed.submit(self._job, *versions)

    def _new_range(self, feed: ChangeFeed, progress: FeedProgress) -> tuple[int, int]:
        start, end = self.argument("start_version"), self.argument("end_version")
        found = feed.new_range(after=progress.version(start=start), start=start, end=end)
        if found is None:
            raise AirflowSkipException(f"nothing is new in {self.table_uri}")
        return found


class _TakenRange:
    """The versions that a run has taken, in the state of its task.

    Args:
        operator: the task.
        feed: its table and target.
        context: of the try.
    """

    def __init__(self, operator: ChangeFeedOperator, feed: ChangeFeed, context: Context) -> None:
        self._state = task_state(context)
        self._feed = feed
        self._is_kept = False
        self._asked = {
            "places": list(feed.places),
            "start_version": operator.argument("start_version"),
            "end_version": operator.argument("end_version"),
        }

    def versions(self, progress: FeedProgress) -> tuple[int, int] | None:
        """The versions that an earlier try has taken; None where none has, or something else is asked for.

        Without a target, a run that has failed leaves them to those that were executed since.

        Raises:
            AirflowSkipException: another run has told them.
        """
        kept, feed = self._kept(), self._feed
        if not kept or any(kept.get(name) != value for name, value in self._asked.items()):
            return None
        start, end = kept["start"], kept["end"]
        # A target may have what a table that is gone can't tell any more.
        if not feed.is_gone:
            if self._is_outdated(kept):
                return None
            if feed.has_target:
                # What another run, or a job whose task was killed, has told since is told.
                start = feed.first_left(start, end)
            elif not (kept["state"] == "done" or progress.is_of_this_run()):
                start = self._first_left(kept, progress)
        self._is_kept = start == kept["start"]
        return start, end

    def _first_left(self, kept: Mapping[str, Any], progress: FeedProgress) -> int:
        """The first of the versions that no other run has told."""
        start: int = kept["start"]
        end, told = kept["end"], progress.version(start=start)
        if told is None:
            return start
        if told < end:
            return max(start, told + 1)
        # This run was stopped while it said that it has told them, and the others may have gone by that.
        if kept["state"] == "begun" and progress.began_after(end):
            return start
        raise AirflowSkipException(f"another run has told the versions {start} to {end}")

    def _is_outdated(self, kept: Mapping[str, Any]) -> bool:
        """Whether the versions are others now, or have to wait for those that the target has lost."""
        table_id, end, told = kept["table_id"], kept["end"], kept["target_told"]
        return (
            self._feed.goes_on_after(table_id, end) is False
            or self._feed.put_back(table_id, end, kept["commit_mark"]) is not None
            or (told is not None and (self._feed.told is None or self._feed.told < told))
        )

    def facts(self) -> tuple[str, int]:
        """The table's id at the last of the versions, and the number of files, as they were found."""
        kept = self._kept()
        return kept["table_id"], kept["num_files"]

    def keep(self, start: int, end: int, table_id: str, num_files: int) -> None:
        """Have later tries of the run take these versions."""
        if self._is_kept:
            return  # It may say that they are told.
        found = {
            "start": start,
            "end": end,
            "table_id": table_id,
            "num_files": num_files,
            "commit_mark": self._feed.commit_mark(end),
            "target_told": self._feed.told,
            "state": "taken",
        }
        self._set({**self._asked, **found})

    def finish(self, state: str) -> None:
        """Have a try that follows tell the same versions once more.

        Args:
            state: ``begun`` before the progress says that they are told, which other runs go by: a try
                that follows tells them again unless another run has; or ``done`` afterwards: whatever
                other runs have told.
        """
        kept = self._kept()
        if kept is not None and kept["state"] != "done":
            self._set({**kept, "state": state})

    def _kept(self) -> Any:
        return None if self._state is None else self._state.get(_STATE_KEY)

    def _set(self, value: Mapping[str, Any]) -> None:
        if self._state is not None:
            self._state.set(_STATE_KEY, dict(value))
