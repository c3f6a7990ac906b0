"""Have Spark rewrite data files, as dropping some table features needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_delta.hooks.delta import DeltaHook
from airflow_delta.hooks.managed_commits import owner_url_for_job

if TYPE_CHECKING:
    from airflow_delta.hooks.spark.job import SparkJobHook

__all__ = ["rewrite_with_spark"]

_JOB = "rewrite"


def rewrite_with_spark(
    hook: DeltaHook, job: SparkJobHook, table_uri: str, *, feature: str
) -> dict[str, Any]:
    """Have Spark rewrite the data files of a table in which a feature has left traces.

    The job commits by itself, and may be repeated: what is rewritten isn't rewritten again.

    :param hook: knows the credentials of the table's store, and its commit owner.
    :param job: submits the job.
    :param feature: ``deletionVectors``, ``columnMapping`` or ``typeWidening``.
    :returns: ``table_uri``, and what `airflow_delta.spark.rewrite.rewrite.rewrite_report` has.
    :raises DeltaError: the commit owner can't be told to the job.
    :raises AirflowException: the job failed.
    """
    report = job.run(
        _JOB,
        {"table_uri": table_uri, "feature": feature, **hook.allowed_parameter(table_uri)},
        storage_options=hook.storage_options(table_uri),
        commit_owner_url=owner_url_for_job(hook, table_uri),
    )
    return {"table_uri": table_uri, **report}
