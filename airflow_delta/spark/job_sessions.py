"""The Spark session of a job: started, led to the stores, and stopped whatever happens.

A job checks its parameters before, because starting Spark takes seconds. For the same reason PySpark is
imported here when a session is asked for, and not with the module.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from airflow_delta.spark.hadoop_settings import configure_hadoop, hadoop_settings

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
        PySparkException: Spark's own errors.
    """
    settings: dict[str, str] = {}
    for location in locations:
        settings |= hadoop_settings(location, storage_options)

    from pyspark.sql import SparkSession

    spark = SparkSession.builder.getOrCreate()
    try:
        configure_hadoop(spark, settings)
        yield spark
    finally:
        spark.stop()
