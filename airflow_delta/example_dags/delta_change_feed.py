r"""Append the changes of a Delta table since the last run to a target, exactly once.

The table needs ``delta.enableChangeDataFeed``. Trigger the DAG as often as you like, or give it a
schedule and defaults for its params::

    airflow dags test delta_change_feed \
        -c '{"table_uri": "/data/sales", "target_uri": "/data/sales_changes"}'

The first run begins with ``start_version``; each later one continues after the run before, up to
``end_version`` or the newest version. If nothing is new, the tasks are skipped. The target itself
records which versions it has.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Param, task

from airflow_delta.operators.change_feed import ChangeFeedOperator
from airflow_delta.templates import optional

with DAG(
    dag_id="delta_change_feed",
    schedule=None,
    catchup=False,
    max_active_runs=1,
    doc_md=__doc__,
    tags=["delta"],
    params={
        "table_uri": Param(
            type="string", minLength=1, description="The table: a path or URI such as s3://lake/t"
        ),
        "target_uri": Param(
            None,
            type=["null", "string"],
            description="Where the changes go; empty: the run only says which versions are new",
        ),
        "target_format": Param(
            "delta", enum=["delta", "parquet"], description="What is written there"
        ),
        "start_version": Param(
            0, type="integer", minimum=0, description="The version that the first run begins with"
        ),
        "end_version": Param(
            None,
            type=["null", "integer"],
            minimum=0,
            description="Go no farther than this version; empty: up to the newest",
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
    def report(found: dict[str, Any]) -> None:
        """Log the changes; replace this task by those that use them."""
        logging.getLogger(__name__).info("versions and changes: %s", found)

    change_feed = ChangeFeedOperator(
        task_id="change_feed",
        table_uri="{{ params.table_uri }}",
        target_uri=optional("{{ params.target_uri }}"),
        target_format="{{ params.target_format }}",
        start_version="{{ params.start_version }}",
        end_version=optional("{{ params.end_version }}"),
        delta_conn_id=optional("{{ params.delta_conn_id }}"),
        commit_owner_conn_id=optional("{{ params.commit_owner_conn_id }}"),
        spark_conn_id="{{ params.spark_conn_id }}",
        # Two at a time would both take the versions that are new, and backfills have runs of their own,
        # which max_active_runs doesn't count.
        max_active_tis_per_dag=1,
    )
    report(change_feed.output)
