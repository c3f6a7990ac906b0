"""Write a checkpoint of a Delta table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_delta.hooks.delta import DeltaHook
from airflow_delta.hooks.failures import with_failures_by_policy
from airflow_delta.hooks.reports import log_report
from airflow_delta.hooks.spark.maintenance import SparkMaintenance
from airflow_delta.operators.lineage.task import with_lineage
from airflow_delta.operators.spark_task import JobTask
from airflow_delta.operators.table_task import TableTask, with_readers
from airflow_delta.operators.template_values import (
    as_bytes,
    as_pinned_version,
    as_spark_conf,
    as_text,
    choice,
    switch,
)
from airflow_delta.operators.triggering_event import requested_version
from airflow_delta.version_compat import AirflowSkipException, Context

__all__ = ["CheckpointOperator"]

_ENGINES = ("auto", "local", "spark")


class CheckpointOperator(JobTask):
    """Write a checkpoint, from which readers open the table faster than from many commits.

    Returns a dictionary with ``table_uri``, ``version``, ``kind`` (``classic`` or ``v2``), ``path``,
    ``written``, ``reason``, ``files``, ``bytes``, ``rows``, ``sidecars_written``, ``sidecars_reused``,
    ``duration_ms`` and ``engine`` (``local`` or ``spark``). A retry is harmless: a complete checkpoint
    of the version is kept, and ``written`` is false.

    :param table_uri: the table's path or URI. (templated)
    :param version: the version of the checkpoint; None: the newest, or for a managed table the newest
        backfilled one; ``triggering_event``: that of the asset event that has started the DAG run, or the
        same as None if none has. (templated)
    :param delta_conn_id: the connection with the credentials of the table's store; None: the
        default connection of the URI's scheme. (templated)
    :param commit_owner_conn_id: the connection of the SQL commit owner, for managed tables; None:
        ``delta_commit_owner_default`` if it exists, else the environment variable
        ``AIRFLOW_DELTA_COMMIT_OWNER_URL``. (templated)
    :param policy: the kind of checkpoint, ``classic`` or ``v2``; None: the table's property
        ``delta.checkpointPolicy``. (templated)
    :param if_needed: skip the task if there are fewer than ``delta.checkpointInterval`` commits since
        the last checkpoint, and this checkpoint can be opened; it isn't read completely. Without
        ``if_needed``, an existing checkpoint of the version is read completely, and replaced if it is
        damaged.
    :param backfill_first: first have the commit owner of a managed table backfill missing versions, so
        that the newest version is that of the table. Other tables ignore it.
    :param engine: ``local`` writes it in the worker, in bounded memory. ``spark`` submits a PySpark
        job. ``auto`` uses Spark if ``spark_conn_id`` is given and the log to read has at least
        ``spark_threshold_bytes``. Both write the same state. (templated)
    :param spark_conn_id: the Spark connection; None: ``spark_default`` for ``engine="spark"``, and no Spark
        for ``auto``. (templated)
    :param spark_conf: Spark properties of the job. (templated)
    :param spark_threshold_bytes: for ``engine="auto"``, the bytes of the last checkpoint, without its
        sidecars, and of the commits since; None: 2 GiB.
    """

    template_fields: Sequence[str] = (
        *TableTask.template_fields,
        "version",
        "policy",
        "engine",
        "spark_conn_id",
        "spark_conf",
    )
    arguments = with_readers(
        TableTask,
        version=as_pinned_version,
        policy=choice("classic", "v2", default=None),
        if_needed=switch(default=False),
        backfill_first=switch(default=False),
        engine=choice(*_ENGINES, default="auto"),
        spark_conn_id=as_text,
        spark_conf=as_spark_conf,
        spark_threshold_bytes=as_bytes,
    )

    def __init__(
        self,
        *,
        version: int | str | None = None,
        policy: str | None = None,
        if_needed: bool = False,
        backfill_first: bool = False,
        engine: str = "auto",
        spark_conn_id: str | None = None,
        spark_conf: Mapping[str, str] | None = None,
        spark_threshold_bytes: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.version = version
        self.policy = policy
        self.if_needed = if_needed
        self.backfill_first = backfill_first
        self.engine = engine
        self.spark_conn_id = spark_conn_id
        self.spark_conf = spark_conf
        self.spark_threshold_bytes = spark_threshold_bytes
        self.check_arguments()

    @classmethod
    def spark_arguments(cls, given: Mapping[str, Any]) -> Sequence[str]:
        """The engine ``spark``."""
        return ["engine='spark'"] if given.get("engine") == "spark" else []

    @with_lineage
    @with_failures_by_policy
    def execute(self, context: Context) -> dict[str, Any]:
        """Write the checkpoint.

        :raises AirflowSkipException: ``if_needed`` is set, and none is needed.
        :raises TableFailure: the table can't be read, or can't have such a checkpoint; see
            `airflow_delta.hooks.failures`.
        :raises DeltaError: the store failed, or the version isn't backfilled.
        :raises AirflowException: the Spark job failed.
        """
        hook = self.hook()
        version = requested_version(context, self.table_uri, self.argument("version"))
        by_spark = self._takes_spark(hook, version)
        options: dict[str, Any] = {
            "version": version,
            "policy": self.argument("policy"),
            "if_needed": self.argument("if_needed"),
            "backfill_first": self.argument("backfill_first"),
        }
        if by_spark:
            result = self._submit(hook, options, context)
        else:
            result = hook.checkpoint(self.table_uri, **options)
        if options["if_needed"] and not result["written"]:
            raise AirflowSkipException(f"{self.table_uri}: {result['reason']}")
        report = {**result, "engine": "spark" if by_spark else "local"}
        log_report(self.log, "checkpoint", report)
        return report

    def _takes_spark(self, hook: DeltaHook, version: int | None) -> bool:
        engine = self.argument("engine")
        if engine != "auto" or not self.spark_conn_id:
            return bool(engine == "spark")
        threshold = self.argument("spark_threshold_bytes")
        return hook.is_large_log(self.table_uri, version=version, threshold_bytes=threshold)

    def _submit(
        self, hook: DeltaHook, options: Mapping[str, Any], context: Context
    ) -> dict[str, Any]:
        job = self.begin_job(context)
        return SparkMaintenance(hook, job).checkpoint(self.table_uri, **options)
