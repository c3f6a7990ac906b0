"""The events of OpenLineage that a DAG run emits, compared with the expected ones."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.assets import delta_asset
from airflow_delta.hooks.delta import DeltaHook
from airflow_delta.operators.optimize import OptimizeOperator
from airflow_delta.operators.restore import RestoreOperator
from airflow_delta.operators.row_tracking import EnableRowTrackingOperator
from airflow_delta.operators.time_travel_snapshot import TimeTravelSnapshotOperator
from airflow_delta.operators.vacuum import VacuumOperator
from airflow_delta.sensors.table_version import TableVersionSensor
from tests.airflow.dag_runs import new_dag, run_of
from tests.airflow.lineage.captured_events import EventFile, capture_events, event_server
from tests.answering_store import answering_store

SCHEMA = {"fields": [{"name": "id", "type": "long"}]}
SECRET = "WJALRXUTNFEMI"
EXPIRED = b"<Error><Code>ExpiredToken</Code></Error>"

# In the place of a Spark with OpenLineage's listener: it sends an event as its properties say.
LISTENER = """
import json, sys, urllib.request, uuid
properties = dict(text.split("=", 1) for flag, text in zip(sys.argv, sys.argv[1:]) if flag == "--conf")
given = {name.removeprefix("spark.openlineage."): value for name, value in properties.items()}
parent = {
    "run": {"runId": given["parentRunId"]},
    "job": {"namespace": given["parentJobNamespace"], "name": given["parentJobName"]},
}
event = {
    "eventType": "COMPLETE",
    "run": {"runId": str(uuid.uuid4()), "facets": {"parent": parent}},
    "job": {"namespace": "spark", "name": "application.in_spark"},
}
assert given["transport.type"] == "http"
url = "/".join([given["transport.url"].rstrip("/"), given["transport.endpoint"]])
urllib.request.urlopen(urllib.request.Request(url, json.dumps(event).encode())).close()
result = json.load(open(sys.argv[-1]))["result_path"]
json.dump({"version": 3, "mode": "full"}, open(result, "w"))
"""


def planned(table: Path, version: int | None = None) -> dict[str, Any]:
    """A table in an event, of which at most the version is known."""
    facets: dict[str, Any] = {"storage": {"storageLayer": "delta", "fileFormat": "parquet"}}
    if version is not None:
        facets["version"] = {"datasetVersion": str(version)}
    return {"namespace": "file", "name": str(table), "facets": facets}


def known(table: Path, version: int, **facets: Any) -> dict[str, Any]:
    """A table in the event of a task that has succeeded."""
    found = planned(table, version)
    found["facets"] |= {"schema": SCHEMA, **facets}
    return found


def same_column(table: Path) -> dict[str, Any]:
    """The facet of a version whose column is that of another version."""
    identity = [{"type": "DIRECT", "subtype": "IDENTITY"}]
    origin = {"namespace": "file", "name": str(table), "field": "id", "transformations": identity}
    return {"fields": {"id": {"inputFields": [origin]}}}


@pytest.mark.deep
def test_the_events_of_success_failure_and_retry(
    airflow_database: Path, sales_copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.sdk import task

    table = str(sales_copy)
    restored = DeltaHook.restore
    tries: list[dict[str, Any]] = []

    def restore_once(self: DeltaHook, *arguments: Any, **named: Any) -> Any:
        """Fail after the commit of the first try."""
        tries.append(restored(self, *arguments, **named))
        if len(tries) == 1:
            raise ConnectionError("the worker has lost the store")
        return tries[-1]

    monkeypatch.setattr(DeltaHook, "restore", restore_once)
    with new_dag() as dag:

        @task
        def own() -> int:
            """Code of the user's own."""
            hook = DeltaHook()
            hook.report_output(table, 9)
            pinned: int = hook.pin(table, version=2)["version"]
            return pinned

        wait = TableVersionSensor(task_id="wait", table_uri=table, deferrable=False)
        pin = TimeTravelSnapshotOperator(
            task_id="pin", table_uri=table, delta_conn_id="lake", version=2
        )
        restore = RestoreOperator(
            task_id="restore", table_uri=table, version=0, retries=1, retry_delay=timedelta(0)
        )
        optimize = OptimizeOperator(task_id="optimize", table_uri=table)
        missing = TimeTravelSnapshotOperator(task_id="missing", table_uri=table, version=77)
        wait >> own() >> pin >> restore >> optimize >> missing
        OptimizeOperator(
            task_id="refused", table_uri="s3://lake/sales", delta_conn_id="lake", retries=2
        )
    events = EventFile(tmp_path / "events.json")
    with answering_store() as store, capture_events(events, monkeypatch):
        store.status, store.body = 400, EXPIRED
        keys = {"aws_access_key_id": "AKIA", "aws_secret_access_key": SECRET}
        extra = {**keys, "aws_region": "us-east-1", "aws_endpoint_url": store.url}
        connection = {"conn_type": "delta", "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(connection))
        run = run_of(dag)
    assert (run.states["optimize"], run.states["missing"]) == ("success", "failed")

    assert events.of("wait") == [
        {"type": "START", "inputs": [planned(sales_copy)], "outputs": []},
        {"type": "COMPLETE", "inputs": [known(sales_copy, 3)], "outputs": []},
    ]
    assert events.of("own")[1:] == [
        {
            "type": "COMPLETE",
            "inputs": [planned(sales_copy, 2)],
            "outputs": [planned(sales_copy, 9)],
        }
    ]
    assert events.of("pin") == [
        {"type": "START", "inputs": [planned(sales_copy, 2)], "outputs": []},
        {"type": "COMPLETE", "inputs": [known(sales_copy, 2)], "outputs": []},
    ]
    assert [report["repeated"] for report in tries] == [False, True]
    before = {"inputs": [planned(sales_copy, 0)], "outputs": [planned(sales_copy)]}
    overwrite = {"lifecycleStateChange": "OVERWRITE"}
    output = known(
        sales_copy, 4, lifecycleStateChange=overwrite, columnLineage=same_column(sales_copy)
    )
    written = {
        "size": tries[1]["bytes_restored"],
        "fileCount": tries[1]["files_restored"],
    }
    assert events.of("restore") == [
        {"type": "START", **before},
        {"type": "FAIL", **before},
        {"type": "START", **before},
        {
            "type": "COMPLETE",
            "inputs": [known(sales_copy, 0)],
            "outputs": [output | {"outputFacets": {"outputStatistics": written}}],
        },
    ]
    # There was nothing to optimize.
    assert events.of("optimize")[1] == {
        "type": "COMPLETE",
        "inputs": [known(sales_copy, 4)],
        "outputs": [],
    }
    failure = {"inputs": [planned(sales_copy, 77)], "outputs": []}
    assert events.of("missing") == [{"type": "START", **failure}, {"type": "FAIL", **failure}]
    # Credentials that have expired: one try, with an event and without a result.
    assert (run.states["refused"], run.tries["refused"]) == ("failed", 1)
    assert run.results["refused"] is None
    assert [event["type"] for event in events.of("refused")] == ["START", "FAIL"]
    assert "wrong or expired" in events.text
    assert SECRET not in events.text


@pytest.mark.deep
def test_a_spark_job_is_the_child_of_its_task_and_reports_where_the_task_does(
    airflow_database: Path,
    sales: Path,
    fake_spark_submit: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake_spark_submit.write_text(LISTENER)
    monkeypatch.setenv("AIRFLOW__OPENLINEAGE__SPARK_INJECT_PARENT_JOB_INFO", "True")
    monkeypatch.setenv("AIRFLOW__OPENLINEAGE__SPARK_INJECT_TRANSPORT_INFO", "True")
    with new_dag() as dag:
        VacuumOperator(task_id="vacuum", table_uri=str(sales), engine="spark", dry_run=True)
    with event_server() as events, capture_events(events, monkeypatch):
        run = run_of(dag)
    assert run.states == {"vacuum": "success"}
    assert events.of("vacuum") == [
        {"type": "START", "inputs": [planned(sales)], "outputs": []},
        {"type": "COMPLETE", "inputs": [known(sales, 3)], "outputs": []},
    ]
    ids = {event["run"]["runId"] for event in events.all_of("vacuum")}
    (job,) = events.all_of("in_spark")
    parent = job["run"]["facets"]["parent"]
    assert {parent["run"]["runId"]} == ids
    assert parent["job"] == {"namespace": "lake", "name": f"{dag.dag_id}.vacuum"}
    # The key of the transport isn't among the properties of the job.
    assert events.keys == {"Bearer of a test", None}


@pytest.mark.deep
def test_a_retry_reports_what_the_try_before_has_committed(
    airflow_database: Path,
    sales_copy: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from airflow.models.asset import AssetEvent
    from airflow.utils.session import create_session
    from sqlalchemy import select

    table, asset = str(sales_copy), delta_asset(str(sales_copy))
    append(sales_copy)
    tries: list[str] = []

    def once(name: str) -> None:
        """Fail after the commits of the first try."""
        method = getattr(DeltaHook, name)

        def failing(self: DeltaHook, *arguments: Any, **named: Any) -> Any:
            report = method(self, *arguments, **named)
            tries.append(name)
            if tries.count(name) == 1:
                raise ConnectionError("the worker has lost the store")
            return report

        monkeypatch.setattr(DeltaHook, name, failing)

    once("optimize")
    once("enable_row_tracking")
    given: dict[str, Any] = {"table_uri": table, "outlets": [asset]}
    given |= {"retries": 1, "retry_delay": timedelta(0)}
    with new_dag() as dag:
        OptimizeOperator(task_id="optimize", **given) >> EnableRowTrackingOperator(
            task_id="track", **given
        )
    events = EventFile(tmp_path / "events.json")
    with capture_events(events, monkeypatch):
        run = run_of(dag)
    assert run.states == {"optimize": "success", "track": "success"}
    assert tries == ["optimize"] * 2 + ["enable_row_tracking"] * 2
    assert events.of("optimize")[-1] == {
        "type": "COMPLETE",
        "inputs": [known(sales_copy, 4)],
        "outputs": [known(sales_copy, 5, columnLineage=same_column(sales_copy))],
    }
    altered = known(sales_copy, 8, lifecycleStateChange={"lifecycleStateChange": "ALTER"})
    assert events.of("track")[-1] == {"type": "COMPLETE", "inputs": [], "outputs": [altered]}
    with create_session() as session:
        found = session.scalars(
            select(AssetEvent).where(AssetEvent.source_dag_id == dag.dag_id).order_by(AssetEvent.id)
        ).all()
        keys = ("after_version", "version", "committed", "repeated")
        ranges = [tuple(event.extra[key] for key in keys) for event in found]
    assert ranges == [(4, 5, True, True), (5, 8, True, True)]


def append(table: Path) -> None:
    """Append a row, so that there are files to optimize."""
    from deltalake import DeltaTable, write_deltalake

    write_deltalake(
        str(table), DeltaTable(str(table)).to_pyarrow_table().slice(0, 1), mode="append"
    )
