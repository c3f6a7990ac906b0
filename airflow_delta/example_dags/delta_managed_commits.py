r"""Let the SQL commit owner ratify the commits of one Delta table, and keep the table backfilled.

Start it for any table; the connection ``delta_commit_owner_default`` names the owner's database::

    airflow dags test delta_managed_commits -c '{"table_uri": "/data/sales"}'

The first run hands the table over; later ones find that done, and take the policy that the table has,
unless they are given another. Each run waits until all is backfilled that was ratified when it looked, and
asks the owner to do it, in the triggerer: if the owner's database is down for an hour, the wait takes an
hour longer and no worker slot. Then a checkpoint is written if one is due.

Only the wait is that patient. To hand a table over, and to backfill what came after the wait, the database
must be there: these tasks are tried again for half an hour. That a table is managed already is seen without
it.

To backfill on a schedule, give ``schedule`` and a default for ``table_uri``.
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
