"""The maintenance DAG, run whole: real hooks, real spark-submit, a database of its own."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.airflow.maintenance import checkpoint_only, load_dag, rows_by_peer, run_dag


@pytest.fixture
def dag(airflow_database: Path) -> Any:
    return load_dag()


def test_the_tasks_follow_each_other(dag: Any) -> None:
    order = ["wait_for_version", "pin_snapshot", "checkpoint", "materialise"]
    order += ["optimize", "clean_up_log", "vacuum"]
    assert [task.task_id for task in dag.topological_sort()] == order
    for before, after in itertools.pairwise(order):
        assert before in dag.get_task(after).upstream_task_ids
    # The references to the pinned version alone would put it after the pin.
    assert dag.get_task("materialise").upstream_task_ids == {"pin_snapshot", "checkpoint"}


def test_the_whole_dag_over_a_table(dag: Any, sales_copy: Path, tmp_path: Path) -> None:
    table, target = sales_copy, tmp_path / "copy"
    orphan = table / "orphan.parquet"
    orphan.write_bytes(b"12345")
    os.utime(orphan, (0, 0))
    state, returned = run_dag(dag, table_uri=str(table), target_uri=str(target))
    assert state == "success"
    after_optimize = {"optimize", "clean_up_log", "vacuum"}
    for task, value in returned.items():
        assert value["table_uri"] == str(table), task
        assert value["version"] == (4 if task in after_optimize else 3), task
    assert returned["checkpoint"]["written"] is True
    assert returned["materialise"]["target_uri"] == str(target)
    assert (returned["optimize"]["commits"], returned["optimize"]["files_added"]) == (1, 1)
    assert [file.name for file in sorted((table / "_delta_log").glob("*.json"))] == [
        f"{3:020}.json",
        f"{4:020}.json",
    ]
    assert returned["clean_up_log"]["earliest_version"] == 3
    assert (returned["vacuum"]["num_deleted"], orphan.exists()) == (1, False)
    expected = list(range(5, 30))
    assert sorted(row["id"] for row in rows_by_peer(target)) == expected
    identity = "airflow:delta_table_maintenance.materialise"
    assert DeltaTable(str(target)).transaction_version(identity) is not None
    checkpoint_only(table, 3)
    assert sorted(row["id"] for row in rows_by_peer(table)) == expected


def test_without_a_target_nothing_is_copied(dag: Any, sales_copy: Path) -> None:
    state, returned = run_dag(dag, table_uri=str(sales_copy), after_version=2, dry_run=True)
    assert state == "success"
    assert returned["materialise"] == returned["pin_snapshot"]
    assert (returned["optimize"]["commits"], returned["optimize"]["plan"]["new_files"]) == (0, 1)
    assert (returned["clean_up_log"]["files"], returned["clean_up_log"]["num_deleted"]) == (3, 0)
    assert (sales_copy / "_delta_log" / f"{0:020}.json").exists()
    hint = json.loads((sales_copy / "_delta_log" / "_last_checkpoint").read_text())
    assert hint["version"] == 3


def test_the_wait_is_handed_to_the_trigger_and_taken_back(
    dag: Any, sales_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import asyncio

    newest = sales_copy / "_delta_log" / f"{3:020}.json"
    hidden = newest.rename(sales_copy / "version-3")
    waits: list[float] = []
    sleep = asyncio.sleep

    async def arrive_while_waiting(seconds: float) -> None:
        waits.append(seconds)
        if hidden.exists():
            hidden.rename(newest)
        await sleep(0)

    monkeypatch.setattr("airflow_delta.triggers.table_poll.asyncio.sleep", arrive_while_waiting)
    state, returned = run_dag(dag, table_uri=str(sales_copy), after_version=2)
    assert state == "success"
    assert returned["wait_for_version"] == {"table_uri": str(sales_copy), "version": 3}
    assert waits, "the task was not deferred"


def test_a_damaged_table_fails_the_run_and_stays_as_it_was(
    dag: Any, sales_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for task in dag.tasks:
        monkeypatch.setattr(task, "retries", 0)
    log = sales_copy / "_delta_log"
    (log / f"{2:020}.json").write_bytes(b"")
    before = {file.name: file.read_bytes() for file in log.iterdir()}
    state, returned = run_dag(dag, table_uri=str(sales_copy))
    assert state == "failed"
    assert returned["checkpoint"] is None
    assert {file.name: file.read_bytes() for file in log.iterdir()} == before
