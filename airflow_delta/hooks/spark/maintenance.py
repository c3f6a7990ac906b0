"""Submit Spark jobs that maintain a table."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from airflow_delta.hooks.delta import DeltaHook
from airflow_delta.hooks.reports import timed_report

if TYPE_CHECKING:
    from airflow_delta.hooks.spark.job import SparkJobHook

__all__ = ["SparkMaintenance"]


class SparkMaintenance:
    """The maintenance operations that Spark can do, each by a job.

    :param hook: gives access to the tables and their commit owners.
    :param job: submits the jobs.
    """

    def __init__(self, hook: DeltaHook, job: SparkJobHook) -> None:
        self._hook = hook
        self._job = job

    def checkpoint(
        self,
        table_uri: str,
        *,
        version: int | None = None,
        policy: str | None = None,
        if_needed: bool = False,
        backfill_first: bool = False,
    ) -> dict[str, Any]:
        """Write a checkpoint with Spark; the arguments are those of `DeltaHook.checkpoint`.

        The job reads only ``_delta_log`` and needs no commit owner, so the version must be backfilled
        first.

        :returns: the same as `DeltaHook.checkpoint`; ``duration_ms`` includes the start of Spark.
        :raises DeltaError: the table can't be backfilled.
        :raises AirflowException: the job failed.
        """
        began = time.monotonic()
        if backfill_first:
            self._hook.backfill_missing(table_uri, version)
        parameters: dict[str, Any] = {"table_uri": table_uri, "if_needed": if_needed}
        parameters |= {} if version is None else {"version": version}
        parameters |= {} if policy is None else {"policy": policy}
        options = self._hook.storage_options(table_uri)
        report = self._job.run("checkpoint", parameters, storage_options=options)
        return timed_report(table_uri, report, began=began)

    def vacuum(
        self,
        table_uri: str,
        *,
        retention_hours: float | None = None,
        inventory: str | None = None,
        enforce_retention: bool = True,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Vacuum a table with Spark, in mode ``full`` or with an inventory.

        The arguments are those of `DeltaHook.vacuum`, except the mode.

        :param inventory: may also be a directory of Parquet files.
        :returns: the same as `DeltaHook.vacuum`; ``duration_ms`` includes Spark's start.
        :raises DeltaError: the commit owner doesn't have the table or can't be reached.
        :raises AirflowException: the job failed.
        """
        began = time.monotonic()
        parameters: dict[str, Any] = {
            "table_uri": table_uri,
            "enforce_retention": enforce_retention,
            "dry_run": dry_run,
        }
        parameters |= {} if retention_hours is None else {"retention_hours": float(retention_hours)}
        parameters |= {} if inventory is None else {"inventory": inventory}
        uris = [table_uri] if inventory is None else [table_uri, inventory]
        report = self._job.run(
            "vacuum",
            parameters,
            storage_options=self._hook.common_storage_options(*uris),
            commit_owner_url=self._hook.owner_url_for_job(table_uri),
        )
        return timed_report(table_uri, report, began=began, dry_run=dry_run)

    def optimize(self, table_uri: str, **options: Any) -> dict[str, Any]:
        """Optimize a table with Spark.

        The job commits. A repeated job plans again: it doesn't rewrite what is committed.

        :param options: the arguments of `DeltaHook.optimize`, except ``dry_run``.
        :returns: the same as `DeltaHook.optimize`; ``duration_ms`` includes Spark's start.
        :raises DeltaError: the commit owner doesn't have the table or can't be reached.
        :raises AirflowException: the job failed.
        """
        began = time.monotonic()
        given = {name: value for name, value in options.items() if value is not None}
        if "max_deleted_ratio" in given:
            given["max_deleted_ratio"] = float(given["max_deleted_ratio"])
        if "z_order_by" in given:
            given["z_order_by"] = list(given["z_order_by"])
        report = self._job.run(
            "optimize",
            {"table_uri": table_uri, **given, **self._hook.allowed_parameter(table_uri)},
            storage_options=self._hook.storage_options(table_uri),
            commit_owner_url=self._hook.owner_url_for_job(table_uri),
        )
        return timed_report(table_uri, report, began=began, dry_run=False)

    def rewrite(self, table_uri: str, *, feature: str) -> dict[str, Any]:
        """Rewrite the data files of a table that use a feature, with Spark.

        The job commits. It may be repeated, because it doesn't rewrite a file twice.

        :param feature: ``deletionVectors``, ``columnMapping`` or ``typeWidening``.
        :returns: ``table_uri``, and the entries of `airflow_delta.spark.rewrite.rewrite.rewrite_report`.
        :raises DeltaError: the commit owner doesn't have the table or can't be reached.
        :raises AirflowException: the job failed.
        """
        report = self._job.run(
            "rewrite",
            {"table_uri": table_uri, "feature": feature, **self._hook.allowed_parameter(table_uri)},
            storage_options=self._hook.storage_options(table_uri),
            commit_owner_url=self._hook.owner_url_for_job(table_uri),
        )
        return {"table_uri": table_uri, **report}
