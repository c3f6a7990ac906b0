"""Give the data files of a Delta table a good size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_delta.hooks.delta import DeltaHook
from airflow_delta.hooks.failures import with_failures_by_policy
from airflow_delta.hooks.reports import log_report
from airflow_delta.hooks.spark.maintenance import SparkMaintenance
from airflow_delta.operators.lineage.rules import optimizes_table
from airflow_delta.operators.lineage.task import with_lineage
from airflow_delta.operators.spark_task import JobTask
from airflow_delta.operators.table_commits import maintenance_commits, with_table_commit
from airflow_delta.operators.table_task import TableTask, with_readers
from airflow_delta.operators.template_values import (
    as_bytes,
    as_names,
    as_ratio,
    as_size,
    as_spark_conf,
    as_text,
    choice,
    flag,
)
from airflow_delta.version_compat import Context

__all__ = ["OptimizeOperator"]

_ENGINES = ("auto", "local", "spark")

_SPARK_THRESHOLD_BYTES = 32 << 30
"""A choice, not a measured limit: from here on the start of a Spark job should be worth it."""


class OptimizeOperator(JobTask):
    """Rewrite small files of a table, and files with many deleted rows, in the worker or with Spark.

    With ``z_order_by``, and if the table is clustered, rows are sorted, so that queries read fewer files.

    The rows stay the same. Concurrent appends don't conflict; files that others change meanwhile are left
    out. If there is nothing to rewrite, the task succeeds, and ``plan["reason"]`` says why. A retry plans
    again: it doesn't rewrite what the previous try has committed.

    Returns a dictionary with ``table_uri``, ``version`` (of the last commit, else the planned one),
    ``commits``, ``files_removed``, ``bytes_removed``, ``files_added``, ``bytes_added``, ``files_copied``,
    ``files_lost``, the ``plan``, ``engine`` (``local`` or ``spark``) and more: see the reference. The log
    of the task has the same facts.

    :param table_uri: the table's path or URI. (templated)
    :param where: a condition over partition columns that chooses the files, such as
        ``day >= '2026-01-01'``; None for all. (templated)
    :param min_file_size: files of fewer bytes are rewritten together; None: half of ``max_file_size``.
        (templated)
    :param max_file_size: the size of new files in bytes; None: ``delta.targetFileSize``, or 128 MiB.
        (templated)
    :param max_deleted_ratio: files with a larger part of deleted rows are rewritten, even alone; None:
        0.05. (templated)
    :param purge: rewrite just the files with deleted rows, however few. (templated)
    :param z_order_by: columns by which the files of each partition are sorted (Z-order), as SQL names them,
        such as ``address.city``. (templated)
    :param full: sort also what is sorted already; of a clustered table also what others have clustered.
        (templated)
    :param max_bytes: the most bytes of files to rewrite in this run; None for any number. (templated)
    :param min_cube_size: of a clustered table: no other files are clustered with files that were
        clustered together and have at least this many bytes; None: 100 GiB. (templated)
    :param dry_run: only report what would be rewritten, and which engine would do it; this never submits a
        job. (templated)
    :param engine: ``local`` rewrites files in the worker, in bounded memory. ``spark`` submits a PySpark
        job. ``auto`` uses Spark if ``spark_conn_id`` is given and the files to rewrite have at least
        ``spark_threshold_bytes``. Both follow the same plan, and each continues the
        other's work.
        (templated)
    :param spark_conn_id: the Spark connection; None: ``spark_default`` for ``engine="spark"``, and no Spark
        for ``auto``. (templated)
    :param spark_conf: Spark properties of the job. (templated)
    :param spark_threshold_bytes: for ``engine="auto"``, the bytes of the files to rewrite; None: 32 GiB.
    :param delta_conn_id: the connection with the credentials of the table's store; None: the
        default connection of the URI's scheme. (templated)
    :param commit_owner_conn_id: the connection of the SQL commit owner, for managed tables; None:
        ``delta_commit_owner_default`` if it exists, else the environment variable
        ``AIRFLOW_DELTA_COMMIT_OWNER_URL``. (templated)
    """

    template_fields: Sequence[str] = (
        *TableTask.template_fields,
        "where",
        "min_file_size",
        "max_file_size",
        "max_deleted_ratio",
        "purge",
        "z_order_by",
        "full",
        "max_bytes",
        "min_cube_size",
        "_dry_run",
        "engine",
        "spark_conn_id",
        "spark_conf",
    )
    arguments = with_readers(
        TableTask,
        where=as_text,
        min_file_size=as_size,
        max_file_size=as_size,
        max_deleted_ratio=as_ratio,
        purge=flag(default=False),
        z_order_by=as_names,
        full=flag(default=False),
        max_bytes=as_size,
        min_cube_size=as_size,
        dry_run=flag(default=False),
        engine=choice(*_ENGINES, default="auto"),
        spark_conn_id=as_text,
        spark_conf=as_spark_conf,
        spark_threshold_bytes=as_bytes,
    )

    datasets = optimizes_table

    def __init__(
        self,
        *,
        where: str | None = None,
        min_file_size: int | str | None = None,
        max_file_size: int | str | None = None,
        max_deleted_ratio: float | str | None = None,
        purge: bool | str = False,
        z_order_by: Sequence[str] | str | None = None,
        full: bool | str = False,
        max_bytes: int | str | None = None,
        min_cube_size: int | str | None = None,
        dry_run: bool | str = False,
        engine: str = "auto",
        spark_conn_id: str | None = None,
        spark_conf: Mapping[str, str] | None = None,
        spark_threshold_bytes: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.where = where
        self.min_file_size = min_file_size
        self.max_file_size = max_file_size
        self.max_deleted_ratio = max_deleted_ratio
        self.purge = purge
        self.z_order_by = z_order_by
        self.full = full
        self.max_bytes = max_bytes
        self.min_cube_size = min_cube_size
        # With an underscore, because every operator of Airflow has a method of that name.
        self._dry_run = dry_run
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
    @with_table_commit(
        maintenance_commits(
            "OPTIMIZE",
            metrics=("files_removed", "bytes_removed", "files_added", "bytes_added"),
        )
    )
    @with_failures_by_policy
    def execute(self, context: Context) -> dict[str, Any]:
        """Optimize the table.

        :raises TableFailure: the condition isn't about partition columns, a data file is damaged or
            missing, or the table can't be written. See `airflow_delta.hooks.failures`.
        :raises DeltaError: the store failed, or other writers were faster.
        :raises AirflowException: the Spark job failed.
        """
        hook = self.hook()
        options: dict[str, Any] = {
            "where": self.argument("where"),
            "min_file_size": self.argument("min_file_size"),
            "max_file_size": self.argument("max_file_size"),
            "max_deleted_ratio": self.argument("max_deleted_ratio"),
            "purge": self.argument("purge"),
            "z_order_by": self.argument("z_order_by") or (),
            "full": self.argument("full"),
            "max_bytes": self.argument("max_bytes"),
            "min_cube_size": self.argument("min_cube_size"),
        }
        by_spark = self._takes_spark(hook, options)
        is_dry_run = self.argument("dry_run")
        if by_spark and not is_dry_run:
            report = self._submit(hook, options, context)
        else:
            report = hook.optimize(self.table_uri, **options, dry_run=is_dry_run)
        report = {**report, "engine": "spark" if by_spark else "local"}
        log_report(self.log, "optimization", report)
        return report

    def _takes_spark(self, hook: DeltaHook, options: Mapping[str, Any]) -> bool:
        engine = self.argument("engine")
        if engine != "auto" or not self.spark_conn_id:
            return bool(engine == "spark")
        threshold = self.argument("spark_threshold_bytes")
        planned = hook.optimize(self.table_uri, **options, dry_run=True)["plan"]["bytes"]
        return bool(planned >= (_SPARK_THRESHOLD_BYTES if threshold is None else threshold))

    def _submit(
        self, hook: DeltaHook, options: Mapping[str, Any], context: Context
    ) -> dict[str, Any]:
        job = self.begin_job(context)
        return SparkMaintenance(hook, job).optimize(self.table_uri, **options)
