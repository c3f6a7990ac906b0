"""Vacuum a Delta table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_delta.hooks.delta import DeltaHook
from airflow_delta.hooks.failures import ArgumentError, with_failures_by_policy
from airflow_delta.hooks.maintenance import log_report, vacuum
from airflow_delta.hooks.vacuum_engine import ENGINES, vacuum_with_spark
from airflow_delta.operators.run_identity import run_identity
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

_SPARK = "spark_default"


class VacuumOperator(TableTask):
    """Delete the files in a table's directory that nobody needs any more.

    Versions before ``oldest_restorable`` can't be read afterwards. A lite vacuum every night and a full one
    every month is a good plan. Where nothing is to be deleted the task succeeds, and ``reason`` says why; a
    retry goes on where the try before was broken off. No commit is made.

    Returns a dictionary with ``table_uri``, ``version`` (the newest one), ``mode``, ``files`` and ``bytes``
    that were to be deleted, ``num_deleted`` and ``bytes_deleted``, how many files stay for which reason,
    ``oldest_restorable``, ``engine`` and more: see the reference. The task's log has the same for people.

    :param table_uri: the table's path or URI. (templated)
    :param retention_hours: how old files must be; None: as ``delta.deletedFileRetentionDuration`` says, a
        week unless set. (templated)
    :param mode: ``full`` looks at all files that the store lists, ``lite`` at those that commits have
        removed since the last vacuum. (templated)
    :param inventory: a Parquet file of the files to be looked at in place of a listing, such as object
        stores write once a day; in the same store as the table. Spark takes a directory of such files as
        well. (templated)
    :param enforce_retention: refuse less than the property says.
    :param dry_run: only tell what would be deleted. (templated)
    :param engine: ``local`` lists and deletes in the worker. ``spark`` submits a PySpark job, which does so
        on its executors, for tables of tens of millions of files; not for ``mode="lite"``. Both delete the
        same files. (templated)
    :param spark_conn_id: the Spark connection of the job; must exist. (templated)
    :param spark_conf: Spark properties of the job. (templated)
    :param delta_conn_id: the connection with the credentials of the table's store; None: the
        default connection of the URI's scheme. (templated)
    :param commit_owner_conn_id: the connection of the SQL commit owner, for managed tables; None:
        ``delta_commit_owner_default`` where that exists, else what the environment says. (templated)
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
        engine=choice(*ENGINES, default="local"),
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
        spark_conn_id: str = _SPARK,
        spark_conf: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.retention_hours = retention_hours
        self.mode = mode
        self.inventory = inventory
        self.enforce_retention = enforce_retention
        # Not without the underscore: every operator of Airflow has a method of that name.
        self._dry_run = dry_run
        self.engine = engine
        self.spark_conn_id = spark_conn_id
        self.spark_conf = spark_conf
        self._job: Any = None
        self.check_arguments()

    @classmethod
    def check_together(cls, known: Mapping[str, Any]) -> None:
        """Check that a lite vacuum is one of the local engine, and reads the log only.

        :raises ArgumentError: it isn't.
        """
        if known.get("mode") != "lite":
            return
        if known.get("engine") == "spark":
            raise ArgumentError(
                "a vacuum by Spark is 'full', found mode='lite'; a lite one reads the log only, which the "
                "local engine does"
            )
        if known.get("inventory") is not None:
            raise ArgumentError("a vacuum with an inventory is 'full', found mode='lite'")

    @classmethod
    def spark_arguments(cls, given: Mapping[str, Any]) -> Sequence[str]:
        """The engine ``spark``."""
        return ["engine='spark'"] if given.get("engine") == "spark" else []

    @with_failures_by_policy
    def execute(self, context: Context) -> dict[str, Any]:
        """Vacuum the table.

        :raises TableFailure: ``retention_hours`` is less than the table's property says, and
            ``enforce_retention`` is set; or more than the log reaches back; or the table can't be read. See
            `airflow_delta.hooks.failures`.
        :raises DeltaError: the store failed.
        :raises AirflowException: the Spark job failed.
        """
        by_spark = self.argument("engine") == "spark"
        hook = self.hook()
        asked: dict[str, Any] = {
            name: self.argument(name)
            for name in ("retention_hours", "inventory", "enforce_retention", "dry_run")
        }
        if by_spark:
            report = self._submit(hook, asked, context)
        else:
            report = vacuum(hook, self.table_uri, mode=self.argument("mode"), **asked)
        report = {**report, "engine": "spark" if by_spark else "local"}
        log_report(self.log, "vacuum", report)
        return report

    def on_kill(self) -> None:
        """End the Spark job."""
        if self._job is not None:
            self._job.on_kill()

    def _submit(
        self, hook: DeltaHook, asked: Mapping[str, Any], context: Context
    ) -> dict[str, Any]:
        # Imported here: DAG files are parsed often, and the Spark provider's hook imports a lot.
        from airflow_delta.hooks.spark.job import SparkJobHook

        name, _ = run_identity(context)
        connection = self.argument("spark_conn_id") or _SPARK
        self._job = SparkJobHook(connection, conf=self.argument("spark_conf"), name=name)
        return vacuum_with_spark(hook, self._job, self.table_uri, **asked)
