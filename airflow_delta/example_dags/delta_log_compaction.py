r"""Compact the log of a Delta table between checkpoints, so that it stays fast to open.

Run it for any table::

    airflow dags test delta_log_compaction -c '{"table_uri": "/data/sales"}'

To run it every hour, set ``schedule`` and a default for ``table_uri``. With few new commits the
task is skipped. A checkpoint, for example of a nightly DAG, replaces the compactions before it.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Param

from airflow_delta.operators.log_compaction import LogCompactionOperator
from airflow_delta.templates import optional

with DAG(
    dag_id="delta_log_compaction",
    schedule=None,
    catchup=False,
    doc_md=__doc__,
    tags=["delta"],
    params={
        "table_uri": Param(
            type="string", minLength=1, description="The table: a path or URI such as s3://lake/t"
        ),
        "start": Param(
            None, type=["null", "integer"], minimum=0, description="First version; empty: chosen"
        ),
        "end": Param(
            None, type=["null", "integer"], minimum=0, description="Last version; empty: the newest"
        ),
        "delta_conn_id": Param(
            None,
            type=["null", "string"],
            description="Connection of the store; empty: the default of the URI's scheme",
        ),
    },
) as dag:
    LogCompactionOperator(
        task_id="compact_log",
        table_uri="{{ params.table_uri }}",
        start=optional("{{ params.start }}"),
        end=optional("{{ params.end }}"),
        delta_conn_id=optional("{{ params.delta_conn_id }}"),
        retries=2,
        retry_delay=timedelta(seconds=30),
    )
