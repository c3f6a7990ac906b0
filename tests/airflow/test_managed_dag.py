"""The example DAG of managed commits, run whole: real hooks, a database of its own for the owner."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable as Peer

from airflow_delta.engine import DeltaTable
from tests.airflow.maintenance import run_dag
from tests.airflow.managed_tables import commit, hand_over, in_log, use_owner


@pytest.fixture
def dag(airflow_database: Path) -> Any:
    """The DAG, anew for each run, which leaves its params behind in it."""
    from airflow.dag_processing.dagbag import DagBag

    bag = DagBag()
    assert bag.import_errors == {}
    return bag.dags["delta_managed_commits"]


def test_retries_wait_for_half_an_hour(dag: Any) -> None:
    for task in dag.tasks:
        delays = [
            min(task.retry_delay * task.retry_exponential_backoff**retry, task.max_retry_delay)
            for retry in range(task.retries)
        ]
        assert timedelta(minutes=30) < sum(delays, timedelta()) < timedelta(minutes=45)


def test_a_first_run_without_a_policy_takes_the_default(
    dag: Any, sales_copy: Path, owner_file: Path
) -> None:
    state, returned = run_dag(dag, table_uri=str(sales_copy))
    assert (state, returned["hand_over"]["converted"]) == ("success", True)
    told = Peer(sales_copy).metadata().configuration["delta.managedCommit.commitOwnerConf"]
    assert set(json.loads(told)) == {"tableId"}


@pytest.fixture
def owner_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of the owner that all tasks have."""
    file = tmp_path / "owner.db"
    use_owner(monkeypatch, file)
    return file


def test_the_first_run_hands_the_table_over(dag: Any, sales_copy: Path, owner_file: Path) -> None:
    state, returned = run_dag(dag, table_uri=str(sales_copy), backfill="on-request")
    assert state == "success"
    assert returned["hand_over"] == {
        "table_uri": str(sales_copy),
        "version": 4,
        "owner": "sql",
        "converted": True,
    }
    facts = returned["wait_for_backfill"]
    assert (facts["version"], facts["ratified_version"], facts["lag"]) == (4, 4, 0)
    assert returned["checkpoint"] is None, "none is due"


def test_a_later_run_backfills_and_writes_the_checkpoint_that_is_due(
    dag: Any, sales_copy: Path, owner_file: Path
) -> None:
    DeltaTable(sales_copy).alter.set_properties({"delta.checkpointInterval": "3"})
    owner = hand_over(sales_copy, owner_file)
    commit(sales_copy, owner, 3)
    assert in_log(sales_copy) == 5
    state, returned = run_dag(dag, table_uri=str(sales_copy))
    assert state == "success"
    assert returned["hand_over"]["converted"] is False
    facts = returned["wait_for_backfill"]
    assert (facts["version"], facts["backfilled_version"]) == (8, 8)
    assert returned["checkpoint"]["version"] == 8
    assert in_log(sales_copy) == 8
    assert Peer(sales_copy).version() == 8


def test_the_wait_goes_on_in_the_triggerer_while_the_owner_is_away(
    dag: Any, sales_copy: Path, owner_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import asyncio

    owner = hand_over(sales_copy, owner_file)
    commit(sales_copy, owner)
    away = owner_file.with_name("away")
    waits: list[float] = []
    sleep = asyncio.sleep

    async def come_back(seconds: float) -> None:
        waits.append(seconds)
        use_owner(monkeypatch, owner_file)
        await sleep(0)

    away.write_text("There is no telling what a database that is down does, but an error it is.")
    use_owner(monkeypatch, away)
    monkeypatch.setattr("airflow_delta.triggers.table_poll.asyncio.sleep", come_back)
    state, returned = run_dag(dag, table_uri=str(sales_copy))
    assert state == "success"
    assert waits, "the task was not deferred"
    assert returned["hand_over"]["converted"] is False
    assert returned["wait_for_backfill"]["version"] == 5
    assert in_log(sales_copy) == 5


def test_airflow_keeps_what_is_waited_for(
    dag: Any, sales_copy: Path, owner_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In its real store of the states of tasks, which the sensor writes before it is deferred."""
    import asyncio

    from airflow.sdk.execution_time.context import TaskStateStoreAccessor

    owner = hand_over(sales_copy, owner_file)
    commit(sales_copy, owner)
    kept: list[Any] = []
    waits: list[float] = []
    sleep, delete = asyncio.sleep, TaskStateStoreAccessor.delete

    async def meanwhile(seconds: float) -> None:
        waits.append(seconds)
        commit(sales_copy, owner)
        DeltaTable(sales_copy, commit_owners={"sql": owner}).backfill(5)
        await sleep(0)

    def watched(store: TaskStateStoreAccessor, key: str) -> None:
        kept.append(store.get(key))
        delete(store, key)
        kept.append(store.get(key))

    monkeypatch.setattr(dag.get_task("wait_for_backfill"), "trigger_backfill", False)
    monkeypatch.setattr("airflow_delta.triggers.table_poll.asyncio.sleep", meanwhile)
    monkeypatch.setattr(TaskStateStoreAccessor, "delete", watched)
    state, returned = run_dag(dag, table_uri=str(sales_copy), backfill="on-request")
    assert state == "success"
    assert len(waits) == 1
    facts = returned["wait_for_backfill"]
    assert (facts["version"], facts["ratified_version"]) == (5, 6)
    assert kept == [{"table_uri": str(sales_copy), "version": 5}, None]
