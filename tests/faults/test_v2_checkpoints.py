"""A V2 checkpoint in many files, interrupted at each of its steps, and made by two at once.

Whatever happens, the table reads as before, by each checkpoint that is there; the next run succeeds; and
what an interrupted one left behind are files that no checkpoint names.
"""

from __future__ import annotations

import threading
import warnings
from contextlib import suppress
from pathlib import Path

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.checkpoint import incremental_v2, sidecar_layout
from airflow_delta.engine.checkpoint.read import open_checkpoint
from airflow_delta.engine.errors import DeltaWarning, StorageError
from airflow_delta.engine.log.listing import list_log
from airflow_delta.engine.maintenance.checkpointing import (
    CheckpointResult,
    execute_checkpoint,
    plan_checkpoint,
)
from airflow_delta.engine.storage.base import Storage
from tests.faulty_storage import Crash, Fault, FaultyStorage, How
from tests.laws.histories import protocol
from tests.log_builder import add, metadata, remove
from tests.table_builder import (
    FAR_FUTURE_MS,
    Action,
    Files,
    MemoryTable,
    State,
    commits,
    state_of,
    states,
)

HISTORY: list[list[Action]] = [
    [
        protocol({"v2Checkpoint"}),
        metadata(configuration={"delta.checkpointPolicy": "v2"}),
        *(add(name) for name in "abcd"),
    ],
    [add("e"), {"txn": {"appId": "app", "version": 4}}],
    [remove("b", deletionTimestamp=FAR_FUTURE_MS), add("f")],
]
LAST = len(HISTORY) - 1
STATE: State = states(HISTORY)[LAST].visible()


@pytest.fixture(autouse=True)
def small_sidecars(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (sidecar_layout, incremental_v2):
        monkeypatch.setattr(module, "SIDECAR_ROWS", 2)
    monkeypatch.setattr(incremental_v2, "_SMALL_ROWS", 1)


def checkpoint(delta: DeltaTable, storage: Storage | None = None) -> CheckpointResult:
    if storage is not None:
        delta.__dict__["storage"] = storage
    snapshot = delta.snapshot()
    return execute_checkpoint(delta.storage, snapshot, plan_checkpoint(snapshot))


def log(kind: str) -> Files:
    """The history, perhaps with a V2 checkpoint of the version before the last."""
    with MemoryTable(commits(HISTORY[:LAST])) as table:
        if kind == "incremental":
            assert checkpoint(table.delta()).sidecars_written == 3
        return {**table.files(), **commits(HISTORY)}


def check(table: MemoryTable) -> None:
    """The table reads as it should, by its newest checkpoint and by each other one."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert state_of(table.delta().snapshot()) == STATE
        for found in reversed(list_log(table.storage).checkpoints):
            reader = open_checkpoint(table.storage, found, table=table.uri)
            for sidecar in reader.sidecars:
                assert table.storage.head(f"_delta_log/_sidecars/{sidecar.path}").size
            live = states(HISTORY)[found.version].files
            paths = [path for rows in reader.adds() for path in rows["path"].to_pylist()]
            assert sorted(paths) == sorted(path for path, _ in live)


@pytest.mark.parametrize(
    ("kind", "how"),
    [("full", How.FAIL), ("full", How.CRASH_AFTER), *(("incremental", how) for how in How)],
)
def test_every_step_may_fail(kind: str, how: How) -> None:
    files = log(kind)
    with MemoryTable(files) as table:
        undisturbed = FaultyStorage(table.storage)
        result = checkpoint(table.delta(), undisturbed)
        assert result.plan.incremental == (kind == "incremental")
        check(table)
    assert len(undisturbed.calls) > 10
    for nth in range(1, len(undisturbed.calls) + 1):
        with MemoryTable(files) as table:
            storage = FaultyStorage(table.storage, Fault("*", nth, how))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeltaWarning)
                with suppress(StorageError, Crash):
                    assert checkpoint(table.delta(), storage).written
            check(table)
            checkpoint(table.delta())
            check(table)
            versions = [found.version for found in list_log(table.storage).checkpoints]
            assert versions.count(LAST) == 1


@pytest.fixture
def local(tmp_path: Path) -> Path:
    for path, content in log("incremental").items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(content)
    return tmp_path


def test_two_writers_at_once_do_no_harm(local: Path) -> None:
    """Both planned before either wrote: two checkpoints of one version, each of them whole."""
    ready = threading.Barrier(2)
    results: list[CheckpointResult] = []

    def write() -> None:
        delta = DeltaTable(str(local))
        snapshot = delta.snapshot()
        plan = plan_checkpoint(snapshot)
        ready.wait(timeout=30)
        results.append(execute_checkpoint(delta.storage, snapshot, plan))

    writers = [threading.Thread(target=write) for _ in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [result.written for result in results] == [True, True]
    assert len({result.path for result in results}) == 2
    delta = DeltaTable(str(local))
    assert state_of(delta.snapshot()) == STATE
    for result in results:
        (local / result.path).unlink()
        assert state_of(DeltaTable(str(local)).snapshot()) == STATE


@pytest.mark.parametrize("left", [0, 1])
def test_either_of_two_checkpoints_serves_alone(local: Path, left: int) -> None:
    """They share sidecars of the previous one, and none of the new."""
    deltas = [DeltaTable(str(local)) for _ in range(2)]
    planned = [(d, s := d.snapshot(), plan_checkpoint(s)) for d in deltas]
    results = [execute_checkpoint(d.storage, s, plan) for d, s, plan in planned]
    (local / results[1 - left].path).unlink()
    for version in range(LAST):
        (local / f"_delta_log/{version:020}.json").unlink()
    for older in (local / "_delta_log").glob(f"{LAST - 1:020}.checkpoint*"):
        older.unlink()
    assert state_of(DeltaTable(str(local)).snapshot()) == STATE
