"""Vacuum a Delta table with Spark: a program for spark-submit.

Parameters (see `airflow_delta.job_files`)::

    {"table_uri": "s3://lake/sales", "retention_hours": 240.0, "inventory": "s3://lake/inventory/",
     "enforce_retention": true, "dry_run": false, "result_path": "/tmp/result.json"}

Only ``table_uri`` is required; for the others see `airflow_delta.spark.vacuum.execution.vacuum`.
The result is `VacuumResult.to_dict`. Spark itself reads only the inventory; the storage options
become its properties for the store, see `airflow_delta.spark.runtime.hadoop_settings`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from airflow_delta.job_files import known_parameters, run_job
from airflow_delta.spark.runtime.job_sessions import job_session

__all__ = ["main", "vacuum"]

_PARAMETERS: Mapping[str, type] = {
    "table_uri": str,
    "retention_hours": float,
    "inventory": str,
    "enforce_retention": bool,
    "dry_run": bool,
}


def vacuum(parameters: Mapping[str, Any], storage_options: Mapping[str, str]) -> dict[str, Any]:
    """Vacuum the table, in a new Spark session.

    Raises:
        InvalidArgumentError: a parameter is invalid.
        DeltaError: see `airflow_delta.spark.vacuum.execution.vacuum`.
        PySparkException: Spark's own errors.
    """
    given = known_parameters(parameters, _PARAMETERS, required=["table_uri"])
    table_uri, inventory = given.pop("table_uri"), given.get("inventory")
    # Spark itself reads nothing else.
    read = () if inventory is None else (inventory,)

    # Only after the parameters are checked, because importing PySpark takes time.
    from airflow_delta.spark.vacuum import execution as vacuuming

    with job_session(storage_options, *read) as spark:
        result = vacuuming.vacuum(spark, table_uri, **given, storage_options=storage_options)
    return result.to_dict()


def main() -> int:
    """Run the job of the command line."""
    return run_job(vacuum, sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
