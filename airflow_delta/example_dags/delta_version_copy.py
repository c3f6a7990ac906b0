r"""Copy a version of a Delta table to a new location for each run, and delete expired copies.

Trigger it as often as you like, or give it a schedule and defaults for its params::

    airflow dags test delta_version_copy -c '{"table_uri": "/data/sales", "target_dir": "/data/pins"}'

The copy is named after the time of the run and a UUID of its id, such as
``sales_20260131T120000_37e77fce-0310-5727-a4be-14a462938bd1``. Tasks that use it all read the
same, even in retries. Later runs delete copies of the same table that are older than ``keep``,
unless somebody has written to them.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Param, task

from airflow_delta.operators.time_travel_snapshot import TimeTravelSnapshotOperator
from airflow_delta.templates import optional

# Only the id identifies a run: several may have the same time. It may have characters that paths don't
# have, and its UUID has none.
TARGET = (
    "{{ params.target_dir.rstrip('/') }}/{{ params.table_uri.rstrip('/').split('/') | last }}_"
    "{{ dag_run.run_after.strftime('%Y%m%dT%H%M%S') }}_"
    "{{ macros.uuid.uuid5(macros.uuid.NAMESPACE_OID, run_id) }}"
)

with DAG(
    dag_id="delta_version_copy",
    schedule=None,
    catchup=False,
    doc_md=__doc__,
    tags=["delta"],
    params={
        "table_uri": Param(
            type="string", minLength=1, description="The table: a path or URI such as s3://lake/t"
        ),
        "target_dir": Param(
            type="string", minLength=1, description="The directory of the copies, for nothing else"
        ),
        "target_format": Param(
            "delta", enum=["delta", "parquet", "csv", "json"], description="What the copies are"
        ),
        "timestamp": Param(
            None,
            type=["null", "string"],
            description="Copy the newest version at this time, in ISO-8601; empty: the newest one",
        ),
        "keep": Param(
            "P7D",
            type=["null", "string"],
            description="How old copies must be to be deleted, such as P7D; empty: they are kept",
        ),
        "delta_conn_id": Param(
            None,
            type=["null", "string"],
            description="Connection of the store; empty: the default of the URI's scheme",
        ),
        "commit_owner_conn_id": Param(
            None,
            type=["null", "string"],
            description="Connection of the commit owner; empty: delta_commit_owner_default",
        ),
        "spark_conn_id": Param("spark_default", type="string", description="Connection of Spark"),
    },
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
) as dag:

    @task
    def report(copied: dict[str, Any]) -> None:
        """Log the copy; replace this task by those that use the copy."""
        logging.getLogger(__name__).info("the copy: %s", copied)

    copy = TimeTravelSnapshotOperator(
        task_id="copy",
        table_uri="{{ params.table_uri }}",
        timestamp=optional("{{ params.timestamp }}"),
        target_uri=TARGET,
        target_format="{{ params.target_format }}",
        expire_after=optional("{{ params.keep }}"),
        delta_conn_id=optional("{{ params.delta_conn_id }}"),
        commit_owner_conn_id=optional("{{ params.commit_owner_conn_id }}"),
        spark_conn_id="{{ params.spark_conn_id }}",
    )
    report(copy.output)
