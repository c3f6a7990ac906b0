"""Rewrite data files of a Delta table without a table feature: a program for spark-submit.

Parameters (see `airflow_delta.job_files`)::

    {"table_uri": "s3://lake/sales", "feature": "deletionVectors", "result_path": "/tmp/result.json"}

``feature`` is ``deletionVectors``, ``columnMapping`` or ``typeWidening``. Optional:
``result_path``, and ``allowed_outside``, a list of locations outside its root that the table may
read. The result is that of `airflow_delta.spark.rewrite.rewrite.rewrite_report`. The storage
options become Spark's properties for the store; see `airflow_delta.spark.runtime.hadoop_settings`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from airflow_delta.job_files import known_parameters, run_job
from airflow_delta.spark.runtime.job_sessions import job_session

__all__ = ["main", "rewrite"]

_REQUIRED: Mapping[str, type] = {"table_uri": str, "feature": str}
_OPTIONAL: Mapping[str, type] = {"allowed_outside": list}


def rewrite(parameters: Mapping[str, Any], storage_options: Mapping[str, str]) -> dict[str, Any]:
    """Rewrite the files, in a new Spark session.

    Raises:
        InvalidArgumentError: a parameter is invalid.
        DeltaError: see `rewrite_data`.
        PySparkException: Spark's own errors.
    """
    given = known_parameters(parameters, {**_REQUIRED, **_OPTIONAL}, required=_REQUIRED)

    # Only after the parameters are checked, because importing PySpark takes time.
    from airflow_delta.spark.rewrite.rewrite import rewrite_data, rewrite_report

    table_uri, feature = given["table_uri"], given["feature"]
    with job_session(storage_options, table_uri) as spark:
        result = rewrite_data(
            spark,
            table_uri,
            feature,
            storage_options=storage_options,
            allowed_outside=given.get("allowed_outside", ()),
        )
    return rewrite_report(result)


def main() -> int:
    """Run the job of the command line."""
    return run_job(rewrite, sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
