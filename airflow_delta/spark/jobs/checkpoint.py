"""Write a checkpoint of a Delta table with Spark: a program for spark-submit.

Parameters (see `airflow_delta.job_files`)::

    {"table_uri": "s3://lake/sales", "version": 7, "policy": "v2", "if_needed": true,
     "result_path": "/tmp/result.json"}

Only ``table_uri`` is required. The default ``version`` is the newest, the default ``policy``
(``classic`` or ``v2``) that of the table; ``if_needed`` writes a checkpoint only if one is due by
``delta.checkpointInterval``. The result is `CheckpointResult.to_dict`.

The engine reads and writes all files, with the storage options; Spark itself accesses none.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from airflow_delta.job_files import known_parameters, run_job
from airflow_delta.spark.runtime.job_sessions import job_session

__all__ = ["checkpoint", "main"]

_PARAMETERS: Mapping[str, type] = {
    "table_uri": str,
    "version": int,
    "policy": str,
    "if_needed": bool,
}


def checkpoint(parameters: Mapping[str, Any], storage_options: Mapping[str, str]) -> dict[str, Any]:
    """Write the checkpoint, in a new Spark session.

    Raises:
        InvalidArgumentError: a parameter is invalid.
        DeltaError: see `write_checkpoint`.
        PySparkException: Spark's own errors.
    """
    given = checked_parameters(parameters)
    table_uri = given.pop("table_uri")

    # Only after the parameters are checked, because importing PySpark takes time.
    from airflow_delta.spark.checkpoint.execution import write_checkpoint

    # The engine reads and writes all files of the table.
    with job_session(storage_options) as spark:
        result = write_checkpoint(spark, table_uri, **given, storage_options=storage_options)
    return result.to_dict()


def checked_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Check the parameters.

    Raises:
        InvalidArgumentError: one is missing, unknown, or of the wrong type.
    """
    return known_parameters(parameters, _PARAMETERS, required=["table_uri"])


def main() -> int:
    """Run the job of the command line."""
    return run_job(checkpoint, sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
