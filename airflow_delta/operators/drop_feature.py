"""Drop a table feature of a Delta table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_delta.hooks.failures import with_failures_by_policy
from airflow_delta.hooks.reports import log_report
from airflow_delta.hooks.spark.maintenance import SparkMaintenance
from airflow_delta.operators.lineage.rules import alters_table_if
from airflow_delta.operators.lineage.task import with_lineage
from airflow_delta.operators.spark_task import JobTask
from airflow_delta.operators.table_commits import maintenance_commits, with_table_commit
from airflow_delta.operators.table_task import TableTask, with_readers
from airflow_delta.operators.template_values import (
    as_required_text,
    as_spark_conf,
    as_text,
    flag,
    switch,
)
from airflow_delta.version_compat import AirflowException, Context

__all__ = ["DropFeatureOperator"]

_COMMITS = maintenance_commits("DROP FEATURE", metrics=("num_commits",))


class DropFeatureOperator(JobTask):
    """Remove a feature from a table's protocol, so that engines without it can use the table.

    The task does as much as possible now; ``status`` is the result:

    ``dropped``
        The protocol doesn't have the feature any more.
    ``waiting``
        ``truncate_history`` is set, and history must expire first. The task succeeds; ``ready_at`` is
        the expected time. `TruncationSensor` waits for it, and another task of this operator, with
        ``must_drop``, finishes the drop.
    ``needs rewrite``
        Data files use the feature and must be rewritten, but ``spark_conn_id`` is None.
    ``planned``
        It was a dry run.

    A retry continues where the previous try stopped, and so does the next run.

    Returns a dictionary with ``table_uri``, ``version``, ``feature``, ``way``, ``status``, ``reason``,
    the remaining ``steps``, ``ready_at`` and more: see the reference. The task's log has the same
    facts.

    :param table_uri: the table's path or URI. (templated)
    :param feature: the feature's name, in any case, such as ``deletionVectors``. (templated)
    :param truncate_history: let the versions with the feature expire and clean them up, instead of hiding
        them behind protected checkpoints; for engines without ``checkpointProtection``. (templated)
    :param must_drop: fail the task, with retries, unless the feature is dropped at the end.
    :param dry_run: only report what would be done. (templated)
    :param spark_conn_id: the Spark connection of the job that rewrites data files if they use the feature:
        deletion vectors, column mapping, type widening. None: don't use Spark. (templated)
    :param spark_conf: Spark properties of the job. (templated)
    :param delta_conn_id: the connection with the credentials of the table's store; None: the
        default connection of the URI's scheme. (templated)
    :param commit_owner_conn_id: the connection of the SQL commit owner, for managed tables; None:
        ``delta_commit_owner_default`` if it exists, else the environment variable
        ``AIRFLOW_DELTA_COMMIT_OWNER_URL``. (templated)
    """

    template_fields: Sequence[str] = (
        *TableTask.template_fields,
        "feature",
        "truncate_history",
        "_dry_run",
        "spark_conn_id",
        "spark_conf",
    )
    arguments = with_readers(
        TableTask,
        feature=as_required_text,
        truncate_history=flag(default=False),
        must_drop=switch(default=False),
        dry_run=flag(default=False),
        spark_conn_id=as_text,
        spark_conf=as_spark_conf,
    )

    datasets = alters_table_if("last_version")

    def __init__(
        self,
        *,
        feature: str,
        truncate_history: bool | str = False,
        must_drop: bool = False,
        dry_run: bool | str = False,
        spark_conn_id: str | None = "spark_default",
        spark_conf: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.feature = feature
        self.truncate_history = truncate_history
        self.must_drop = must_drop
        # With an underscore, because every operator of Airflow has a method of that name.
        self._dry_run = dry_run
        self.spark_conn_id = spark_conn_id
        self.spark_conf = spark_conf
        self.check_arguments()

    @with_lineage
    @with_table_commit(_COMMITS)
    @with_failures_by_policy
    def execute(self, context: Context) -> dict[str, Any]:
        """Drop the feature, as far as that is possible now.

        :raises TableFailure: there is no such feature, the table doesn't support it, or it can't be
            dropped (in this way); other features require it, or somebody must first decide about how the
            table uses it; or the table can't be read. See `airflow_delta.hooks.failures`.
        :raises DeltaError: the store failed, or another writer was faster.
        :raises AirflowException: the Spark job failed; or the feature isn't dropped, and ``must_drop`` is
            set.
        """
        dry_run = self.argument("dry_run")
        by_spark = self.argument("spark_conn_id") is not None
        report = self.hook().drop_feature(
            self.table_uri,
            self.argument("feature"),
            truncate_history=self.argument("truncate_history"),
            rewrite=(lambda feature: self._rewrite(feature, context)) if by_spark else None,
            dry_run=dry_run,
        )
        log_report(self.log, f"drop of {report['feature']}", report)
        if self.argument("must_drop") and not dry_run and report["status"] != "dropped":
            raise AirflowException(f"{self.table_uri}: {report['reason']}")
        return report

    def _rewrite(self, feature: str, context: Context) -> None:
        job = self.begin_job(context)
        done = SparkMaintenance(self.hook(), job).rewrite(self.table_uri, feature=feature)
        self.log.info("%s: rewritten by Spark, without %s: %s", self.table_uri, feature, done)
