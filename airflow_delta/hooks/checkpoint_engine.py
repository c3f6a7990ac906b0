"""Choose the engine that writes a checkpoint, and have Spark write it."""

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
    """Whether Spark should write a checkpoint.

    :param hook: gives access to the table.
    :param engine: one of `ENGINES`. ``auto`` means Spark for logs of at least ``threshold_bytes`` (see
        `airflow_delta.engine.maintenance.checkpoint.log_size.measure_log`), if ``has_spark``.
    :param version: the version to checkpoint; None: the newest.
    :param has_spark: whether a Spark connection is named.
    :param threshold_bytes: the size of the log; None: ``SPARK_THRESHOLD_BYTES``.
    :raises DeltaError: the log can't be listed.
    """
    from airflow_delta.engine.maintenance.checkpoint.log_size import (
        SPARK_THRESHOLD_BYTES,
        measure_log,
    )

    if engine != "auto" or not has_spark:
        return engine == "spark"
    threshold = SPARK_THRESHOLD_BYTES if threshold_bytes is None else threshold_bytes
    return measure_log(hook.table(table_uri).storage, version=version) >= threshold


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

    The job reads only ``_delta_log`` and needs no commit owner, so the version must be backfilled first.

    :param hook: gives access to the table and its commit owner.
    :param job: submits the job.
    :param backfill_first: have the commit owner of a managed table backfill missing versions first.
    :returns: the same as `DeltaHook.checkpoint`; ``duration_ms`` includes the start of Spark.
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
