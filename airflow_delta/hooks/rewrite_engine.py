"""Have Spark rewrite data files, which dropping some table features needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_delta.hooks.delta import DeltaHook
from airflow_delta.hooks.delta.managed import owner_url_for_job

if TYPE_CHECKING:
    from airflow_delta.hooks.spark.job import SparkJobHook

__all__ = ["rewrite_with_spark"]

_JOB = "rewrite"


def rewrite_with_spark(
    hook: DeltaHook, job: SparkJobHook, table_uri: str, *, feature: str
) -> dict[str, Any]:
    """Have Spark rewrite the data files of a table that use a feature.

    The job commits, and may be repeated: it doesn't rewrite a file again.

    :param hook: gives access to the table and its commit owner.
    :param job: submits the job.
    :param feature: ``deletionVectors``, ``columnMapping`` or ``typeWidening``.
    :returns: ``table_uri``, and the entries of `airflow_delta.spark.rewrite.rewrite.rewrite_report`.
    :raises DeltaError: the commit owner doesn't have the table or can't be reached.
    :raises AirflowException: the job failed.
    """
    report = job.run(
        _JOB,
        {"table_uri": table_uri, "feature": feature, **hook.allowed_parameter(table_uri)},
        storage_options=hook.storage_options(table_uri),
        commit_owner_url=owner_url_for_job(hook, table_uri),
    )
    return {"table_uri": table_uri, **report}
