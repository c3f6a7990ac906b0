"""Report each new version of a Delta table, of any writer.

An asset is fixed when the DAG is parsed, so the table is named by an environment variable of Airflow's
processes, and the connection of its store by another::

    export DELTA_EVENTS_TABLE=s3://lake/sales DELTA_EVENTS_CONN_ID=lake

Turn the DAG on: the triggerer looks at the table once a minute, and a run starts when there are new
versions. Run by hand, or with ``airflow dags test delta_events``, it reports the newest version.
"""

from __future__ import annotations

import logging
import os
from datetime import timedelta

from airflow.sdk import DAG, AssetWatcher, task

from airflow_delta.assets import delta_asset
from airflow_delta.operators.time_travel_snapshot import TimeTravelSnapshotOperator
from airflow_delta.results import EventPinResult
from airflow_delta.triggers.new_versions import DeltaTableVersionTrigger

TABLE = os.environ.get("DELTA_EVENTS_TABLE", "/tmp/airflow-delta/sales")  # noqa: S108 - of the demo
CONNECTION = os.environ.get("DELTA_EVENTS_CONN_ID") or None
POLL_INTERVAL = float(os.environ.get("DELTA_EVENTS_POLL_INTERVAL", "60"))

SALES = delta_asset(
    TABLE,
    name="delta_events_sales",
    watchers=[
        AssetWatcher(
            name="new versions",
            trigger=DeltaTableVersionTrigger(
                table_uri=TABLE, delta_conn_id=CONNECTION, poll_interval=POLL_INTERVAL
            ),
        )
    ],
)

with DAG(
    dag_id="delta_events",
    schedule=[SALES],
    catchup=False,
    doc_md=__doc__,
    tags=["delta"],
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
) as dag:

    @task
    def report(pin: EventPinResult) -> dict[str, int | None]:
        """Log the versions; replace this task by those that use them."""
        versions = {"after_version": pin["after_version"], "version": pin["version"]}
        logging.getLogger(__name__).info("new versions of %s: %s", pin["table_uri"], versions)
        return versions

    pin = TimeTravelSnapshotOperator(
        task_id="pin",
        table_uri=TABLE,
        delta_conn_id=CONNECTION,
        version="triggering_event",
    )
    report(pin.output)
