"""The Spark session of a job: started, led to the stores, and stopped whatever happens.

A job checks its parameters before, because starting Spark takes seconds. For the same reason PySpark is
imported here when a session is asked for, and not with the module.
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
    """The session that spark-submit has set up, able to reach what it shall read and write itself.

    Args:
        storage_options: the options with which the engine opens these locations.
        locations: what Spark reads or writes by its own connectors; none where only the engine does.

    Raises:
        InvalidArgumentError: a location is malformed, or an option is unknown; nothing is started.
        SparkStartError: Spark couldn't be started, as where no master accepts the application.
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
    # What a job says where it logs no more than warnings. On Kubernetes SparkSubmitHook takes a job
    # that has said nothing at all for a failed one.
    ui = f", {context.uiWebUrl}" if context.uiWebUrl else ""
    started = f"Spark {spark.version}: application {context.applicationId}, {context.master}{ui}"
    print(started, file=sys.stderr, flush=True)  # noqa: T201
    return spark


def _start_failure(error: Exception) -> str:
    """Why Spark couldn't be started, in a sentence."""
    # Of an error of the JVM the first line says only which call failed; the next one has the cause.
    lines = [line.removeprefix(": ") for line in str(error).splitlines() if line.strip()]
    cause = next((line for line in lines if "Exception" in line or "Error:" in line), "")
    if "stopped SparkContext" in cause:
        # Spark stops the context from another thread, which logs why.
        return (
            "Spark couldn't be started: the application was stopped before it had begun, as where no "
            "master accepts it within a minute. Something may answer at the master's address that is no "
            "Spark master of this version, or the master can't connect back; Spark's log has the reason"
        )
    return f"Spark couldn't be started: {cause or (lines or [type(error).__name__])[0]}"
