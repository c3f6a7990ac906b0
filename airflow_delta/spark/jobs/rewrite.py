"""Write data files of a Delta table anew with Spark, without the traces of a feature: for spark-submit.

Parameters (see `airflow_delta.spark.job_files`)::

    {"table_uri": "s3://lake/sales", "feature": "deletionVectors", "result_path": "/tmp/result.json"}

``feature`` is ``deletionVectors``, ``columnMapping`` or ``typeWidening``. The result is that of
`airflow_delta.spark.rewriting.rewrite_report`. Spark reaches the table's store with the properties that the
storage options stand for, see `airflow_delta.spark.hadoop_settings`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from airflow_delta.spark.hadoop_settings import configure_hadoop, hadoop_settings
from airflow_delta.spark.job_files import known_parameters, run_job

__all__ = ["main", "rewrite"]

_PARAMETERS: Mapping[str, type] = {"table_uri": str, "feature": str}


def rewrite(parameters: Mapping[str, Any], storage_options: Mapping[str, str]) -> dict[str, Any]:
    """Write the files anew, in a Spark session of its own.

    Raises:
        InvalidArgumentError: the parameters are not those of this job.
        DeltaError: see `rewrite_data`.
        PySparkException: Spark's own errors.
    """
    given = known_parameters(parameters, _PARAMETERS, required=_PARAMETERS)
    settings = hadoop_settings(given["table_uri"], storage_options)

    # After the parameters are known to be right: starting Spark takes seconds.
    from pyspark.sql import SparkSession

    from airflow_delta.spark.rewriting import rewrite_data, rewrite_report

    spark = SparkSession.builder.getOrCreate()
    try:
        configure_hadoop(spark, settings)
        result = rewrite_data(
            spark, given["table_uri"], given["feature"], storage_options=storage_options
        )
    finally:
        spark.stop()
    return rewrite_report(result)


def main() -> int:
    """Run the job of the command line."""
    return run_job(rewrite, sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
