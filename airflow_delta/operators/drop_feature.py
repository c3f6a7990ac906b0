"""Drop a table feature of a Delta table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_delta.hooks.drop_feature import drop_feature
from airflow_delta.hooks.failures import with_failures_by_policy
from airflow_delta.hooks.maintenance import log_report
from airflow_delta.hooks.rewrite_engine import rewrite_with_spark
from airflow_delta.operators.run_identity import run_identity
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


class DropFeatureOperator(TableTask):
    """Take a feature out of a table's protocol, so that engines without it can use the table.

    As much is done as can be done now, and ``status`` tells how far it has come:

    ``dropped``
        The protocol is without the feature.
    ``waiting``
        History must expire first, because ``truncate_history`` is set: the task has succeeded, and
        ``ready_at`` says when to come back. `TruncationSensor` waits for that, and another task of this
        operator, with ``must_drop``, finishes.
    ``needs rewrite``
        Only with ``spark_conn_id=None``: the feature is in data files, and nobody writes them anew.
    ``planned``
        It was a dry run.

    A retry goes on where the try before was broken off, and so does the next run.

    Returns a dictionary with ``table_uri``, ``version``, ``feature``, ``way``, ``status``, ``reason``,
    ``steps`` that are left, ``ready_at`` and more: see the reference. The task's log has the same for
    people.

    :param table_uri: the table's path or URI. (templated)
    :param feature: the feature's name, in any case, such as ``deletionVectors``. (templated)
    :param truncate_history: have the versions with the feature expire and be cleaned up, instead of hiding
        them behind protected checkpoints: for engines that don't know ``checkpointProtection``. (templated)
    :param must_drop: fail the task, which may be tried again, unless the feature is dropped at its end.
    :param dry_run: only tell what would be done. (templated)
    :param spark_conn_id: the Spark connection of the job that writes data files anew, where the feature is
        in these: deletion vectors, column mapping, type widening. None: there is no Spark. (templated)
    :param spark_conf: Spark properties of the job. (templated)
    :param delta_conn_id: the connection with the credentials of the table's store; None: the
        default connection of the URI's scheme. (templated)
    :param commit_owner_conn_id: the connection of the SQL commit owner, for managed tables; None:
        ``delta_commit_owner_default`` where that exists, else what the environment says. (templated)
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
        # Not without the underscore: every operator of Airflow has a method of that name.
        self._dry_run = dry_run
        self.spark_conn_id = spark_conn_id
        self.spark_conf = spark_conf
        self._job: Any = None
        self.check_arguments()

    @with_failures_by_policy
    def execute(self, context: Context) -> dict[str, Any]:
        """Drop the feature, as far as that can be done now.

        :raises TableFailure: there is no such feature, the table doesn't support it, or it can't be
            dropped, or not that way; other features require it, or the table uses it in a way that people
            have to decide about; or the table can't be read. See `airflow_delta.hooks.failures`.
        :raises DeltaError: the store failed, or another writer was faster.
        :raises AirflowException: the Spark job failed; or the feature isn't dropped, and ``must_drop`` is
            set.
        """
        dry_run = self.argument("dry_run")
        by_spark = self.argument("spark_conn_id") is not None
        report = drop_feature(
            self.hook(),
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

    def on_kill(self) -> None:
        """End the Spark job."""
        if self._job is not None:
            self._job.on_kill()

    def _rewrite(self, feature: str, context: Context) -> None:
        # Imported here: DAG files are parsed often, and the Spark provider's hook imports a lot.
        from airflow_delta.hooks.spark.job import SparkJobHook

        name, _ = run_identity(context)
        conf = self.argument("spark_conf")
        self._job = SparkJobHook(str(self.spark_conn_id), conf=conf, name=name)
        done = rewrite_with_spark(self.hook(), self._job, self.table_uri, feature=feature)
        self.log.info("%s: written anew by Spark, without %s: %s", self.table_uri, feature, done)
