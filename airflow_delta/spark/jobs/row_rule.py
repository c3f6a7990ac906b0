"""Add a rule for the rows of a Delta table with Spark: a program for spark-submit.

Parameters (see `airflow_delta.job_files`), for a CHECK constraint::

    {"table_uri": "s3://lake/sales", "name": "known", "expression": "country <> ''",
     "app_id": "airflow:daily.known", "app_version": 1767225600000000, "result_path": "/tmp/result.json"}

or for NOT NULL, with the names of the column from the top down::

    {"table_uri": "s3://lake/sales", "column": ["address", "city"]}

Optional: ``app_id`` with ``app_version``, ``result_path``, and ``allowed_outside``, a list of locations
outside its root that the table may read. The result::

    {"table_uri": …, "version": 7, "repeated": false}

``repeated`` is true if an earlier try has made the commit. The storage options become Spark's properties
for the store; see `airflow_delta.spark.runtime.hadoop_settings`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.job_files import known_parameters, run_job, transaction_parameter
from airflow_delta.spark.runtime.job_sessions import job_session

__all__ = ["main", "row_rule"]

_PARAMETERS: Mapping[str, type] = {
    "table_uri": str,
    "name": str,
    "expression": str,
    "column": list,
    "app_id": str,
    "app_version": int,
    "allowed_outside": list,
}


def row_rule(parameters: Mapping[str, Any], storage_options: Mapping[str, str]) -> dict[str, Any]:
    """Check the rows and add the rule, in a new Spark session.

    Raises:
        InvalidArgumentError: a parameter is invalid, or see `add_constraint`.
        DeltaError: see `add_constraint`.
        PySparkException: Spark's own errors.
    """
    given = known_parameters(parameters, _PARAMETERS, required=["table_uri"])
    rule = {name: given.pop(name) for name in ("name", "expression", "column") if name in given}
    if rule.keys() not in ({"name", "expression"}, {"column"}):
        raise InvalidArgumentError(
            f"parameters: expected either name and expression, or column; found {sorted(rule)}"
        )
    txn = transaction_parameter(given)
    table_uri = given.pop("table_uri")

    # Only after the parameters are checked, because importing PySpark takes time.
    from airflow_delta.spark.alterations import row_rules

    add = row_rules.set_not_null if "column" in rule else row_rules.add_constraint
    with job_session(storage_options, table_uri) as spark:
        commit = add(
            spark,
            table_uri,
            **rule,
            txn=txn,
            storage_options=storage_options,
            **given,
        )
    return {"table_uri": table_uri, "version": commit.version, "repeated": commit.repeated}


def main() -> int:
    """Run the job of the command line."""
    return run_job(row_rule, sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
