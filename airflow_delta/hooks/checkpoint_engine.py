"""Which engine writes a checkpoint, and the one that isn't the worker itself: Spark."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from airflow_delta.hooks.delta import DeltaHook
from airflow_delta.hooks.managed_commits import backfill_missing

if TYPE_CHECKING:
    from airflow_delta.hooks.spark.job import SparkJobHook

__all__ = ["ENGINES", "checkpoint_with_spark", "takes_spark"]

ENGINES = ("auto", "local", "spark")

_JOB = "checkpoint"


def takes_spark(
    hook: DeltaHook,
    table_uri: str,
    *,
    engine: str,
    version: int | None = None,
    has_spark: bool,
    threshold_bytes: int | None = None,
) -> bool:
    """Whether Spark is to write a checkpoint.

    :param hook: reaches the table.
    :param engine: one of `ENGINES`. ``auto`` takes Spark from a size of the log on, see
        `airflow_delta.engine.maintenance.checkpoint.log_size.log_bytes`, where there is a Spark to take.
    :param version: the version to checkpoint; None: the newest.
    :param has_spark: whether a Spark connection is named.
    :param threshold_bytes: that size; None: ``SPARK_THRESHOLD_BYTES``.
    :raises DeltaError: the log can't be listed.
    """
    from airflow_delta.engine.maintenance.checkpoint.log_size import (
        SPARK_THRESHOLD_BYTES,
        log_bytes,
    )

    if engine != "auto" or not has_spark:
        return engine == "spark"
    threshold = SPARK_THRESHOLD_BYTES if threshold_bytes is None else threshold_bytes
    return log_bytes(hook.table(table_uri).storage, version=version) >= threshold


def checkpoint_with_spark(
    hook: DeltaHook,
    job: SparkJobHook,
    table_uri: str,
    *,
    version: int | None = None,
    policy: str | None = None,
    if_needed: bool = False,
    backfill_first: bool = False,
) -> dict[str, Any]:
    """Have Spark write a checkpoint.

    The job goes by the log's directory alone and needs no commit owner; what it is to see there is
    backfilled before it starts.

    :param hook: knows the credentials of the table's store, and its commit owner.
    :param job: submits the job.
    :param backfill_first: have the commit owner of a managed table backfill what is missing before.
    :returns: what `DeltaHook.checkpoint` returns; ``duration_ms`` has the start of Spark in it.
    :raises DeltaError: the table can't be backfilled.
    :raises AirflowException: the job failed.
    """
    began = time.monotonic()
    if backfill_first:
        backfill_missing(hook, table_uri, version)
    parameters: dict[str, Any] = {"table_uri": table_uri, "if_needed": if_needed}
    parameters |= {} if version is None else {"version": version}
    parameters |= {} if policy is None else {"policy": policy}
    report = job.run(_JOB, parameters, storage_options=hook.storage_options(table_uri))
    duration = round((time.monotonic() - began) * 1000)
    return {"table_uri": table_uri, **report, "duration_ms": duration}
