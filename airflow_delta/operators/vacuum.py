"""Vacuum a Delta table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_delta.hooks.delta import DeltaHook
from airflow_delta.hooks.failures import ArgumentError, with_failures_by_policy
from airflow_delta.hooks.reports import log_report
from airflow_delta.hooks.spark.maintenance import SparkMaintenance
from airflow_delta.operators.lineage.task import with_lineage
from airflow_delta.operators.spark_task import SPARK_CONNECTION, JobTask
from airflow_delta.operators.table_task import TableTask, with_readers
from airflow_delta.operators.template_values import (
    as_hours,
    as_spark_conf,
    as_text,
    choice,
    flag,
    location,
    switch,
)
from airflow_delta.version_compat import Context

__all__ = ["VacuumOperator"]

_ENGINES = ("local", "spark")
"""There is no ``auto``: only a listing would show whether there are enough files for Spark."""


class VacuumOperator(JobTask):
    """Delete files in a table's directory that no retained version needs.

    Versions before ``oldest_restorable`` can't be read afterwards. A lite vacuum every night and a
    full one every month is a good schedule. If there is nothing to delete, the task succeeds, and
    ``reason`` says why; a retry continues where the previous try stopped. No commit is made.

    Returns a dictionary with ``table_uri``, ``version`` (the newest one), ``mode``, the planned
    ``files`` and ``bytes``, ``num_deleted`` and ``bytes_deleted``, the numbers of kept files by
    reason, ``oldest_restorable``, ``engine`` and more: see the reference. The task's log has the
    same facts.

    :param table_uri: the table's path or URI. (templated)
    :param retention_hours: the age of the files to delete; None: ``delta.deletedFileRetentionDuration``, by
        default a week. (templated)
    :param mode: ``full`` checks all files that the store lists, ``lite`` only those that commits have
        removed since the last vacuum. (templated)
    :param inventory: a Parquet file that lists the files, such as object stores write once a day. It
        replaces a listing of the store, and must be in the table's store. With Spark it may be a directory
        of such files. (templated)
    :param enforce_retention: refuse a shorter retention than that of the property.
    :param dry_run: only report what would be deleted. (templated)
    :param engine: ``local`` lists and deletes in the worker. ``spark`` submits a PySpark job, which
        does this on its executors, for tables with tens of millions of files; not for
        ``mode="lite"``. Both delete the same files. (templated)
    :param spark_conn_id: the Spark connection of the job; must exist. (templated)
    :param spark_conf: Spark properties of the job. (templated)
    :param delta_conn_id: the connection with the credentials of the table's store; None: the
        default connection of the URI's scheme. (templated)
    :param commit_owner_conn_id: the connection of the SQL commit owner, for managed tables; None:
        ``delta_commit_owner_default`` if it exists, else the environment variable
        ``AIRFLOW_DELTA_COMMIT_OWNER_URL``. (templated)
    """

    template_fields: Sequence[str] = (
        *TableTask.template_fields,
        "retention_hours",
        "mode",
        "inventory",
        "_dry_run",
        "engine",
        "spark_conn_id",
        "spark_conf",
    )
    arguments = with_readers(
        TableTask,
        retention_hours=as_hours,
        mode=choice("full", "lite", default="full"),
        inventory=location,
        enforce_retention=switch(default=True),
        dry_run=flag(default=False),
        engine=choice(*_ENGINES, default="local"),
        spark_conn_id=as_text,
        spark_conf=as_spark_conf,
    )

    def __init__(
        self,
        *,
        retention_hours: float | str | None = None,
        mode: str = "full",
        inventory: str | None = None,
        enforce_retention: bool = True,
        dry_run: bool | str = False,
        engine: str = "local",
        spark_conn_id: str = SPARK_CONNECTION,
        spark_conf: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.retention_hours = retention_hours
        self.mode = mode
        self.inventory = inventory
        self.enforce_retention = enforce_retention
        # With an underscore, because every operator of Airflow has a method of that name.
        self._dry_run = dry_run
        self.engine = engine
        self.spark_conn_id = spark_conn_id
        self.spark_conf = spark_conf
        self.check_arguments()

    @classmethod
    def check_together(cls, known: Mapping[str, Any]) -> None:
        """Check that a lite vacuum uses the local engine, and no inventory.

        :raises ArgumentError: it doesn't.
        """
        if known.get("mode") != "lite":
            return
        if known.get("engine") == "spark":
            raise ArgumentError(
                "a vacuum by Spark is 'full', found mode='lite'; a lite one reads only the log, with the "
                "local engine"
            )
        if known.get("inventory") is not None:
            raise ArgumentError("a vacuum with an inventory is 'full', found mode='lite'")

    @classmethod
    def spark_arguments(cls, given: Mapping[str, Any]) -> Sequence[str]:
        """The engine ``spark``."""
        return ["engine='spark'"] if given.get("engine") == "spark" else []

    @with_lineage
    @with_failures_by_policy
    def execute(self, context: Context) -> dict[str, Any]:
        """Vacuum the table.

        :raises TableFailure: ``retention_hours`` is less than the table's property, and
            ``enforce_retention`` is set; or it is longer than the log's history; or the table can't
            be read. See `airflow_delta.hooks.failures`.
        :raises DeltaError: the store failed.
        :raises AirflowException: the Spark job failed.
        """
        by_spark = self.argument("engine") == "spark"
        hook = self.hook()
        options: dict[str, Any] = {
            name: self.argument(name)
            for name in ("retention_hours", "inventory", "enforce_retention", "dry_run")
        }
        if by_spark:
            report = self._submit(hook, options, context)
        else:
            report = hook.vacuum(self.table_uri, mode=self.argument("mode"), **options)
        report = {**report, "engine": "spark" if by_spark else "local"}
        log_report(self.log, "vacuum", report)
        return report

    def _submit(
        self, hook: DeltaHook, options: Mapping[str, Any], context: Context
    ) -> dict[str, Any]:
        job = self.begin_job(context)
        return SparkMaintenance(hook, job).vacuum(self.table_uri, **options)
