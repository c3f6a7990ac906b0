"""What Airflow offers around tasks, with operators of this package under a scheduler: pools, callbacks,
mapped tasks, setup and teardown, and backfills."""

from __future__ import annotations

import os
from datetime import datetime, timezone
from pathlib import Path

import pytest

from tests.airflow.live_stack import LiveStack, append_by_deltalake, live_stack

pytestmark = pytest.mark.deep

DAGS = Path(__file__).with_name("live_tasks_dag.py")
DAYS = (1, 2, 3, 5)


def make_history(table: Path) -> None:
    """Have deltalake make a table that got a version at noon of each day."""
    append_by_deltalake(table, len(DAYS))
    for version, day in enumerate(DAYS):
        time = datetime(2026, 1, day, 12, tzinfo=timezone.utc).timestamp()
        os.utime(table / "_delta_log" / f"{version:020}.json", (time, time))


def states(stack: LiveStack, dag_id: str) -> dict[tuple[str, int], str]:
    """The states of a DAG's task instances, by task and map index."""
    rows = stack.rows(
        f"SELECT task_id, map_index, state FROM task_instance WHERE dag_id = '{dag_id}'"
    )
    return {(task_id, index): state for task_id, index, state in rows}


def test_operators_work_with_what_airflow_offers_around_tasks(tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    make_history(tables / "history")
    with live_stack(tmp_path / "airflow", DAGS, TEST_LIVE_TABLES=str(tables)) as stack:
        stack.run("pools", "set", "delta", "1", "tasks on Delta tables")
        stack.wait("the DAGs", lambda: len(stack.rows("SELECT 1 FROM serialized_dag")) == 2)
        stack.run("dags", "trigger", "around_tasks")
        stack.run(
            *("backfill", "create", "--dag-id", "each_day", "--max-active-runs", "2"),
            *("--from-date", "2026-01-02", "--to-date", "2026-01-04"),
        )
        ended = "SELECT state FROM dag_run WHERE dag_id = '{}' AND state IN ('success', 'failed')"
        stack.wait("the tasks", lambda: bool(stack.rows(ended.format("around_tasks"))))
        found = states(stack, "around_tasks")
        assert [found["vacuum", index] for index in range(3)] == ["success", "success", "failed"]
        assert found["make", -1] == found["checkpoint", -1] == found["remove", -1] == "success"
        assert (tables / "removed").exists()
        # A missing table fails at once, without retries; each callback is called once.
        assert sorted((tables / "callbacks").read_text().splitlines()) == [
            "failure vacuum 2",
            "success checkpoint -1",
            "success vacuum 0",
            "success vacuum 1",
        ]
        in_pool = stack.rows("SELECT DISTINCT task_id FROM task_instance WHERE pool = 'delta'")
        assert {task_id for (task_id,) in in_pool} == {"vacuum", "checkpoint"}
        assert sorted(path.name for path in (tables / "a" / "_delta_log").glob("*.parquet")) == [
            f"{0:020}.checkpoint.parquet"
        ]
        # Each run of the backfill pins the version of its day, although newer ones exist.
        # The scheduler makes a run of today, too.
        backfilled = f"{ended.format('each_day')} AND run_id LIKE 'backfill%'"
        stack.wait("the backfill", lambda: len(stack.rows(backfilled)) == 3)
        pins = stack.results("pin", runs="backfill%")
        assert sorted(pin["version"] for pin in pins) == [0, 1, 2]
