"""Start, configure and stop the Spark session of a job.

Starting Spark takes seconds, so a job checks its parameters first, and PySpark is imported only
when the session is started.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow_delta.job_files import SparkStartError
from airflow_delta.spark.runtime.hadoop_settings import configure_hadoop, hadoop_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["job_session"]


@contextmanager
def job_session(storage_options: Mapping[str, str], *locations: str) -> Iterator[SparkSession]:
    """Start the session that spark-submit has configured, with access to some locations.

    Args:
        storage_options: the options with which the engine opens these locations.
        locations: the locations that Spark itself reads or writes; none if only the engine does.

    Raises:
        InvalidArgumentError: a location is malformed, or an option is unknown; nothing is started.
        SparkStartError: Spark couldn't be started, for example because no master accepts the application.
        PySparkException: Spark's own errors.
    """
    settings: dict[str, str] = {}
    for location in locations:
        settings |= hadoop_settings(location, storage_options)

    spark = _started_session()
    try:
        configure_hadoop(spark, settings)
        yield spark
    finally:
        spark.stop()


def _started_session() -> SparkSession:
    from pyspark.sql import SparkSession

    try:
        spark = SparkSession.builder.getOrCreate()
    except Exception as error:
        raise SparkStartError(_start_failure(error)) from error
    context = spark.sparkContext
    # Printed because a job logs warnings only, and on Kubernetes SparkSubmitHook considers a job
    # without any output as failed.
    ui = f", {context.uiWebUrl}" if context.uiWebUrl else ""
    started = f"Spark {spark.version}: application {context.applicationId}, {context.master}{ui}"
    print(started, file=sys.stderr, flush=True)  # noqa: T201
    return spark


def _start_failure(error: Exception) -> str:
    """Say why Spark couldn't be started."""
    # The first line of a JVM error says only which call failed; the next one has the cause.
    lines = [line.removeprefix(": ") for line in str(error).splitlines() if line.strip()]
    cause = next((line for line in lines if "Exception" in line or "Error:" in line), "")
    if "stopped SparkContext" in cause:
        # Another thread of Spark stops the context, and logs the reason.
        return (
            "Spark couldn't be started: the application was stopped before it had begun, for example "
            "because no master accepted it within a minute. The service at the master's address may not be "
            "a Spark master of this version, or the master can't connect back; Spark's log has the reason"
        )
    return f"Spark couldn't be started: {cause or (lines or [type(error).__name__])[0]}"
