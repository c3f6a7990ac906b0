r"""Make a directory of Parquet files a Delta table, and write a checkpoint of it.

Trigger it in the user interface or on the command line::

    airflow dags test delta_convert \
        -c '{"table_uri": "/data/events", "partition_schema": ["day:date"]}'

No data file is touched. A directory that is a Delta table already stays as it is. The checkpoint spares
readers the commit, which lists all files.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Param

from airflow_delta.operators.checkpoint import CheckpointOperator
from airflow_delta.operators.convert import ConvertToDeltaOperator
from airflow_delta.templates import optional

with DAG(
    dag_id="delta_convert",
    schedule=None,
    catchup=False,
    doc_md=__doc__,
    tags=["delta"],
    params={
        "table_uri": Param(
            type="string",
            minLength=1,
            description="The directory: a path or URI such as s3://lake/events",
        ),
        "partition_schema": Param(
            [],
            type="array",
            items={"type": "string"},
            description="The partition columns, in order, with their types, such as day:date",
        ),
        "properties": Param(
            {}, type="object", description="Table properties, such as delta.enableDeletionVectors"
        ),
        "delta_conn_id": Param(
            None,
            type=["null", "string"],
            description="Connection of the store; empty: the default of the URI's scheme",
        ),
    },
    default_args={
        "retries": 2,
        "retry_delay": timedelta(seconds=30),
        "delta_conn_id": optional("{{ params.delta_conn_id }}"),
    },
) as dag:
    convert = ConvertToDeltaOperator(
        task_id="convert",
        table_uri="{{ params.table_uri }}",
        partition_schema="{{ params.partition_schema | tojson }}",
        properties="{{ params.properties | tojson }}",
    )
    # Without ``if_needed``, by which a single commit, however large, needs none.
    checkpoint = CheckpointOperator(task_id="checkpoint", table_uri=convert.output["table_uri"])
