r"""Merge the files of a run into a Delta table by a key, and append what changed to a change feed.

The task ``land`` writes a few example rows as JSON lines; replace it by the one that brings your files.
The table must exist, with the columns ``id INT, status STRING, changed_at TIMESTAMP`` and
``delta.enableChangeDataFeed``::

    airflow dags test delta_upsert -c '{"table_uri": "/data/orders", "landing_dir": "/data/landing",
        "changes_uri": "/data/orders_changes"}'

``upsert`` deletes the orders that are void, updates those that have changed since, and inserts new ones, in
one commit. It contains the identity of the task in its DAG run, so a retry, or the cleared task, merges
nothing twice. ``changes`` appends exactly the changed rows to its target, each version once.
"""

from __future__ import annotations

import json
import logging
from datetime import timedelta
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from airflow.sdk import DAG, ObjectStoragePath, Param, get_current_context, task

from airflow_delta.operators.change_feed import ChangeFeedOperator
from airflow_delta.operators.merge import MergeOperator
from airflow_delta.templates import optional

with DAG(
    dag_id="delta_upsert",
    schedule=None,
    catchup=False,
    max_active_runs=1,
    doc_md=__doc__,
    tags=["delta"],
    params={
        "table_uri": Param(
            type="string", minLength=1, description="The table: a path or URI such as s3://lake/t"
        ),
        "landing_dir": Param(
            type="string", minLength=1, description="Where files land: in the store of the table"
        ),
        "changes_uri": Param(
            type="string", minLength=1, description="Where the changes go, as a Delta table"
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
    access: dict[str, Any] = {
        "delta_conn_id": optional("{{ params.delta_conn_id }}"),
        "commit_owner_conn_id": optional("{{ params.commit_owner_conn_id }}"),
        "spark_conn_id": "{{ params.spark_conn_id }}",
    }

    @task
    def land() -> str:
        """Write the files of this run, and return their directory."""
        context = get_current_context()
        run_after = context["dag_run"].run_after
        params = context["params"]
        # Only the id identifies a run: several may have the same time. It may have characters that paths
        # don't have, and its UUID has none.
        name = f"{run_after:%Y%m%dT%H%M%S}_{uuid5(NAMESPACE_OID, context['run_id'])}"
        directory = ObjectStoragePath(
            f"{params['landing_dir'].rstrip('/')}/{name}",
            conn_id=params["delta_conn_id"],
        )
        directory.mkdir(parents=True, exist_ok=True)
        rows = [
            {"id": id_, "status": status, "changed_at": run_after.isoformat()}
            for id_, status in ((1, "paid"), (2, "void"), (3, "open"))
        ]
        lines = "".join(f"{json.dumps(row)}\n" for row in rows)
        (directory / "orders.json").write_text(lines)
        return str(directory)

    upsert = MergeOperator(
        task_id="upsert",
        table_uri="{{ params.table_uri }}",
        source_uri=land(),
        source_format="json",
        source_schema="id INT, status STRING, changed_at TIMESTAMP",
        on="target.id = source.id",
        clauses=[
            {"when": "matched", "then": "delete", "condition": "source.status = 'void'"},
            {
                "when": "matched",
                "then": "update",
                "condition": "source.changed_at > target.changed_at",
            },
            {"when": "not_matched", "then": "insert", "condition": "source.status <> 'void'"},
        ],
        **access,
    )

    changes = ChangeFeedOperator(
        task_id="changes",
        table_uri=upsert.output["table_uri"],
        target_uri="{{ params.changes_uri }}",
        # Two at a time would both take the versions that are new, and backfills have runs of their own,
        # which max_active_runs doesn't count.
        max_active_tis_per_dag=1,
        **access,
    )

    @task
    def report(merged: Any, found: Any) -> None:
        """Log what has changed; replace this task by those that use the changes."""
        logging.getLogger(__name__).info(
            "merged into version %s: %s; changes by kind: %s",
            merged["version"],
            merged["metrics"],
            found["counts"],
        )

    report(upsert.output, changes.output)
