"""Checkpoints, compactions and commits of one table by several processes at once, and a reader in between.

No operation may fail or warn of damage. Each state that the reader sees must be that of its version. Each
checkpoint must be complete, even if several processes wrote it at the same time.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.checkpoint.read import open_checkpoint
from airflow_delta.engine.log.last_checkpoint import read_last_checkpoint
from airflow_delta.engine.log.listing import list_log
from airflow_delta.engine.maintenance.checkpoint.execution import (
    CheckpointResult,
    execute_checkpoint,
)
from airflow_delta.engine.maintenance.checkpoint.plan import plan_checkpoint
from airflow_delta.engine.model.schema import PrimitiveType, StructField, StructType
from tests.faults.maintenance_jobs import LAST, STATES, jobs, rely_on, small_files
from tests.races.worker import Worker, live_files, warn_of_all_but_replacements
from tests.table_builder import state_of

SCHEMA = StructType((StructField("id", PrimitiveType("long"), nullable=True),))
ROUNDS, TASKS = 10, 5
JOB = jobs()["v2, from the previous one"]


@pytest.fixture(scope="module")
def workers() -> Iterator[list[Worker]]:
    workers = [Worker() for _ in range(3)]
    yield workers
    for worker in workers:
        worker.close()


@pytest.mark.deep
@pytest.mark.parametrize(
    "policies", [("classic", "classic"), ("v2", "v2"), ("classic", "v2")], ids="-".join
)
def test_processes_at_once_do_no_harm(
    policies: tuple[str, str], workers: list[Worker], tmp_path: Path
) -> None:
    root = tmp_path / "table"
    DeltaTable.create(str(root), SCHEMA, properties={"delta.feature.v2Checkpoint": "supported"})
    results = []
    for number in range(ROUNDS):
        tasks = [
            # Of the newest version, of one that is not, and of the one that the other one is at.
            [checkpoint(policy, back=(number + task * place) % 3) for task in range(TASKS)]
            for place, policy in enumerate(policies)
        ]
        tasks.append([{"task": "commit"}] * (TASKS - 1) + [{"task": "compact", "commits": 3}])
        for worker, own in zip(workers, tasks, strict=True):
            worker.send(root, own)
        watch(root, workers)
        answers = [worker.answers() for worker in workers]
        assert not [answer for done in answers for answer in done if isinstance(answer, dict)]
        results += [result for done in answers[:2] for result in done]
        look(root)
    assert DeltaTable(str(root)).latest_version() == ROUNDS * (TASKS - 1)
    # They did work, and V2 checkpoints were made from what the other one had written too.
    incremental = [incremental for _, written, incremental in results if written]
    assert len(incremental) > ROUNDS
    assert any(incremental) or "classic" in policies
    check_each_checkpoint(root)


def checkpoint(policy: str, *, back: int) -> dict[str, Any]:
    return {"task": "checkpoint", "policy": policy, "back": back}


def watch(root: Path, workers: list[Worker]) -> None:
    """Look at the table until all are done."""
    while not all(worker.is_done() for worker in workers):
        look(root)


def look(root: Path) -> None:
    """The newest version is as it must be, and what readers are pointed to is there."""
    storage = DeltaTable(str(root)).storage
    with warnings.catch_warnings():
        warn_of_all_but_replacements()
        snapshot = DeltaTable(str(root)).snapshot()
        assert paths(snapshot.files(columns=["path"])) == live_files(snapshot.version)
        hint = read_last_checkpoint(storage)
    if hint is None:
        return
    named = (hint.v2_checkpoint or {}).get("path")
    assert hint.version in {found.version for found in list_log(storage).checkpoints}
    if named is not None:
        assert (root / "_delta_log" / named).is_file()


def check_each_checkpoint(root: Path) -> None:
    storage = DeltaTable(str(root)).storage
    found = list_log(storage).checkpoints
    for one in found:
        reader = open_checkpoint(storage, one, table=str(root))
        tables = list(reader.adds())
        assert set().union(*map(paths, tables)) == live_files(one.version)
        assert sum(table.num_rows for table in tables) == len(live_files(one.version))
    rely_on(storage, found[-1].version)
    snapshot = DeltaTable(str(root)).snapshot()
    assert paths(snapshot.files(columns=["path"])) == live_files(snapshot.version)
    assert paths(snapshot.tombstones()) == {
        f"f{n}" for n in range(1, snapshot.version + 1)
    } - live_files(snapshot.version)


def paths(files: Any) -> set[str]:
    return set(files["path"].to_pylist())


@pytest.fixture
def planned(tmp_path: Path) -> list[Callable[[], CheckpointResult]]:
    """Two writers of a V2 checkpoint from the previous one, who both planned before either wrote."""
    for path, content in JOB.files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(content)

    def plan() -> Callable[[], CheckpointResult]:
        delta = DeltaTable(str(tmp_path))
        snapshot = delta.snapshot()
        planned = plan_checkpoint(snapshot, policy="v2")
        assert planned.incremental
        return lambda: execute_checkpoint(delta.storage, snapshot, planned)

    return [plan(), plan()]


@pytest.mark.parametrize("left", [0, 1])
def test_either_of_two_checkpoints_serves_alone(
    planned: list[Callable[[], CheckpointResult]], tmp_path: Path, left: int
) -> None:
    """They share sidecars of the previous one, and none of the new."""
    with small_files():
        results = [write() for write in planned]
    assert [result.written for result in results] == [True, True]
    assert len({result.path for result in results}) == 2
    (tmp_path / results[1 - left].path).unlink()
    delta = DeltaTable(str(tmp_path))
    rely_on(delta.storage, LAST)
    assert state_of(delta.snapshot()) == STATES[-1]


def test_two_threads_at_once_do_no_harm(
    planned: list[Callable[[], CheckpointResult]], tmp_path: Path
) -> None:
    ready = threading.Barrier(2)

    def write(number: int) -> CheckpointResult:
        ready.wait(timeout=30)
        return planned[number]()

    with ThreadPoolExecutor(2) as threads:
        results = list(threads.map(write, range(2)))
    for result in results:
        assert state_of(DeltaTable(str(tmp_path)).snapshot()) == STATES[-1]
        (tmp_path / result.path).unlink()
    assert state_of(DeltaTable(str(tmp_path)).snapshot()) == STATES[-1]
