"""The identity that a task's commits carry."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

from airflow_delta.operators.run_identity import run_identity

RUN_AFTER = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=timezone.utc)


def context(
    *,
    dag_id: str = "lake",
    task_id: str = "copy",
    map_index: int = -1,
    run_id: str = "manual__1",
    run_after: datetime = RUN_AFTER,
    try_number: int = 1,
) -> Any:
    return {
        "ti": SimpleNamespace(
            dag_id=dag_id,
            task_id=task_id,
            map_index=map_index,
            run_id=run_id,
            try_number=try_number,
        ),
        "dag_run": SimpleNamespace(run_after=run_after),
    }


def test_the_id_names_the_task_and_the_number_begins_with_the_time_of_the_run() -> None:
    app_id, version = run_identity(context())
    assert app_id == "airflow:lake.copy"
    assert version >> 31 == 1772366400
    assert 0 < version < 2**63


def test_a_mapped_task_has_its_index_in_the_id() -> None:
    assert run_identity(context(map_index=0))[0] == "airflow:lake.copy.0"
    assert run_identity(context(map_index=7))[0] == "airflow:lake.copy.7"


def test_a_retry_has_the_same_identity() -> None:
    assert run_identity(context(try_number=2)) == run_identity(context(try_number=1))


def test_a_later_run_has_a_greater_number() -> None:
    later = context(run_after=RUN_AFTER + timedelta(seconds=1))
    assert run_identity(later)[1] > run_identity(context())[1]


def test_runs_of_the_same_time_have_other_numbers() -> None:
    # Airflow lets a backfill of partitions, and runs that the API creates, have the time of other runs.
    numbers = {run_identity(context(run_id=f"backfill__{run}"))[1] for run in range(1000)}
    assert len(numbers) == 1000


def test_tasks_whose_names_have_dots_are_other_tasks() -> None:
    one, other = (
        run_identity(context(dag_id=dag, task_id=task))
        for dag, task in (("sales.eu", "load"), ("sales", "eu.load"))
    )
    assert one != other
    mapped = run_identity(context(task_id="copy", map_index=1))
    assert mapped != run_identity(context(task_id="copy.1"))


def test_the_number_does_not_depend_on_the_time_zone_of_the_run() -> None:
    elsewhere = RUN_AFTER.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert run_identity(context(run_after=elsewhere)) == run_identity(context())
