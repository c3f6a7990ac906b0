"""Optimize a Delta table with Spark: a program for spark-submit.

Parameters (see `airflow_delta.job_files`)::

    {"table_uri": "s3://lake/sales", "where": "day >= '2026-01-01'",
     "z_order_by": ["customer", "address.city"], "result_path": "/tmp/result.json"}

Only ``table_uri`` is required. Optional: the other arguments of `airflow_delta.spark.optimize`, with names
as in SQL in ``z_order_by``, ``result_path``, and ``allowed_outside``, a list of locations outside its root
that the table may read. The result is `OptimizeResult.to_dict`. The storage options become Spark's
properties for the store; see `airflow_delta.spark.runtime.hadoop_settings`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from airflow_delta.job_files import known_parameters, run_job
from airflow_delta.spark.runtime.job_sessions import job_session

__all__ = ["main", "optimize"]

_PARAMETERS: Mapping[str, type] = {
    "table_uri": str,
    "where": str,
    "min_file_size": int,
    "max_file_size": int,
    "max_deleted_ratio": float,
    "purge": bool,
    "z_order_by": list,
    "full": bool,
    "max_bytes": int,
    "commit_bytes": int,
    "min_cube_size": int,
    "allowed_outside": list,
}


def optimize(parameters: Mapping[str, Any], storage_options: Mapping[str, str]) -> dict[str, Any]:
    """Optimize the table, in a new Spark session.

    Raises:
        InvalidArgumentError: a parameter is invalid.
        DeltaError: see `airflow_delta.spark.optimize`.
        PySparkException: Spark's own errors.
    """
    given = known_parameters(parameters, _PARAMETERS, required=["table_uri"])
    table_uri, names = given.pop("table_uri"), given.pop("z_order_by", [])

    # Only after the parameters are checked, because importing PySpark takes time.
    from airflow_delta.engine.model.sql_names import listed_columns
    from airflow_delta.spark.optimizer import optimize as optimizing

    with job_session(storage_options, table_uri) as spark:
        result = optimizing.optimize(
            spark,
            table_uri,
            **given,
            z_order_by=listed_columns(",".join(names), "z_order_by"),
            storage_options=storage_options,
        )
    return result.to_dict()


def main() -> int:
    """Run the job of the command line."""
    return run_job(optimize, sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
