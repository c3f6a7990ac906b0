"""A kill of a task that submits a Spark job, at each moment before the job runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException

from airflow_delta.operators.checkpoint import CheckpointOperator
from airflow_delta.operators.delete import DeleteOperator
from airflow_delta.operators.optimize import OptimizeOperator
from airflow_delta.operators.spark_task import JobTask
from airflow_delta.operators.table_profile import TableProfileOperator
from airflow_delta.operators.time_travel_snapshot import TimeTravelSnapshotOperator
from airflow_delta.operators.vacuum import VacuumOperator
from airflow_delta.operators.write import WriteOperator
from tests.airflow.run_context import context_of

TASKS: dict[type[JobTask], dict[str, Any]] = {
    CheckpointOperator: {"engine": "spark"},
    DeleteOperator: {"condition": "id = 1"},
    OptimizeOperator: {"engine": "spark"},
    TableProfileOperator: {},
    TimeTravelSnapshotOperator: {"target_uri": "copy"},
    VacuumOperator: {"engine": "spark"},
    WriteOperator: {"source_uri": "files", "source_format": "parquet"},
}


@pytest.mark.parametrize("kind", TASKS, ids=lambda kind: kind.__name__)
def test_a_job_is_not_submitted_after_a_kill(
    sales_copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[JobTask]
) -> None:
    from airflow_delta.hooks.spark.job import SparkJobHook

    arguments = {
        name: str(tmp_path / value) if name.endswith("_uri") else value
        for name, value in TASKS[kind].items()
    }
    operator = kind(task_id="task", table_uri=str(sales_copy), **arguments)
    submitted: list[Any] = []
    monkeypatch.setattr(SparkJobHook, "run", lambda *_, **__: submitted.append(1))
    begin = SparkJobHook.__init__

    def begin_and_kill(job: Any, *given: Any, **named: Any) -> None:
        """Airflow's handler of the signal returns, and the task goes on."""
        operator.on_kill()
        begin(job, *given, **named)

    monkeypatch.setattr(SparkJobHook, "__init__", begin_and_kill)
    with pytest.raises(AirflowException, match="killed before its Spark job was submitted"):
        operator.execute(context_of("task"))
    assert not submitted
