"""Append the changes of a range of versions to a target with Spark: a program for spark-submit.

Parameters (see `airflow_delta.job_files`)::

    {"table_uri": "s3://lake/sales", "start": 12, "end": 17, "target_uri": "s3://lake/sales_changes",
     "format": "delta", "result_path": "/tmp/result.json"}

Optional: ``format`` (``delta`` or ``parquet``), ``result_path``, and ``allowed_outside``, a list of
locations outside its root that the table may read. The result::

    {"table_uri": …, "start_version": 12, "end_version": 17, "target_uri": …, "appended": true,
     "num_files": 4, "counts": {"insert": 900, "delete": 0, "update_preimage": 50,
     "update_postimage": 50}}

with ``committed_version`` if the target is a Delta table. If the target has the range already,
``appended`` is false and ``counts`` may be null; see `airflow_delta.change_feeds.request`. The
storage options become Spark's properties for the store; see
`airflow_delta.spark.runtime.hadoop_settings`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from airflow_delta.change_feeds.request import FeedRequest, check_feed_format
from airflow_delta.job_files import known_parameters, run_job
from airflow_delta.spark.runtime.job_sessions import job_session

__all__ = ["change_feed", "feed_request", "main"]

_REQUIRED: Mapping[str, type] = {"table_uri": str, "start": int, "end": int, "target_uri": str}
_OPTIONAL: Mapping[str, type] = {"format": str}


def change_feed(
    parameters: Mapping[str, Any], storage_options: Mapping[str, str]
) -> dict[str, Any]:
    """Append the changes, in a new Spark session.

    Raises:
        InvalidArgumentError: a parameter is invalid.
        DeltaError: see `append_changes`.
        PySparkException: Spark's own errors.
    """
    given = dict(parameters)
    allowed = given.pop("allowed_outside", [])
    request = feed_request(given)

    # Only after the parameters are checked, because importing PySpark takes time.
    from airflow_delta.spark.changes.feed import append_changes

    with job_session(storage_options, request.table_uri, request.target_uri) as spark:
        feed = append_changes(
            spark, request, storage_options=storage_options, allowed_outside=allowed
        )
    result = {
        "table_uri": request.table_uri,
        "start_version": request.start,
        "end_version": request.end,
        "target_uri": request.target_uri,
        "appended": feed.appended,
        "num_files": feed.num_files,
        "counts": feed.counts,
    }
    if feed.committed_version is not None:
        result["committed_version"] = feed.committed_version
    return result


def feed_request(parameters: Mapping[str, Any]) -> FeedRequest:
    """Check the parameters.

    Raises:
        InvalidArgumentError: one is missing, unknown, or of the wrong type.
    """
    given = known_parameters(parameters, {**_REQUIRED, **_OPTIONAL}, required=_REQUIRED)
    request = FeedRequest(**given)
    check_feed_format(request.format)
    return request


def main() -> int:
    """Run the job of the command line."""
    return run_job(change_feed, sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
