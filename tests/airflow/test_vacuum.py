"""Vacuuming a table as a task, by the worker or by Spark."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_delta.engine.errors import RetentionError
from airflow_delta.hooks.failures import ArgumentError
from airflow_delta.operators.vacuum import VacuumOperator
from airflow_delta.templates import optional
from airflow_delta.version_compat import AirflowFailException
from tests.airflow.failures import fails_for_good
from tests.airflow.maintenance import rows_by_peer
from tests.airflow.run_context import context_of

# Stands for the job: writes down what it was asked to do.
ECHO = """
import json, sys
parameters = json.load(open(sys.argv[-1]))
json.dump({{"version": 3, "mode": "full"}}, open(parameters.pop("result_path"), "w"))
json.dump(parameters, open({asked!r}, "w"))
"""


def vacuum(table: Path | str, **arguments: Any) -> dict[str, Any]:
    operator = VacuumOperator(task_id="vacuum", table_uri=str(table), **arguments)
    return operator.execute(context_of("vacuum"))


@pytest.fixture
def littered(sales_copy: Path) -> Path:
    """A table with a file that no commit names, and ten days after its last change."""
    (sales_copy / "orphan.parquet").write_bytes(b"12345")
    for file in sales_copy.glob("*.parquet"):
        os.utime(file, (0, 0))
    return sales_copy


def test_arguments_are_rendered() -> None:
    operator = VacuumOperator(
        task_id="vacuum",
        table_uri="{{ params.uri }}",
        retention_hours="{{ params.hours }}",
        mode="{{ params.mode }}",
        inventory=optional("{{ params.inventory }}"),
        engine="{{ params.engine }}",
        spark_conn_id="{{ params.engine }}_default",
        spark_conf={"spark.executor.memory": "{{ params.memory }}"},
    )
    params: dict[str, Any] = {"uri": "s3://lake/t", "hours": 200, "mode": "full", "memory": "2g"}
    params |= {"inventory": None, "engine": "spark"}
    operator.render_template_fields({"params": params})  # type: ignore[arg-type]
    found = (operator.table_uri, operator.retention_hours, operator.mode, operator.inventory)
    assert found == ("s3://lake/t", "200", "full", None)
    assert (operator.engine, operator.spark_conn_id) == ("spark", "spark_default")
    assert operator.spark_conf == {"spark.executor.memory": "2g"}


def test_what_nobody_needs_goes(littered: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dry = vacuum(littered, dry_run=True)
    assert (dry["files"], dry["num_deleted"], dry["dry_run"]) == (1, 0, True)
    assert (littered / "orphan.parquet").exists()
    report = vacuum(littered)
    assert not (littered / "orphan.parquet").exists()
    assert json.loads(json.dumps(report)) == report, "XCom carries JSON"
    assert report["examples"] == ["orphan.parquet"]
    keys = ("table_uri", "version", "mode", "engine", "num_deleted", "bytes_deleted")
    assert {key: report[key] for key in keys} == {
        "table_uri": str(littered),
        "version": 3,
        "mode": "full",
        "engine": "local",
        "num_deleted": 1,
        "bytes_deleted": 5,
    }
    changing = ("num_deleted", "bytes_deleted", "dry_run", "duration_ms", "cutoff")
    assert {**dry, **{key: report[key] for key in changing}} == report, "what was told is done"
    # The version before the deletion is younger than a week.
    assert (report["oldest_restorable"], len(rows_by_peer(littered, 2))) == (0, 30)
    assert "oldest restorable  0" in capsys.readouterr().out
    again = vacuum(littered)
    assert (again["num_deleted"], again["reason"] is None) == (0, False)


@pytest.mark.parametrize("hours", [0, "0", "0.0"])
def test_less_than_the_retention_must_be_meant(littered: Path, hours: Any) -> None:
    with fails_for_good(RetentionError, match="7 days"):
        vacuum(littered, retention_hours=hours)
    report = vacuum(littered, retention_hours=hours, enforce_retention=False)
    assert (report["num_deleted"], report["oldest_restorable"]) == (2, 3)
    assert len(rows_by_peer(littered)) == 25


@pytest.mark.parametrize("mode", ["lite", "full"])
def test_the_mode_decides_what_is_looked_at(littered: Path, mode: str) -> None:
    report = vacuum(littered, mode=mode, retention_hours=0, enforce_retention=False)
    assert (report["mode"], report["num_deleted"]) == (mode, 1 if mode == "lite" else 2)
    with pytest.raises(ArgumentError, match="mode: expected one of full, lite, found 'deep'"):
        vacuum(littered, mode="deep")


def test_an_inventory_stands_for_the_listing(littered: Path, tmp_path: Path) -> None:
    inventory = tmp_path / "inventory.parquet"
    columns = {
        "path": ["orphan.parquet"],
        "length": [5],
        "isDir": [False],
        "modificationTime": [1_700_000_000_000],
    }
    pq.write_table(pa.table(columns), inventory)
    report = vacuum(littered, inventory=str(inventory))
    assert (report["mode"], report["num_deleted"]) == ("inventory", 1)
    assert not (littered / "orphan.parquet").exists()


def test_what_is_no_time_fails(sales: Path) -> None:
    for hours in ("a week", "-1", True, "nan"):
        with pytest.raises(ValueError, match="retention_hours: expected a number of hours"):
            vacuum(sales, retention_hours=hours)


def test_spark_is_asked_for_what_the_task_was_asked_for(
    sales: Path, tmp_path: Path, fake_spark_submit: Path
) -> None:
    asked = tmp_path / "asked.json"
    fake_spark_submit.write_text(ECHO.format(asked=str(asked)))
    report = vacuum(sales, engine="spark", retention_hours="200", dry_run=True)
    assert json.loads(asked.read_text()) == {
        "table_uri": str(sales),
        "retention_hours": 200.0,
        "enforce_retention": True,
        "dry_run": True,
    }
    facts = (report["table_uri"], report["version"], report["engine"], report["dry_run"])
    assert facts == (str(sales), 3, "spark", True)


def test_what_spark_cannot_do_fails_for_good(sales: Path) -> None:
    with pytest.raises(AirflowFailException, match="expected one of local, spark, found 'flink'"):
        vacuum(sales, engine="flink")
    with pytest.raises(AirflowFailException, match="a vacuum by Spark is 'full'"):
        vacuum(sales, engine="spark", mode="lite")


def test_a_job_is_ended_with_its_task(sales: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_delta.hooks.spark.job import SparkJobHook

    operator = VacuumOperator(task_id="vacuum", table_uri=str(sales), engine="spark")
    ended: list[Any] = []

    def run(job: Any, *_: Any, **__: Any) -> dict[str, Any]:
        operator.on_kill()
        return {"version": 3}

    monkeypatch.setattr(SparkJobHook, "run", run)
    monkeypatch.setattr(SparkJobHook, "on_kill", lambda job: ended.append(job))
    operator.execute(context_of("vacuum"))
    assert len(ended) == 1


def test_airflows_own_dry_run_still_works() -> None:
    VacuumOperator(task_id="vacuum", table_uri="/t", dry_run=True).dry_run()
