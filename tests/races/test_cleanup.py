"""A cleanup beside writers, checkpointers and readers: nobody fails on a version that is kept.

Processes work on one table for some seconds (``AIRFLOW_DELTA_RACE_SECONDS``, ten unless set; two minutes
find more). The content of each version is known in advance, so that each reader knows what it must find.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.checkpoint.read import open_checkpoint
from airflow_delta.engine.errors import VersionNotFoundError
from airflow_delta.engine.log.listing import list_log
from airflow_delta.engine.maintenance.backfill.backfilled import open_backfilled
from airflow_delta.engine.maintenance.metadata_cleanup.cutoff import find_cutoff_at
from airflow_delta.engine.maintenance.metadata_cleanup.execution import execute_metadata_cleanup
from airflow_delta.engine.maintenance.metadata_cleanup.plan import plan_metadata_cleanup
from airflow_delta.engine.model.schema import PrimitiveType, StructField, StructType
from tests.races.cleanup_worker import FLOOR
from tests.races.worker import Worker, live_files, warn_of_all_but_replacements

SECONDS = float(os.environ.get("AIRFLOW_DELTA_RACE_SECONDS", "10"))
SCHEMA = StructType((StructField("id", PrimitiveType("long"), nullable=True),))
TASKS = ("write", "write", "checkpoint", "checkpoint", "clean_up", "read", "read")


@pytest.fixture
def workers() -> Iterator[list[Worker]]:
    workers = [Worker("tests.races.cleanup_worker") for _ in TASKS]
    yield workers
    for worker in workers:
        worker.close()


@pytest.mark.deep
@pytest.mark.timeout(SECONDS + 300)
def test_nobody_misses_what_a_cleanup_keeps(workers: list[Worker], tmp_path: Path) -> None:
    root = tmp_path / "table"
    properties = {"delta.feature.v2Checkpoint": "supported"}
    DeltaTable.create(str(root), SCHEMA, properties=properties)
    (root / FLOOR).write_text("0")
    # Starting takes a while, and not the same for all.
    for worker in workers:
        worker.send(root, [])
        assert worker.answers() == []
    until = time.time() + SECONDS
    for number, (worker, task) in enumerate(zip(workers, TASKS, strict=True)):
        worker.send(root, [{"task": task, "until": until, "seed": number}])
    answers = [worker.answers()[0] for worker in workers]
    results = [*zip(TASKS, answers, strict=True)]
    failed = [(task, answer) for task, answer in results if "error" in answer]
    assert not failed
    check_work(dict(zip(range(len(TASKS)), answers, strict=True)))
    check_end(root)


def check_work(answers: dict[int, dict[str, Any]]) -> None:
    """They did work, and got into each other's way."""
    total: dict[str, int] = {}
    for number, answer in answers.items():
        for what, count in answer.items():
            name = f"{TASKS[number]}: {what}"
            total[name] = total.get(name, 0) + count
    print(total)
    for name in (
        "write: commits",
        "checkpoint: checkpoints",
        "checkpoint: of shared sidecars",
        "clean_up: cleanups",
        "clean_up: commits",
        "clean_up: sidecars",
        "read: read",
    ):
        assert total[name] > 1, total


def check_end(root: Path) -> None:
    """The table is in order, and one more cleanup leaves nothing that isn't of use."""
    delta = DeltaTable(str(root))
    snapshot = open_backfilled(delta.storage)
    plan = plan_metadata_cleanup(
        delta.storage, snapshot, cutoff=find_cutoff_at(snapshot, snapshot.timestamp_ms)
    )
    execute_metadata_cleanup(delta.storage, plan)
    with warnings.catch_warnings():
        warn_of_all_but_replacements()
        for version in range(plan.earliest_version, snapshot.version + 1):
            paths = delta.snapshot(version).files(columns=["path"])["path"].to_pylist()
            assert set(paths) == live_files(version)
    if plan.earliest_version:
        with pytest.raises(VersionNotFoundError, match=f"versions {plan.earliest_version} to") as e:
            delta.snapshot(plan.earliest_version - 1)
        assert e.value.earliest == plan.earliest_version
    listing = list_log(delta.storage)
    assert {commit.version for commit in listing.commits} == {
        *range(plan.earliest_version, snapshot.version + 1)
    }
    for checkpoint in listing.checkpoints:
        reader = open_checkpoint(delta.storage, checkpoint, table=str(root))
        paths = [path for table in reader.adds() for path in table["path"].to_pylist()]
        assert set(paths) == live_files(checkpoint.version)
