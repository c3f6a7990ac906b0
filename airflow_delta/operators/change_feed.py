"""Process what is new in a Delta table since the run before, once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_delta.hooks.change_feed import ChangeFeed, check_feed_format
from airflow_delta.operators.run_identity import run_identity
from airflow_delta.operators.table_task import TableTask
from airflow_delta.operators.template_values import as_text, as_version
from airflow_delta.version_compat import AirflowSkipException, Context, task_state

__all__ = ["ChangeFeedOperator"]

_STATE_KEY = "range"
_NOTHING: Mapping[str, Any] = {
    "target_version": None,
    "appended": False,
    "num_changes": 0,
    "counts": {},
}


class ChangeFeedOperator(TableTask):
    """Take the versions of a table that are new since the last run, and append their changes to a target.

    The table must have ``delta.enableChangeDataFeed``. A run goes on after the last version that was
    processed, up to the newest; where nothing is new the task is skipped. What was processed is known
    from the target, which says so itself, and from the XCom of the task's earlier runs: without a
    target from that alone. ::

        feed = ChangeFeedOperator(
            task_id="feed", table_uri="s3://lake/sales", target_uri="s3://lake/sales_changes"
        )

    Without a target the task only says which versions are new, for tasks that read their changes by
    themselves (``airflow_delta.spark.read_changes``).

    The first try of a run decides which versions they are, however many commits follow: retries take
    the same, and so does the task when it is cleared. What is at the target already isn't appended
    again. Let only one run be active at a time (``max_active_runs=1``).

    Returns a dictionary with ``table_uri``, ``table_id``, ``version`` (the same as ``end_version``),
    ``start_version``, ``end_version`` and ``num_files`` (that tell the changes), and with a target also
    ``target_uri``, ``target_version`` (of a target in Delta format, else None), ``appended`` (False where
    it was there already), ``num_changes`` and ``counts``, by the kind of change (both None where the
    target doesn't tell).

    :param table_uri: the table's path or URI. (templated)
    :param target_uri: where to append the changes to; None: nowhere. (templated)
    :param target_format: ``delta``: a Delta table, which is created where there is none; or
        ``parquet``: a directory with a directory of files for each range. (templated)
    :param start_version: the version to begin with; None: version 0. A run that has processed later
        ones goes on after them. (templated)
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

    def __init__(
        self,
        *,
        target_uri: str | None = None,
        target_format: str = "delta",
        start_version: int | str | None = None,
        end_version: int | str | None = None,
        spark_conn_id: str = "spark_default",
        spark_conf: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.target_uri = target_uri
        self.target_format = target_format
        self.start_version = start_version
        self.end_version = end_version
        self.spark_conn_id = spark_conn_id
        self.spark_conf = spark_conf
        self._job: Any = None

    def execute(self, context: Context) -> dict[str, Any]:
        """Append the changes of the new versions.

        :raises ValueError: a rendered version isn't a number.
        :raises AirflowSkipException: nothing is new.
        :raises ChangesNotAvailableError: the changes can't be told in one go. Where ``end_version`` helps,
            the error says so.
        :raises DeltaError: the table or the target can't be read.
        :raises AirflowFailException: the target's format is unknown, or the target must not be appended
            to; see `airflow_delta.spark.changes_rules`.
        :raises AirflowException: the job failed.
        """
        target = as_text(self.target_uri)
        if target:
            check_feed_format(self.target_format)
        feed = ChangeFeed(
            self.hook(),
            table_uri=self.table_uri,
            target_uri=target,
            target_format=self.target_format,
        )
        start, end = self._range(feed, context)
        plan = feed.plan(start, end)
        found = {
            "table_uri": self.table_uri,
            "table_id": feed.table_id,
            "version": end,
            "start_version": start,
            "end_version": end,
            "num_files": plan.files.num_rows,
        }
        self.log.info("new versions of %s: %s to %s", self.table_uri, start, end)
        if not target:
            return found
        # Versions that changed no row need no Spark. The next run goes on after them by this XCom.
        told = self._append(feed, (start, end), context) if plan.files.num_rows else _NOTHING
        self.log.info("changes: %s", told)
        return {**found, "target_uri": target, **told}

    def on_kill(self) -> None:
        """End the job."""
        if self._job is not None:
            self._job.on_kill()

    def _append(
        self, feed: ChangeFeed, versions: tuple[int, int], context: Context
    ) -> dict[str, Any]:
        # Imported here: DAG files are parsed often, and the Spark provider's hook imports a lot.
        from airflow_delta.hooks.spark_job import SparkJobHook

        name, _ = run_identity(context)
        self._job = SparkJobHook(self.spark_conn_id, conf=self.spark_conf, name=name)
        report = feed.submit(self._job, *versions)
        counts = report["counts"]
        return {
            "target_version": report.get("committed_version"),
            "appended": report["appended"],
            "num_changes": None if counts is None else sum(counts.values()),
            "counts": counts,
        }

    def _range(self, feed: ChangeFeed, context: Context) -> tuple[int, int]:
        state = task_state(context)
        asked = {
            "table_uri": self.table_uri,
            # A table that was deleted and made anew has versions of its own.
            "table_id": feed.table_id,
            "target_uri": as_text(self.target_uri),
        }
        earlier = state.get(_STATE_KEY) if state is not None else None
        if earlier and _is_about(earlier, asked):
            return earlier["start"], earlier["end"]
        found = feed.new_range(
            after=self._processed(context, asked),
            start=as_version(self.start_version, name="start_version"),
            end=as_version(self.end_version, name="end_version"),
        )
        if found is None:
            raise AirflowSkipException(f"nothing is new in {self.table_uri}")
        if state is not None:
            state.set(_STATE_KEY, {**asked, "start": found[0], "end": found[1]})
        return found

    def _processed(self, context: Context, asked: Mapping[str, Any]) -> int | None:
        """The last version that an earlier run of the task has processed; None where it has none."""
        instance = context["ti"]
        index = instance.map_index
        earlier = instance.xcom_pull(
            task_ids=self.task_id,
            # Without it, all of several earlier values come.
            map_indexes=-1 if index is None else index,
            include_prior_dates=True,
        )
        return earlier["end_version"] if earlier and _is_about(earlier, asked) else None


def _is_about(facts: Mapping[str, Any], asked: Mapping[str, Any]) -> bool:
    """Whether what was kept is of the same table and target."""
    return all(facts.get(name) == value for name, value in asked.items())
