r"""Convert a Delta table to a managed table of the SQL commit owner, and keep it backfilled.

Run it for any table; the connection ``delta_commit_owner_default`` names the owner's database::

    airflow dags test delta_managed_commits -c '{"table_uri": "/data/sales"}'

The first run converts the table; later ones find that done, and keep its backfill policy unless
they get another. Each run waits in the triggerer until all versions that were ratified at its start
are backfilled, and has the owner do it. If the owner's database is down for an hour, the wait takes
an hour longer, but no worker slot. Then a checkpoint is written if one is due.

The other tasks need the database, and are retried for half an hour. Only a table that is already
managed needs no database for the first task.

To backfill on a schedule, set ``schedule`` and a default for ``table_uri``.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Param

from airflow_delta.operators.checkpoint import CheckpointOperator
from airflow_delta.operators.commit_ownership import ConvertToManagedCommitOperator
from airflow_delta.sensors.backfill import BackfillSensor
from airflow_delta.templates import optional

with DAG(
    dag_id="delta_managed_commits",
    schedule=None,
    catchup=False,
    doc_md=__doc__,
    tags=["delta"],
    params={
        "table_uri": Param(
            type="string", minLength=1, description="The table: a path or URI such as s3://lake/t"
        ),
        "backfill": Param(
            None,
            type=["null", "string"],
            pattern="^([1-9][0-9]*|on-request|direct)$",
            description="When writers backfill: after so many versions, on-request, or direct; empty: as "
            "the table has it, and a table that is handed over now after each version",
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
    },
    default_args={
        # After 30 seconds at least, then 1, 2, 4, 8 and 15 minutes.
        "retries": 6,
        "retry_delay": timedelta(seconds=30),
        "retry_exponential_backoff": 2.0,
        "max_retry_delay": timedelta(minutes=15),
        "delta_conn_id": optional("{{ params.delta_conn_id }}"),
        "commit_owner_conn_id": optional("{{ params.commit_owner_conn_id }}"),
    },
) as dag:
    hand_over = ConvertToManagedCommitOperator(
        task_id="hand_over",
        table_uri="{{ params.table_uri }}",
        conf={"backfill": optional("{{ params.backfill }}")},
    )
    wait_for_backfill = BackfillSensor(
        task_id="wait_for_backfill",
        table_uri="{{ params.table_uri }}",
        trigger_backfill=True,
        silent_fail=True,
        deferrable=True,
        poke_interval=60,
        timeout=timedelta(hours=12),
    )
    checkpoint = CheckpointOperator(
        task_id="checkpoint",
        table_uri="{{ params.table_uri }}",
        if_needed=True,
        backfill_first=True,
    )

    hand_over >> wait_for_backfill >> checkpoint
