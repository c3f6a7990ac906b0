"""The events of OpenLineage that DAG runs emit, compared with the expected ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.hooks.delta import DeltaHook
from airflow_delta.operators.optimize import OptimizeOperator
from airflow_delta.operators.restore import RestoreOperator
from airflow_delta.operators.time_travel_snapshot import TimeTravelSnapshotOperator
from airflow_delta.sensors.table_version import TableVersionSensor
from tests.airflow.dag_runs import new_dag, run_of
from tests.airflow.lineage.captured_events import capture_events

STORAGE = {"storageLayer": "delta", "fileFormat": "parquet"}
SCHEMA = {"fields": [{"name": "id", "type": "long"}]}


def dataset(table: Path, version: int | None = None, **facets: Any) -> dict[str, Any]:
    """A table in an event; with its schema if its version is known."""
    known = (
        {} if version is None else {"version": {"datasetVersion": str(version)}, "schema": SCHEMA}
    )
    found = {"storage": STORAGE, **known, **facets}
    return {"namespace": "file", "name": str(table), "facets": found}


def files(table: Path, version: int) -> dict[str, int]:
    """The statistics of an output that consists of all files of a version."""
    from deltalake import DeltaTable as Peer

    sizes = Peer(table, version=version).get_add_actions(flatten=True)["size_bytes"].to_pylist()
    return {"size": sum(sizes), "fileCount": len(sizes)}


def test_a_run_that_succeeds_fails_and_tries_again(
    airflow_database: Path, sales_copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.sdk import task

    table = str(sales_copy)
    restored = DeltaHook.restore
    tries: list[int] = []

    def restore_once(self: DeltaHook, *arguments: Any, **named: Any) -> Any:
        """Fail after the commit of the first try."""
        report = restored(self, *arguments, **named)
        tries.append(report["version"])
        if len(tries) == 1:
            raise ConnectionError("the worker has lost the store")
        return report

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
        pin = TimeTravelSnapshotOperator(task_id="pin", table_uri=table, version=2)
        restore = RestoreOperator(
            task_id="restore", table_uri=table, version=0, retries=1, retry_delay=0
        )
        optimize = OptimizeOperator(task_id="optimize", table_uri=table)
        missing = TimeTravelSnapshotOperator(task_id="missing", table_uri=table, version=77)
        wait >> own() >> pin >> restore >> optimize >> missing
    with capture_events(tmp_path, monkeypatch) as events:
        run = run_of(dag)
    assert run.states == {
        "own": "success",
        "wait": "success",
        "pin": "success",
        "restore": "success",
        "optimize": "success",
        "missing": "failed",
    }
    assert run.tries["restore"] == 2
    read_2 = dataset(sales_copy, 2)
    assert events.of("wait") == [
        {"type": "START", "inputs": [dataset(sales_copy)], "outputs": []},
        {"type": "COMPLETE", "inputs": [dataset(sales_copy, 3)], "outputs": []},
    ]
    version_2 = dataset(sales_copy, version={"datasetVersion": "2"})
    assert events.of("own")[1:] == [
        {
            "type": "COMPLETE",
            "inputs": [version_2],
            "outputs": [dataset(sales_copy, version={"datasetVersion": "9"})],
        }
    ]
    assert events.of("pin") == [
        {"type": "START", "inputs": [version_2], "outputs": []},
        {"type": "COMPLETE", "inputs": [read_2], "outputs": []},
    ]
    planned = {
        "inputs": [dataset(sales_copy, version={"datasetVersion": "0"})],
        "outputs": [dataset(sales_copy)],
    }
    output = dataset(sales_copy, 4, lifecycleStateChange={"lifecycleStateChange": "OVERWRITE"}) | {
        "outputFacets": {"outputStatistics": files(sales_copy, 0) | {"size": 0, "fileCount": 0}}
    }
    found = events.of("restore")
    assert found[:3] == [
        {"type": "START", **planned},
        {"type": "FAIL", **planned},
        {"type": "START", **planned},
    ]
    assert tries == [4, 4]
    assert found[3]["type"] == "COMPLETE"
    assert found[3]["inputs"] == [dataset(sales_copy, 0)]
    (written,) = found[3]["outputs"]
    assert written.pop("outputFacets").keys() == {"outputStatistics"}
    assert written == {name: output[name] for name in written}
    assert events.of("missing")[1] == {
        "type": "FAIL",
        "inputs": [dataset(sales_copy, version={"datasetVersion": "77"})],
        "outputs": [],
    }


def test_an_error_in_lineage_does_not_fail_the_task(
    airflow_database: Path,
    sales_copy: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*_: Any) -> Any:
        raise MemoryError("no lineage today")

    monkeypatch.setattr("airflow_delta.hooks.lineage.columns.TableColumns.add", fail)
    with new_dag() as dag:
        RestoreOperator(task_id="restore", table_uri=str(sales_copy), version=1)
    with capture_events(tmp_path, monkeypatch) as events:
        assert run_of(dag).state == "success"
    (output,) = events.of("restore")[1]["outputs"]
    # What is known without the table is there.
    assert output["facets"]["version"] == {"datasetVersion": "4"}
    assert "schema" not in output["facets"]


def test_credentials_are_in_no_event(
    airflow_database: Path, sales_copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    extra = {"aws_secret_access_key": "WJALRXUTNFEMI"}
    connection = {"conn_type": "delta", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(connection))
    with new_dag() as dag:
        TimeTravelSnapshotOperator(
            task_id="pin", table_uri=str(sales_copy), delta_conn_id="lake", version=1
        )
    with capture_events(tmp_path, monkeypatch) as events:
        run_of(dag)
    assert len(events.of("pin")) == 2
    assert "WJALRXUTNFEMI" not in events.text
