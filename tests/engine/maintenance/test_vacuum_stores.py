"""A vacuum in every kind of store: odd names are listed, compared and deleted as the store has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.commit.registry import CommitOwners
from airflow_delta.engine.maintenance import vacuum_execution
from airflow_delta.engine.maintenance.vacuum import plan_vacuum
from airflow_delta.engine.maintenance.vacuum_execution import execute_vacuum
from airflow_delta.engine.storage import object_store
from tests.object_stores import KINDS, new_place
from tests.table_builder import replay, state_of
from tests.vacuum_world import DAY_MS, NOW_MS, random_world

LATER_MS = NOW_MS + 1000 * DAY_MS
"""The stores tell their own times, so everything has grown old."""


@pytest.mark.parametrize("kind", KINDS)
def test_a_vacuum_in_a_store(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Small pages and batches, so that there are several.
    monkeypatch.setattr(object_store, "_PAGE", 5)
    monkeypatch.setattr(vacuum_execution, "_BATCH", 3)
    uri, options = new_place(kind, tmp_path)
    table = DeltaTable(f"{uri}/tables/t", options)
    world = random_world(table.storage.root, 10)
    for path, content in world.log().items():
        table.storage.replace(path, content)
    for path, (size, _) in world.disk.items():
        table.storage.replace(path, b"x" * size)
    for mode in ("lite", "full"):
        before = {info.path for info in table.storage.walk("")} - world.log().keys()
        plan = plan_vacuum(table.storage, CommitOwners(), mode=mode, now_ms=LATER_MS)
        execute_vacuum(table.storage, plan)
        left = {info.path for info in table.storage.walk("")} - world.log().keys()
        assert len(before - left) > 3
        assert before - left <= {*plan.files["path"].to_pylist()}
    note = "_delta_log/_last_vacuum_info"
    assert left == (world.disk.keys() & (world.hidden | world.needed(LATER_MS))) | {note}
    state = replay(world.history)
    assert state_of(DeltaTable(table.uri, options).snapshot()).files == state.files
