"""What a vacuum deletes, over tables with all sorts of pasts, beside sets worked out by hand.

The tables are those of `tests.vacuum_world`: odd names, deletion vectors of several files in one, removed
and restored files, change data, files of nobody, hidden ones, other tables inside, absolute paths.
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.commit.registry import CommitOwners
from airflow_delta.engine.maintenance.vacuum.execution import execute_vacuum
from airflow_delta.engine.maintenance.vacuum.plan import VacuumPlan, plan_vacuum
from airflow_delta.engine.storage.base import Storage
from airflow_delta.engine.storage.local import LocalStorage
from airflow_delta.engine.storage.memory import MemoryStorage
from tests.matrix.log_forms import FORMS
from tests.table_builder import MemoryTable, replay, state_of
from tests.vacuum_world import CUTOFF_MS, NOW_MS, World, random_world

SEEDS = range(12)


def planned(storage: Storage, **options: Any) -> VacuumPlan:
    return plan_vacuum(storage, CommitOwners(), now_ms=NOW_MS, **options)


def paths(plan: VacuumPlan) -> set[str]:
    found = plan.files["path"].to_pylist()
    assert len(found) == len(set(found))
    return set(found)


def files_in(storage: Storage) -> set[str]:
    return {i.path for i in storage.walk("") if not i.path.startswith("_delta_log/")}


@pytest.fixture
def storage() -> MemoryStorage:
    return MemoryStorage(f"memory://{uuid.uuid4()}/t")


@pytest.fixture(params=SEEDS)
def world(request: pytest.FixtureRequest, storage: MemoryStorage) -> World:
    return random_world(storage.root, request.param)


def test_the_worlds_have_what_matters() -> None:
    """Something of each kind goes, and something stays for each reason."""
    kinds: set[str] = set()
    kept = {"hidden": 0, "other_tables": 0, "young": 0, "referenced": 0}
    restorable = set()
    for seed in SEEDS:
        with MemoryTable({}) as table:
            random_world(table.uri, seed).put(table.storage)
            plan = planned(table.storage)
            kinds |= {*plan.files["kind"].to_pylist()}
            kept = {name: count + getattr(plan.kept, name) for name, count in kept.items()}
            restorable.add(plan.oldest_restorable)
    assert kinds == {"data", "deletion vectors", "change data"}
    assert all(kept.values()), kept
    assert len(restorable) > 3


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_every_form_of_log_gives_the_same_vacuum(form: str, seed: int) -> None:
    with MemoryTable({}) as table:
        world = random_world(table.uri, seed)
        log = FORMS[form](world.history)
        if form == "our checkpoint":
            # Without the commit of the newest version nobody knows its time.
            newest = max(world.log())
            log |= {newest: world.log()[newest]}
        world.put(table.storage, log)
        assert paths(planned(table.storage)) == world.vacuumed()


def test_a_full_vacuum_deletes_what_is_old_and_not_needed(
    world: World, storage: MemoryStorage
) -> None:
    world.put(storage)
    plan = planned(storage)
    expected = world.vacuumed()
    assert paths(plan) == expected
    sizes = {path: world.disk[path] for path in expected}
    rows = plan.files.select(["path", "size", "modificationTime"]).to_pylist()
    assert {row["path"]: (row["size"], row["modificationTime"]) for row in rows} == sizes
    assert plan.total.size_in_bytes == sum(size for size, _ in sizes.values())
    assert sum(plan.by_kind[kind].num_files for kind in plan.by_kind) == len(expected)
    kept = plan.kept
    assert kept.hidden + kept.other_tables == len(world.hidden)
    assert kept.hidden + kept.other_tables + kept.young + kept.referenced == (
        len(world.disk) - len(expected)
    )
    assert kept.referenced == len(world.needed(CUTOFF_MS) & world.disk.keys() - world.hidden)


def test_the_rest_stays_and_another_vacuum_finds_nothing(
    world: World, storage: MemoryStorage
) -> None:
    world.put(storage)
    plan = planned(storage)
    assert files_in(storage) == world.disk.keys()
    result = execute_vacuum(storage, plan)
    assert (result.num_deleted, result.bytes_deleted) == (
        plan.total.num_files,
        plan.total.size_in_bytes,
    )
    assert files_in(storage) == world.disk.keys() - world.vacuumed()
    assert state_of(DeltaTable(storage.root).snapshot()) == replay(world.history).visible()
    again = planned(storage)
    assert (again.files.num_rows, again.vacuumed) == (0, None)
    assert again.reason is not None
    assert again.oldest_restorable == plan.oldest_restorable


def test_versions_from_the_oldest_restorable_on_are_whole(
    world: World, storage: MemoryStorage
) -> None:
    world.put(storage)
    plan = planned(storage)
    left = world.disk.keys() - world.vacuumed()
    assert plan.oldest_restorable == world.oldest_whole(left)


def test_an_inventory_gives_the_same_vacuum(world: World, storage: MemoryStorage) -> None:
    world.put(storage)
    rows = [
        {"path": path, "length": size, "isDir": False, "modificationTime": time}
        for path, (size, time) in world.disk.items()
    ]
    for number, row in enumerate(rows):
        row["path"] = f"{storage.root}/{row['path']}" if number % 2 else row["path"]
    rows += [
        {**rows[0], "path": "/elsewhere/f"},
        {**rows[0], "path": f"{storage.root}/part=x", "isDir": True, "modificationTime": 0},
        {**rows[0], "path": "_delta_log/00000000000000000000.json", "modificationTime": 0},
        {**rows[0], "path": "../t/f1.parquet", "modificationTime": 0},
    ]
    plan = planned(storage, inventory=pa.Table.from_pylist(rows))
    assert (plan.mode, plan.vacuumed) == ("inventory", None)
    assert paths(plan) == world.vacuumed()


def test_a_lite_vacuum_deletes_what_commits_have_removed(
    world: World, storage: MemoryStorage
) -> None:
    world.put(storage)
    plan = planned(storage, mode="lite")
    expected = world.named()
    assert paths(plan) == expected
    # Whatever of it is there a full one would delete too.
    assert expected & world.disk.keys() <= world.vacuumed()
    execute_vacuum(storage, plan)
    assert files_in(storage) == world.disk.keys() - expected
    again = planned(storage, mode="lite")
    assert again.files.num_rows == 0
    assert again.vacuumed is None


def test_a_full_vacuum_leaves_nothing_for_a_lite_one(world: World, storage: MemoryStorage) -> None:
    world.put(storage)
    execute_vacuum(storage, planned(storage))
    assert not planned(storage, mode="lite").files.num_rows


def test_lite_vacuums_day_by_day_come_to_one(world: World, storage: MemoryStorage) -> None:
    world.put(storage)
    hours = 3_600_000
    for ago in range(30, -1, -3):
        now_ms = NOW_MS - ago * 24 * hours
        plan = plan_vacuum(storage, CommitOwners(), mode="lite", now_ms=now_ms)
        execute_vacuum(storage, plan)
    left = files_in(storage)
    assert not world.named() & left
    # Restored files of which an earlier one has taken nothing: they were needed all the time.
    assert world.disk.keys() - left == world.named() & world.disk.keys()


@pytest.mark.parametrize("seed", SEEDS[:5])
def test_on_a_disk_it_is_the_same(tmp_path: Path, seed: int) -> None:
    world = random_world(str(tmp_path), seed)
    world.lay_out()
    (tmp_path / "part=empty").mkdir()
    storage = LocalStorage(str(tmp_path))
    plan = planned(storage)
    assert paths(plan) == world.vacuumed()
    execute_vacuum(storage, plan)
    assert files_in(storage) == world.disk.keys() - world.vacuumed()
    assert (tmp_path / "part=empty").is_dir()
    assert plan.oldest_restorable == world.oldest_whole(files_in(storage))
