"""The engine of a vacuum that isn't the worker itself: Spark."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from airflow_delta.hooks.delta import DeltaHook
from airflow_delta.hooks.managed_commits import owner_url_for_job

if TYPE_CHECKING:
    from airflow_delta.hooks.spark.job import SparkJobHook

__all__ = ["ENGINES", "vacuum_with_spark"]

ENGINES = ("local", "spark")
"""Whether a listing is long enough for Spark can only be told by listing, so there is no ``auto``."""

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
    """Have Spark vacuum a table: in the mode ``full``, or by an inventory.

    :param hook: knows the credentials of the table's store, and its commit owner.
    :param job: submits the job.
    :param retention_hours: how old files must be; None: as ``delta.deletedFileRetentionDuration`` says.
    :param inventory: the Parquet file, or directory of such files, of what is to be looked at in place of
        a listing.
    :param enforce_retention: refuse less than the table's property says.
    :param dry_run: only tell what would be deleted.
    :returns: what `airflow_delta.hooks.maintenance.vacuum` returns; ``duration_ms`` has the start of Spark
        in it.
    :raises DeltaError: the commit owner can't be told to the job.
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
