"""The example DAG that repairs tables, run whole."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable as Peer

from airflow_delta.engine import DeltaTable
from airflow_delta.hooks.waits import truncation
from tests.airflow.expiring_tables import expire, features, write_v2_table
from tests.airflow.maintenance import rows_by_peer, run_dag


@pytest.fixture
def dag(airflow_database: Path) -> Any:
    """The DAG, anew for each run, which leaves its params behind in it."""
    from airflow.dag_processing.dagbag import DagBag

    bag = DagBag()
    assert bag.import_errors == {}
    found = bag.dags["delta_table_repair"]
    for task in found.tasks:
        task.retries = 0
    return found


def test_unless_told_otherwise_it_only_tells(dag: Any, sales_copy: Path) -> None:
    state, returned = run_dag(dag, table_uri=str(sales_copy), version=1)
    assert state == "success"
    report = returned["restore"]
    assert (report["dry_run"], report["committed"], report["files_removed"]) == (True, False, 2)
    assert returned["drop_feature"] is None, "that wasn't asked for"
    assert Peer(sales_copy).version() == 3


def test_an_earlier_version_comes_back(dag: Any, sales_copy: Path) -> None:
    when = "2025-06-15T15:07:45Z"
    state, returned = run_dag(dag, table_uri=str(sales_copy), timestamp=when, dry_run=False)
    assert (state, returned["restore"]["restored_version"]) == ("success", 1)
    assert sorted(row["id"] for row in rows_by_peer(sales_copy)) == list(range(20))
    identity = "airflow:delta_table_repair.restore"
    assert Peer(sales_copy).transaction_version(identity) is not None


def test_a_feature_is_dropped_with_its_history_when_a_day_has_passed(
    dag: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = write_v2_table(tmp_path / "v2")
    sleep = asyncio.sleep
    waits: list[float] = []

    async def let_a_day_pass(seconds: float) -> None:
        waits.append(seconds)
        expire(table)
        await sleep(0)

    monkeypatch.setattr(truncation, "_PAUSE_MS", 0)
    monkeypatch.setattr("airflow_delta.triggers.table_poll.asyncio.sleep", let_a_day_pass)
    params = {"feature": "v2Checkpoint", "truncate_history": True, "dry_run": False}
    state, returned = run_dag(dag, table_uri=str(table), operation="drop_feature", **params)
    assert state == "success"
    assert returned["drop_feature"]["status"] == "waiting"
    assert waits, "the task was not deferred"
    assert returned["wait_for_history"]["dropped"] is False
    assert returned["drop_for_good"]["status"] == "dropped"
    assert (returned["restore"], features(table)) == (None, set())


@pytest.mark.deep
def test_deletion_vectors_are_dropped_with_spark_and_nobody_waits(
    dag: Any, golden_case: Callable[[str], Path], tmp_path: Path
) -> None:
    table = Path(shutil.copytree(golden_case("table-with-dv-small"), tmp_path / "table"))
    rows = DeltaTable(table).snapshot().num_rows
    params = {"feature": "deletionVectors", "dry_run": False}
    state, returned = run_dag(dag, table_uri=str(table), operation="drop_feature", **params)
    assert (state, returned["drop_feature"]["status"]) == ("success", "dropped")
    assert returned["wait_for_history"] is None
    snapshot = DeltaTable(table).snapshot()
    assert snapshot.num_rows == rows
    assert "deletionVectors" not in features(table)
    vectors = snapshot.files(columns=["deletionVector"])["deletionVector"].to_pylist()
    assert set(vectors) == {None}
