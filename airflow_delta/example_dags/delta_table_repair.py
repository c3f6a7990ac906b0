r"""Repair a Delta table by hand: restore an earlier version, or drop a table feature.

Trigger it in the user interface or on the command line. The first run only reports what would be done::

    airflow dags test delta_table_repair \
        -c '{"table_uri": "/data/sales", "operation": "restore", "version": 41}'

Then run it with ``"dry_run": false``. The logs and XComs of the tasks have the plan and the results.

By default a feature is dropped with protected checkpoints, which needs no waiting. Engines without
the feature ``checkpointProtection`` need ``"truncate_history": true``: the first task prepares the
table, the sensor waits for a day in the triggerer, and the last task truncates the history and
drops the feature. Any failed task may be retried.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Param, task

from airflow_delta.operators.drop_feature import DropFeatureOperator
from airflow_delta.operators.restore import RestoreOperator
from airflow_delta.sensors.truncation import TruncationSensor
from airflow_delta.templates import optional

with DAG(
    dag_id="delta_table_repair",
    schedule=None,
    catchup=False,
    doc_md=__doc__,
    tags=["delta"],
    params={
        "table_uri": Param(
            type="string", minLength=1, description="The table: a path or URI such as s3://lake/t"
        ),
        "operation": Param(
            "restore", enum=["restore", "drop_feature"], description="What is to be done"
        ),
        "dry_run": Param(
            True, type="boolean", description="Change nothing; only report what would be done"
        ),
        "version": Param(
            None, type=["null", "integer"], minimum=0, description="Restore: this version, or"
        ),
        "timestamp": Param(
            None,
            type=["null", "string"],
            description="Restore: the newest version at this time, as ISO-8601 with an offset",
        ),
        "feature": Param(
            None,
            type=["null", "string"],
            description="Drop feature: its name, such as deletionVectors",
        ),
        "truncate_history": Param(
            False,
            type="boolean",
            description="Drop feature: have the history with it expire, which takes a day",
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
        "spark_conn_id": Param(
            "spark_default",
            type=["null", "string"],
            description="Connection of Spark, for features that are in data files; empty: none",
        ),
    },
    default_args={
        "retries": 2,
        "retry_delay": timedelta(seconds=30),
        "delta_conn_id": optional("{{ params.delta_conn_id }}"),
        "commit_owner_conn_id": optional("{{ params.commit_owner_conn_id }}"),
    },
) as dag:

    @task.branch
    def choose_operation(params: dict[str, Any]) -> str:
        """Return the id of the task for the chosen operation."""
        return str(params["operation"])

    @task.short_circuit
    def history_must_expire(status: str) -> bool:
        """Whether there is anything to wait for."""
        return status == "waiting"

    restore = RestoreOperator(
        task_id="restore",
        table_uri="{{ params.table_uri }}",
        version=optional("{{ params.version }}"),
        timestamp=optional("{{ params.timestamp }}"),
        backfill_first=True,
        dry_run="{{ params.dry_run }}",
    )
    drop_feature = DropFeatureOperator(
        task_id="drop_feature",
        table_uri="{{ params.table_uri }}",
        feature="{{ params.feature }}",
        truncate_history="{{ params.truncate_history }}",
        dry_run="{{ params.dry_run }}",
        spark_conn_id=optional("{{ params.spark_conn_id }}"),
    )
    wait_for_history = TruncationSensor(
        task_id="wait_for_history",
        table_uri="{{ params.table_uri }}",
        feature="{{ params.feature }}",
        deferrable=True,
        poke_interval=300,
        timeout=timedelta(days=8),
    )
    drop_for_good = DropFeatureOperator(
        task_id="drop_for_good",
        table_uri="{{ params.table_uri }}",
        feature="{{ params.feature }}",
        truncate_history=True,
        must_drop=True,
        spark_conn_id=optional("{{ params.spark_conn_id }}"),
    )

    choose_operation() >> [restore, drop_feature]
    history_must_expire(drop_feature.output["status"]) >> wait_for_history >> drop_for_good
