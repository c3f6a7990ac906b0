"""Each step of a vacuum fails once, and kills the process once; files vanish, and the store fails.

Whatever happens, nothing is gone that the table needs or that the plan keeps, the next vacuum succeeds, and
then everything is as if nothing had happened. Nor does a lite vacuum pass over what was left.
"""

from __future__ import annotations

import threading
import uuid
import warnings
from collections.abc import Iterable
from pathlib import Path

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.commit.registry import CommitOwners
from airflow_delta.engine.errors import DeltaWarning, StorageError, UnsafeStorageError
from airflow_delta.engine.maintenance.vacuum import execution as vacuum_execution
from airflow_delta.engine.maintenance.vacuum.execution import VacuumResult, execute_vacuum
from airflow_delta.engine.maintenance.vacuum.last_vacuum import read_last_vacuum
from airflow_delta.engine.maintenance.vacuum.plan import Mode, VacuumPlan, plan_vacuum
from airflow_delta.engine.storage.base import Capabilities, Storage
from airflow_delta.engine.storage.location import open_storage
from airflow_delta.engine.storage.memory import MemoryStorage
from tests.deep import deep_but_for
from tests.faulty_storage import READS, Crash, Fault, FaultyStorage, How
from tests.table_builder import replay, state_of
from tests.vacuum_world import NOW_MS, World, random_world

SEED = 10
MODES: tuple[Mode, ...] = ("full", "lite")


@pytest.fixture(autouse=True)
def two_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vacuum_execution, "_BATCH", 2)


def new_world() -> tuple[World, MemoryStorage]:
    storage = MemoryStorage(f"memory://{uuid.uuid4()}/t")
    world = random_world(storage.root, SEED)
    world.put(storage)
    return world, storage


def planned(storage: Storage, mode: Mode = "full") -> VacuumPlan:
    return plan_vacuum(storage, CommitOwners(), mode=mode, now_ms=NOW_MS)


def vacuum(storage: Storage, mode: Mode = "full") -> VacuumResult:
    return execute_vacuum(storage, planned(storage, mode))


def files_in(storage: Storage) -> set[str]:
    return {i.path for i in storage.walk("") if not i.path.startswith("_delta_log/")}


def goal(world: World, mode: Mode) -> set[str]:
    return world.disk.keys() - (world.vacuumed() if mode == "full" else world.named())


def check(world: World, storage: MemoryStorage, mode: Mode) -> None:
    """The table is whole, also its older versions as far as the plan keeps them; a second run ends it."""
    left = files_in(storage)
    assert left >= goal(world, mode)
    assert left <= world.disk.keys()
    assert state_of(DeltaTable(storage.root).snapshot()) == replay(world.history).visible()
    noted = read_last_vacuum(storage)
    assert noted is None or left == goal(world, mode)
    vacuum(storage, mode)
    assert files_in(storage) == goal(world, mode)
    assert read_last_vacuum(storage) is not None
    assert not planned(storage, "lite").files.num_rows


@pytest.mark.parametrize("mode", deep_but_for(MODES, "full"))
def test_a_vacuum_survives_whatever_fails(mode: Mode) -> None:
    world, storage = new_world()
    undisturbed = FaultyStorage(storage)
    done = vacuum(undisturbed, mode)
    assert undisturbed.count("delete") == -(-done.num_deleted // 2) > 2
    check(world, storage, mode)
    checked: set[tuple[frozenset[str], int | None]] = set()
    for nth, step in enumerate(undisturbed.steps, 1):
        # What dies in a read leaves what the step before it has left.
        for how in (How.FAIL,) if step.operation in READS else How:
            world, storage = new_world()
            faulty = FaultyStorage(storage, Fault("**", nth, how))
            with warnings.catch_warnings():
                # That the note can't be written, and only that.
                warnings.filterwarnings("ignore", ".*the vacuum is done", DeltaWarning)
                try:
                    vacuum(faulty, mode)
                except StorageError:
                    assert how in {How.FAIL, How.LOSE_ANSWER}
                except Crash:
                    assert "CRASH" in how.name
            assert [met.operation for met in faulty.met] == [step.operation]
            # Many a failure leaves the same behind.
            left = frozenset(files_in(storage)), read_last_vacuum(storage)
            if left not in checked:
                check(world, storage, mode)
                checked.add(left)
    assert len(checked) > 6


@pytest.mark.parametrize("mode", MODES)
def test_files_that_are_gone_already_are_no_failure(mode: Mode) -> None:
    """Somebody else vacuums as well: between the plan and the deletions, all of it is gone."""
    world, storage = new_world()
    plan = planned(storage, mode)
    storage.delete(plan.files["path"].to_pylist())
    assert execute_vacuum(storage, plan).num_deleted == plan.files.num_rows
    check(world, storage, mode)


def test_two_vacuums_at_once_come_to_one() -> None:
    world, storage = new_world()
    faulty = FaultyStorage(storage, Fault("delete", nth=2, meanwhile=lambda: vacuum(storage)))
    vacuum(faulty)
    check(world, storage, "full")


class Remote(FaultyStorage):
    """A store of which each call is a round trip: one deletion waits until there is another."""

    def __init__(self, inner: Storage, together: int) -> None:
        super().__init__(inner)
        self._barrier = threading.Barrier(together)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(put_if_absent=True, start_after=True, remote=True)

    def delete(self, paths: Iterable[str]) -> None:
        self._barrier.wait(timeout=20)
        super().delete(paths)


def test_a_remote_store_gets_several_batches_at_once() -> None:
    world, storage = new_world()
    plan = planned(storage)
    full, rest = divmod(plan.files.num_rows, 2)
    remote = Remote(storage, together=full + rest)
    assert 2 < full + rest <= 8
    assert execute_vacuum(remote, plan).num_deleted == plan.files.num_rows
    sizes = [len(call.path.split(",")) for call in remote.calls if call.operation == "delete"]
    assert sorted(sizes) == [1] * rest + [2] * full
    check(world, storage, "full")


def test_a_store_that_is_for_reading_says_so(tmp_path: Path) -> None:
    world = random_world(str(tmp_path), SEED)
    world.lay_out()
    storage = open_storage(f"local://{tmp_path}")
    plan = planned(storage)
    assert plan.files.num_rows
    with pytest.raises(UnsafeStorageError, match="this kind of store is for reading"):
        execute_vacuum(storage, plan)
    assert files_in(storage) == world.disk.keys()
