"""Write the rows of a source to a Delta table with Spark: a program for spark-submit.

Parameters (see `airflow_delta.job_files`)::

    {"table_uri": "s3://lake/orders", "source": {"query": "SELECT * FROM new WHERE amount > 0",
     "tables": {"new": {"table_uri": "s3://lake/landed", "version": 7, "allowed_outside": []}}},
     "mode": "append", "app_id": "airflow:daily.orders", "app_version": 1767225600000000,
     "result_path": "/tmp/result.json"}

``source`` is described in `airflow_delta.row_sources.source`. Optional: ``app_id`` with ``app_version``,
``result_path``, and the arguments of `airflow_delta.spark.write`. The result::

    {"table_uri": …, "version": 8, "committed": true, "repeated": false, "compaction": null}

``repeated`` is true if an earlier try has made the commit. ``committed`` is false if there is no commit,
because the mode is ``ignore`` and the table exists, or nothing is to be written. ``compaction`` has the
attributes of `AutoCompaction` if small files were compacted after the write. The storage options become
Spark's properties for the store; see `airflow_delta.spark.runtime.hadoop_settings`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from airflow_delta.job_files import change_report, known_parameters, run_job, transaction_parameter
from airflow_delta.row_sources.source import parse_source, source_locations
from airflow_delta.spark.runtime.job_sessions import job_session

__all__ = ["main", "write"]

_PARAMETERS: Mapping[str, type] = {
    "table_uri": str,
    "source": dict,
    "mode": str,
    "partition_by": list,
    "cluster_by": list,
    "properties": dict,
    "replace_where": str,
    "partition_overwrite": str,
    "merge_schema": bool,
    "overwrite_schema": bool,
    "optimize_write": bool,
    "target_file_size": int,
    "user_metadata": str,
    "app_id": str,
    "app_version": int,
    "allowed_outside": list,
}


def write(parameters: Mapping[str, Any], storage_options: Mapping[str, str]) -> dict[str, Any]:
    """Write the rows, in a new Spark session.

    Raises:
        InvalidArgumentError: a parameter is invalid; or see `load_rows`.
        DeltaError: see `airflow_delta.spark.write`.
        PySparkException: Spark's own errors.
    """
    given = known_parameters(parameters, _PARAMETERS, required=["table_uri", "source"])
    txn = transaction_parameter(given)
    source = parse_source(given.pop("source"))
    table_uri = given.pop("table_uri")

    # Only after the parameters are checked, because importing PySpark takes time.
    from airflow_delta.spark.ingest import write as writer
    from airflow_delta.spark.sources import load_rows

    with job_session(storage_options, table_uri, *source_locations(source)) as spark:
        rows = load_rows(spark, source, storage_options=storage_options)
        result = writer.write(rows, table_uri, **given, txn=txn, storage_options=storage_options)
    report = change_report(
        table_uri, result.version, written=result.written, repeated=result.repeated
    )
    return {**report, "compaction": result.compaction and asdict(result.compaction)}


def main() -> int:
    """Run the job of the command line."""
    return run_job(write, sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
