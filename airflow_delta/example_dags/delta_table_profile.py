r"""Profile a Delta table, and fail if its figures are worse than those of the last good run.

Trigger it, or give it a schedule and defaults for its params::

    airflow dags test delta_table_profile -c '{"table_uri": "/data/sales", "columns": ["amount"]}'

One version is pinned for the whole run, so that other tasks of the DAG can read the same state. The
rules in ``check`` are an example; write your own. It returns the last good profile, with which the
next run is compared.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Param, get_current_context, task
from airflow.sdk.exceptions import AirflowFailException

from airflow_delta.operators.table_profile import TableProfileOperator
from airflow_delta.operators.time_travel_snapshot import TimeTravelSnapshotOperator
from airflow_delta.templates import optional

with DAG(
    dag_id="delta_table_profile",
    schedule=None,
    catchup=False,
    # Each run is compared with the one before it.
    max_active_runs=1,
    doc_md=__doc__,
    tags=["delta"],
    params={
        "table_uri": Param(
            type="string", minLength=1, description="The table: a path or URI such as s3://lake/t"
        ),
        "columns": Param(
            None,
            type=["null", "array"],
            items={"type": "string"},
            description="The columns to profile; empty: all of them",
        ),
        "predicate": Param(
            None,
            type=["null", "string"],
            description="Profile the rows of which this is true, such as day >= '2026-03-01'",
        ),
        "least_share_of_rows": Param(
            0.9,
            type="number",
            minimum=0,
            description="Fail where the rows have become fewer than this share of the last good run's",
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
    table: dict[str, Any] = {
        "table_uri": "{{ params.table_uri }}",
        "delta_conn_id": optional("{{ params.delta_conn_id }}"),
        "commit_owner_conn_id": optional("{{ params.commit_owner_conn_id }}"),
    }
    pin = TimeTravelSnapshotOperator(task_id="pin", **table)
    profile = TableProfileOperator(
        task_id="profile",
        version=pin.output["version"],
        columns=optional("{{ params.columns | tojson }}"),
        predicate=optional("{{ params.predicate }}"),
        spark_conn_id="{{ params.spark_conn_id }}",
        **table,
    )

    @task
    def check(found: Any) -> Any:
        """Compare a profile with the last good one of the table, and return it if it is good as well."""
        context = get_current_context()
        # Without map_indexes those of several earlier runs come.
        last = context["ti"].xcom_pull(task_ids="check", map_indexes=-1, include_prior_dates=True)
        if not last or last["table_uri"] != found["table_uri"]:
            logging.getLogger(__name__).info("there is no earlier profile to compare with")
            return found
        wrong = []
        share = context["params"]["least_share_of_rows"]
        if found["num_rows"] < share * last["num_rows"]:
            wrong.append(f"{found['num_rows']} rows, after {last['num_rows']}")
        for name, column in found["columns"].items():
            before = last["columns"].get(name)
            if before is not None and column["nulls"] and not before["nulls"]:
                wrong.append(f"{column['nulls']} nulls in {name}, which had none")
        if wrong:
            # Trying again would find the same.
            raise AirflowFailException(
                f"{found['table_uri']} has changed from version {last['version']} to "
                f"{found['version']}: {'; '.join(wrong)}"
            )
        return found

    check(profile.output)
