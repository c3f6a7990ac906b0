"""Update rows of a Delta table with Spark: a program for spark-submit.

Parameters (see `airflow_delta.job_files`)::

    {"table_uri": "s3://lake/orders", "set": {"status": "'late'"}, "condition": "due < '2026-01-01'",
     "app_id": "airflow:daily.late", "app_version": 1767225600000000, "result_path": "/tmp/result.json"}

Optional: ``condition``, ``app_id`` with ``app_version``, ``user_metadata``, ``result_path``, and
``allowed_outside``, a list of locations outside its root that the table may read. The result::

    {"table_uri": …, "version": 8, "committed": true, "repeated": false}

``repeated`` is true if an earlier try has made the commit. The storage options become Spark's properties
for the store; see `airflow_delta.spark.runtime.hadoop_settings`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from airflow_delta.job_files import change_report, known_parameters, run_job, transaction_parameter
from airflow_delta.row_changes.new_values import check_values
from airflow_delta.spark.runtime.job_sessions import job_session

__all__ = ["main", "update"]

_PARAMETERS: Mapping[str, type] = {
    "table_uri": str,
    "set": dict,
    "condition": str,
    "user_metadata": str,
    "app_id": str,
    "app_version": int,
    "allowed_outside": list,
}


def update(parameters: Mapping[str, Any], storage_options: Mapping[str, str]) -> dict[str, Any]:
    """Update the rows, in a new Spark session.

    Raises:
        InvalidArgumentError: a parameter is invalid.
        DeltaError: see `airflow_delta.spark.update`.
        PySparkException: Spark's own errors.
    """
    given = known_parameters(parameters, _PARAMETERS, required=["table_uri", "set"])
    txn = transaction_parameter(given)
    check_values(given["set"], name="parameter 'set'")
    table_uri = given.pop("table_uri")

    # Only after the parameters are checked, because importing PySpark takes time.
    from airflow_delta.spark.dml import update as updating

    with job_session(storage_options, table_uri) as spark:
        result = updating.update(
            spark, table_uri, **given, txn=txn, storage_options=storage_options
        )
    return change_report(
        table_uri, result.version, written=result.written, repeated=result.repeated
    )


def main() -> int:
    """Run the job of the command line."""
    return run_job(update, sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
