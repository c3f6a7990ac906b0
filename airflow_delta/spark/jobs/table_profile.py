"""Profile a version of a Delta table with Spark: a program for spark-submit.

Parameters (see `airflow_delta.job_files`)::

    {"table_uri": "s3://lake/sales", "version": 7, "columns": ["amount", "address.city"],
     "predicate": "day >= '2026-03-01'", "result_path": "/tmp/result.json"}

Optional: ``columns`` (the default is all), ``predicate``, ``result_path``, and ``allowed_outside``,
a list of locations outside its root that the table may read. The result is that of
`airflow_delta.profiles.profile.profile_report`, with ``table_uri``. The storage options become
Spark's properties for the store; see `airflow_delta.spark.runtime.hadoop_settings`.

The file isn't named ``profile.py``, because spark-submit puts its directory on the Python path,
where it would hide the module of the standard library.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.job_files import known_parameters, run_job
from airflow_delta.profiles.profile import profile_report
from airflow_delta.spark.runtime.job_sessions import job_session

__all__ = ["main", "table_profile"]

_PARAMETERS: Mapping[str, type] = {
    "table_uri": str,
    "version": int,
    "columns": list,
    "predicate": str,
    "allowed_outside": list,
}


def table_profile(
    parameters: Mapping[str, Any], storage_options: Mapping[str, str]
) -> dict[str, Any]:
    """Profile the table, in a new Spark session.

    Raises:
        InvalidArgumentError: a parameter is invalid, there is no such column, or Spark can't resolve the
            condition with the columns.
        DeltaError: see `profile_snapshot`.
        PySparkException: Spark's own errors.
    """
    given = known_parameters(parameters, _PARAMETERS, required=["table_uri", "version"])
    table_uri = given.pop("table_uri")

    # Only after the parameters are checked, because importing PySpark takes time.
    from pyspark.errors import AnalysisException

    from airflow_delta.spark.profile.profiling import profile_snapshot

    with job_session(storage_options, table_uri) as spark:
        try:
            found = profile_snapshot(spark, table_uri, **given, storage_options=storage_options)
        except AnalysisException as error:
            if "predicate" not in given:
                raise
            # This error depends on columns and types only, so a retry wouldn't help. The first line is the
            # reason, the others are the query plan.
            reason = str(error).strip().partition("\n")[0]
            raise InvalidArgumentError(
                f"predicate {given['predicate']!r}: {reason}", table=table_uri
            ) from error
    return {"table_uri": table_uri, **profile_report(found)}


def main() -> int:
    """Run the job of the command line."""
    return run_job(table_profile, sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
