"""Delete rows of a Delta table with Spark: a program for spark-submit.

Parameters (see `airflow_delta.job_files`)::

    {"table_uri": "s3://lake/orders", "condition": "day < '2025-01-01'", "app_id": "airflow:daily.old",
     "app_version": 1767225600000000, "result_path": "/tmp/result.json"}

Optional: ``app_id`` with ``app_version``, ``dry_run``, ``user_metadata``, ``result_path``, and
``allowed_outside``, a list of locations outside its root that the table may read. The result::

    {"table_uri": …, "version": 8, "committed": true, "repeated": false}

``repeated`` is true if an earlier try has made the commit. For a dry run the result is that of
`airflow_delta.spark.dml.dry_run.DeletionPlan.to_dict`, with ``table_uri``. The storage options become
Spark's properties for the store; see `airflow_delta.spark.runtime.hadoop_settings`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from airflow_delta.job_files import change_report, known_parameters, run_job, transaction_parameter
from airflow_delta.spark.runtime.job_sessions import job_session

__all__ = ["delete", "main"]

_PARAMETERS: Mapping[str, type] = {
    "table_uri": str,
    "condition": str,
    "dry_run": bool,
    "user_metadata": str,
    "app_id": str,
    "app_version": int,
    "allowed_outside": list,
}


def delete(parameters: Mapping[str, Any], storage_options: Mapping[str, str]) -> dict[str, Any]:
    """Delete the rows, in a new Spark session.

    Raises:
        InvalidArgumentError: a parameter, or the condition, is invalid.
        DeltaError: see `airflow_delta.spark.delete`.
        PySparkException: Spark's own errors.
    """
    given = known_parameters(parameters, _PARAMETERS, required=["table_uri", "condition"])
    txn = transaction_parameter(given)
    table_uri, is_dry_run = given.pop("table_uri"), given.pop("dry_run", False)

    # Only after the parameters are checked, because importing PySpark takes time.
    from airflow_delta.spark.dml import delete as deletion
    from airflow_delta.spark.dml import dry_run

    with job_session(storage_options, table_uri) as spark:
        if is_dry_run:
            given.pop("user_metadata", None)
            plan = dry_run.plan_deletion(spark, table_uri, **given, storage_options=storage_options)
            return {"table_uri": table_uri, **plan.to_dict()}
        result = deletion.delete(
            spark, table_uri, **given, txn=txn, storage_options=storage_options
        )
    return change_report(
        table_uri, result.version, written=result.written, repeated=result.repeated
    )


def main() -> int:
    """Run the job of the command line."""
    return run_job(delete, sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
