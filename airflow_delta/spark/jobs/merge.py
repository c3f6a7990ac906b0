"""Merge the rows of a source into a Delta table with Spark: a program for spark-submit.

Parameters (see `airflow_delta.job_files`)::

    {"table_uri": "s3://lake/orders", "source": {"uri": "s3://landing/orders", "format": "json"},
     "on": "target.id = source.id", "clauses": [{"when": "matched", "then": "update"}],
     "app_id": "airflow:daily.orders", "app_version": 1767225600000000, "result_path": "/tmp/result.json"}

``source`` is described in `airflow_delta.row_sources.source`, a clause in
`airflow_delta.row_changes.clauses`. Optional: ``app_id`` with ``app_version``, ``result_path``, and the
arguments of `airflow_delta.spark.merge`. The result::

    {"table_uri": …, "version": 8, "committed": true, "repeated": false}

``repeated`` is true if an earlier try has made the commit. The storage options become Spark's properties
for the store; see `airflow_delta.spark.runtime.hadoop_settings`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from airflow_delta.job_files import change_report, known_parameters, run_job, transaction_parameter
from airflow_delta.row_changes.clauses import parse_clauses
from airflow_delta.row_sources.source import parse_source, source_locations
from airflow_delta.spark.runtime.job_sessions import job_session

__all__ = ["main", "merge"]

_PARAMETERS: Mapping[str, type] = {
    "table_uri": str,
    "source": dict,
    "on": str,
    "clauses": list,
    "source_alias": str,
    "target_alias": str,
    "merge_schema": bool,
    "user_metadata": str,
    "app_id": str,
    "app_version": int,
    "allowed_outside": list,
}
_REQUIRED = ("table_uri", "source", "on", "clauses")


def merge(parameters: Mapping[str, Any], storage_options: Mapping[str, str]) -> dict[str, Any]:
    """Merge the rows, in a new Spark session.

    Raises:
        InvalidArgumentError: a parameter is invalid; or see `load_rows`.
        DeltaError: see `airflow_delta.spark.merge`.
        PySparkException: Spark's own errors.
    """
    given = known_parameters(parameters, _PARAMETERS, required=_REQUIRED)
    txn = transaction_parameter(given)
    source, clauses = (
        parse_source(given.pop("source")),
        parse_clauses(given.pop("clauses"), name="parameter 'clauses'"),
    )
    table_uri = given.pop("table_uri")

    # Only after the parameters are checked, because importing PySpark takes time.
    from airflow_delta.spark.dml.merge import merge as merging
    from airflow_delta.spark.sources import load_rows

    with job_session(storage_options, table_uri, *source_locations(source)) as spark:
        rows = load_rows(spark, source, storage_options=storage_options)
        builder = merging.merge(
            spark, table_uri, rows, **given, txn=txn, storage_options=storage_options
        )
        for clause in clauses:
            builder = builder.with_clause(clause)
        result = builder.execute()
    return change_report(
        table_uri, result.version, written=result.written, repeated=result.repeated
    )


def main() -> int:
    """Run the job of the command line."""
    return run_job(merge, sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
