r"""Append the files of a run to a Delta table, exactly once, and work with the version that has them.

The task ``land`` writes a few example rows as JSON lines; replace it by the one that brings your files.
Each run has a directory of its own, so that a cleared run appends no other files::

    airflow dags test delta_ingest -c '{"table_uri": "/data/orders", "landing_dir": "/data/landing"}'

``write`` creates the table in the first run. Its commit contains the identity of the task in its DAG run,
so a retry, or the cleared task, appends nothing twice. The tasks after it read the version of this commit,
even if other runs have written in the meantime.
"""

from __future__ import annotations

import json
import logging
from datetime import timedelta
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from airflow.sdk import DAG, ObjectStoragePath, Param, get_current_context, task

from airflow_delta.operators.table_profile import TableProfileOperator
from airflow_delta.operators.write import WriteOperator
from airflow_delta.templates import optional

with DAG(
    dag_id="delta_ingest",
    schedule=None,
    catchup=False,
    doc_md=__doc__,
    tags=["delta"],
    params={
        "table_uri": Param(
            type="string", minLength=1, description="The table: a path or URI such as s3://lake/t"
        ),
        "landing_dir": Param(
            type="string", minLength=1, description="Where files land: in the store of the table"
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
            {"day": f"{run_after:%Y-%m-%d}", "country": country, "amount": amount}
            for country, amount in (("de", 9.5), ("fr", 20.0), ("de", 1.25))
        ]
        lines = "".join(f"{json.dumps(row)}\n" for row in rows)
        (directory / "orders.json").write_text(lines)
        return str(directory)

    write = WriteOperator(
        task_id="write",
        table_uri="{{ params.table_uri }}",
        source_uri=land(),
        source_format="json",
        source_schema="day DATE, country STRING, amount DOUBLE",
        mode="append",
        partition_by=["day"],
        properties={"delta.constraints.positive": "amount > 0"},
        **access,
    )

    profile = TableProfileOperator(
        task_id="profile",
        table_uri=write.output["table_uri"],
        version=write.output["version"],
        # Only the number of rows, which is in the log.
        columns=[],
        **access,
    )

    @task
    def report(written: Any, found: Any) -> None:
        """Log what was written; replace this task by those that use the table."""
        logging.getLogger(__name__).info(
            "%s rows appended; version %s has %s",
            (written["metrics"] or {}).get("numOutputRows"),
            found["version"],
            found["num_rows"],
        )

    report(write.output, profile.output)
