r"""Maintain a Delta table: wait for a new version, pin it, checkpoint it, copy it, optimize and clean up.

Run it for any table, by hand or from another DAG::

    airflow dags test delta_table_maintenance \
        -c '{"table_uri": "/data/sales", "target_uri": "/data/sales_pinned"}'

All tasks up to the copy use the pinned version, so that commits in between don't matter. Then small
files are rewritten together, ten gigabytes in a run at most. The last two tasks delete what the
table's properties don't protect: the log before ``delta.logRetentionDuration`` (by default 30 days),
and files that were removed before ``delta.deletedFileRetentionDuration`` (by default a week). With
``"dry_run": true`` these three only report what they would rewrite or delete.

To run it on a schedule, set ``schedule`` and defaults for the params, and let ``after_version``
follow the previous run.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Param

from airflow_delta.operators.checkpoint import CheckpointOperator
from airflow_delta.operators.metadata_cleanup import MetadataCleanupOperator
from airflow_delta.operators.optimize import OptimizeOperator
from airflow_delta.operators.time_travel_snapshot import TimeTravelSnapshotOperator
from airflow_delta.operators.vacuum import VacuumOperator
from airflow_delta.sensors.table_version import TableVersionSensor
from airflow_delta.templates import optional

with DAG(
    dag_id="delta_table_maintenance",
    schedule=None,
    catchup=False,
    doc_md=__doc__,
    tags=["delta"],
    params={
        "table_uri": Param(
            type="string", minLength=1, description="The table: a path or URI such as s3://lake/t"
        ),
        "target_uri": Param(
            None,
            type=["null", "string"],
            description="Where to copy the pinned version to; empty: no copy",
        ),
        "target_format": Param(
            "delta", enum=["delta", "parquet", "csv", "json"], description="The copy's format"
        ),
        "after_version": Param(
            -1, type="integer", minimum=-1, description="Wait for a version newer than this"
        ),
        "max_bytes": Param(
            10 << 30,
            type=["null", "integer"],
            minimum=1,
            description="The most bytes of small files to rewrite; empty: no limit",
        ),
        "vacuum_mode": Param(
            "full",
            enum=["full", "lite"],
            description="Look at all files, or at those that commits have removed since the last vacuum",
        ),
        "dry_run": Param(
            False,
            type="boolean",
            description="Rewrite and delete nothing; only report what would be done",
        ),
        "delta_conn_id": Param(
            None,
            type=["null", "string"],
            description="Connection of the store; empty: the default of the URI's scheme",
        ),
        "spark_conn_id": Param("spark_default", type="string", description="Connection of Spark"),
    },
    default_args={
        "retries": 2,
        "retry_delay": timedelta(seconds=30),
        "delta_conn_id": optional("{{ params.delta_conn_id }}"),
    },
) as dag:
    wait_for_version = TableVersionSensor(
        task_id="wait_for_version",
        table_uri="{{ params.table_uri }}",
        after_version="{{ params.after_version }}",
        deferrable=True,
        poke_interval=60,
        timeout=timedelta(hours=12),
    )
    pin_snapshot = TimeTravelSnapshotOperator(
        task_id="pin_snapshot",
        table_uri="{{ params.table_uri }}",
    )
    checkpoint = CheckpointOperator(
        task_id="checkpoint",
        table_uri="{{ params.table_uri }}",
        version=pin_snapshot.output["version"],
    )
    materialise = TimeTravelSnapshotOperator(
        task_id="materialise",
        table_uri="{{ params.table_uri }}",
        version=pin_snapshot.output["version"],
        target_uri=optional("{{ params.target_uri }}"),
        target_format="{{ params.target_format }}",
        spark_conn_id="{{ params.spark_conn_id }}",
    )

    optimize = OptimizeOperator(
        task_id="optimize",
        table_uri="{{ params.table_uri }}",
        max_bytes=optional("{{ params.max_bytes }}"),
        dry_run="{{ params.dry_run }}",
    )
    clean_up_log = MetadataCleanupOperator(
        task_id="clean_up_log",
        table_uri="{{ params.table_uri }}",
        dry_run="{{ params.dry_run }}",
    )
    vacuum = VacuumOperator(
        task_id="vacuum",
        table_uri="{{ params.table_uri }}",
        mode="{{ params.vacuum_mode }}",
        dry_run="{{ params.dry_run }}",
    )

    wait_for_version >> pin_snapshot >> checkpoint >> materialise
    materialise >> optimize >> clean_up_log >> vacuum
