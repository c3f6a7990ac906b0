"""Copy a version of a Delta table with Spark: a program for spark-submit.

Parameters (see `airflow_delta.job_files`)::

    {"table_uri": "s3://lake/sales", "version": 7, "target_uri": "s3://lake/sales_7",
     "format": "parquet", "app_id": "airflow:daily.copy", "app_version": 1767225600000000,
     "replace_newer": false, "expire_after_ms": 604800000, "result_path": "/tmp/result.json"}

Optional: ``format`` (``parquet``, ``delta``, ``csv`` or ``json``), ``app_id`` with ``app_version``,
``replace_newer``, ``expire_after_ms``, ``result_path``, and ``allowed_outside``, a list of
locations outside its root that the table may read. The result::

    {"table_uri": …, "version": 7, "target_uri": …, "num_rows": 1000, "num_files": 4}

with ``committed_version`` if the copy is a Delta table, and ``expires_at`` (ISO-8601) if it
expires. ``num_rows`` is null if the statistics of a Delta copy don't contain it.
docs/how-to/copy-a-version.md says what a copy may replace at the target. The storage options
become Spark's properties for the store; see `airflow_delta.spark.runtime.hadoop_settings`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from airflow_delta.copies.formats import check_format
from airflow_delta.copies.request import CopyRequest
from airflow_delta.engine.snapshot.timestamps import utc_text
from airflow_delta.job_files import known_parameters, run_job, transaction_parameter
from airflow_delta.spark.runtime.job_sessions import job_session

__all__ = ["main", "materialize"]

_REQUIRED: Mapping[str, type] = {"table_uri": str, "version": int, "target_uri": str}
_OPTIONAL: Mapping[str, type] = {
    "format": str,
    "app_id": str,
    "app_version": int,
    "replace_newer": bool,
    "expire_after_ms": int,
}


def materialize(
    parameters: Mapping[str, Any], storage_options: Mapping[str, str]
) -> dict[str, Any]:
    """Make the copy, in a new Spark session.

    Raises:
        InvalidArgumentError: a parameter is invalid.
        DeltaError: see `copy_snapshot`.
        PySparkException: Spark's own errors.
    """
    given = dict(parameters)
    allowed = given.pop("allowed_outside", [])
    request = copy_request(given)

    # Only after the parameters are checked, because importing PySpark takes time.
    from airflow_delta.spark.copy.copies import copy_snapshot

    with job_session(storage_options, request.table_uri, request.target_uri) as spark:
        copy = copy_snapshot(
            spark, request, storage_options=storage_options, allowed_outside=allowed
        )
    result = {
        "table_uri": request.table_uri,
        "version": request.version,
        "target_uri": request.target_uri,
        "num_rows": copy.num_rows,
        "num_files": copy.num_files,
    }
    if copy.committed_version is not None:
        result["committed_version"] = copy.committed_version
    if copy.expires_at_ms is not None:
        result["expires_at"] = utc_text(copy.expires_at_ms)
    return result


def copy_request(parameters: Mapping[str, Any]) -> CopyRequest:
    """Check the parameters.

    Raises:
        InvalidArgumentError: one is missing, unknown, of the wrong type, or out of range.
    """
    given = known_parameters(parameters, {**_REQUIRED, **_OPTIONAL}, required=_REQUIRED)
    txn = transaction_parameter(given)
    request = CopyRequest(**given, txn=txn)
    check_format(request.format)
    return request


def main() -> int:
    """Run the job of the command line."""
    return run_job(materialize, sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
