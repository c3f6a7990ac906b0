"""Have Spark vacuum a table."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from airflow_delta.hooks.delta import DeltaHook
from airflow_delta.hooks.delta.managed import owner_url_for_job

if TYPE_CHECKING:
    from airflow_delta.hooks.spark.job import SparkJobHook

__all__ = ["ENGINES", "vacuum_with_spark"]

ENGINES = ("local", "spark")
"""There is no ``auto``: only a listing would show whether there are enough files for Spark."""

_JOB = "vacuum"


def vacuum_with_spark(
    hook: DeltaHook,
    job: SparkJobHook,
    table_uri: str,
    *,
    retention_hours: float | None = None,
    inventory: str | None = None,
    enforce_retention: bool = True,
    dry_run: bool = False,
) -> dict[str, Any]:
    """Have Spark vacuum a table, in mode ``full`` or with an inventory.

    :param hook: gives access to the table and its commit owner.
    :param job: submits the job.
    :param retention_hours: the age of the files to delete; None: ``delta.deletedFileRetentionDuration``.
    :param inventory: a Parquet file, or a directory of such files, that lists the files, instead of
        a listing of the store.
    :param enforce_retention: refuse a shorter retention than that of the table's property.
    :param dry_run: only report what would be deleted.
    :returns: the same as `airflow_delta.hooks.delta.maintenance.vacuum`; ``duration_ms`` includes Spark's start.
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
    report = job.run(
        _JOB,
        parameters,
        storage_options=hook.common_storage_options(*uris),
        commit_owner_url=owner_url_for_job(hook, table_uri),
    )
    duration = round((time.monotonic() - began) * 1000)
    return {"table_uri": table_uri, **report, "dry_run": dry_run, "duration_ms": duration}
