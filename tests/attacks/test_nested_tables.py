"""A table that lies in the directory of another one loses nothing by a vacuum of that one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.commit.registry import CommitOwners
from airflow_delta.engine.maintenance.vacuum.execution import execute_vacuum
from airflow_delta.engine.maintenance.vacuum.plan import VacuumPlan, plan_vacuum
from airflow_delta.engine.storage.base import Capabilities, FileInfo, Storage
from airflow_delta.engine.storage.memory import MemoryStorage
from tests.log_builder import PROTOCOL, add, metadata, remove
from tests.object_stores import KINDS, new_place
from tests.table_builder import commit_file, lines
from tests.vacuum_world import DAY_MS, NOW_MS

LATER_MS = NOW_MS + 1000 * DAY_MS
"""The stores tell their own times, so everything has grown old."""

OURS = ("gone.parquet", "p=1/gone.parquet", "p=1/q=1/gone.parquet")
THEIRS = ("p=1/t/live.parquet", "p=1/t/q=2/live.parquet", "u/deep/er/live.parquet")
NESTED = ("p=1/t", "u")


def lay_out(storage: Storage) -> None:
    """A table whose log says that it has removed files of two tables inside, besides its own."""
    removed = (remove(path) for path in (*OURS, *THEIRS))
    storage.replace(commit_file(0), lines([PROTOCOL, metadata(), *removed, add("live.parquet")]))
    for nested in NESTED:
        live = (add(path.removeprefix(f"{nested}/")) for path in THEIRS if path.startswith(nested))
        storage.replace(f"{nested}/{commit_file(0)}", lines([PROTOCOL, metadata(), *live]))
    for path in (*OURS, *THEIRS, "live.parquet"):
        storage.replace(path, b"x")


def inventory(*paths: str) -> pa.Table:
    rows = [
        {"path": path, "length": 1, "isDir": False, "modificationTime": NOW_MS - 30 * DAY_MS}
        for path in paths
    ]
    return pa.Table.from_pylist(rows)


def planned(storage: Storage, **options: Any) -> VacuumPlan:
    return plan_vacuum(storage, CommitOwners(), now_ms=LATER_MS, **options)


MODES: dict[str, dict[str, Any]] = {
    "lite": {"mode": "lite"},
    "full": {},
    "inventory without logs": {"inventory": inventory(*OURS, *THEIRS)},
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_live_files_of_a_table_inside_stay(kind: str, mode: str, tmp_path: Path) -> None:
    uri, options = new_place(kind, tmp_path)
    storage = DeltaTable(f"{uri}/t", options).storage
    lay_out(storage)
    plan = planned(storage, **MODES[mode])
    assert plan.kept.other_tables >= len(THEIRS)
    execute_vacuum(storage, plan)
    left = {info.path for info in storage.walk("") if "_delta_log" not in info.path}
    assert left == {*THEIRS, "live.parquet"}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("link", ["log", "commit", "dangling"])
def test_a_linked_log_is_that_of_a_table(tmp_path: Path, mode: str, link: str) -> None:
    """Delta Spark and others read it."""
    root = tmp_path / "t"
    storage = DeltaTable(str(root)).storage
    lay_out(storage)
    for number, nested in enumerate(NESTED):
        log = root / nested / "_delta_log"
        moved = log if link != "commit" else log / f"{0:020}.json"
        target = tmp_path / str(number)
        moved.rename(target)
        moved.symlink_to(tmp_path / "nowhere" if link == "dangling" else target)
    plan = planned(storage, **MODES[mode])
    assert sorted(plan.files["path"].to_pylist()) == sorted(OURS)
    assert plan.kept.other_tables >= len(THEIRS)


@pytest.mark.parametrize("mode", ["lite", "inventory without logs"])
def test_what_lies_behind_a_linked_directory_is_another_tables(tmp_path: Path, mode: str) -> None:
    root, victim = tmp_path / "t", tmp_path / "victim"
    storage = DeltaTable(str(root)).storage
    lay_out(storage)
    for nested in NESTED:
        for file in DeltaTable(str(root / nested)).storage.walk("_delta_log"):
            (root / nested / file.path).unlink()
    (root / "p=1" / "t").rename(victim)
    (root / "p=1" / "t").symlink_to(victim)
    plan = planned(storage, **MODES[mode])
    assert sorted(plan.files["path"].to_pylist()) == sorted((*OURS, THEIRS[2]))
    execute_vacuum(storage, plan)
    assert (victim / "live.parquet").exists()
    assert (victim / "q=2" / "live.parquet").exists()


class Counting:
    """A store behind a network, whose requests for lists are noted."""

    capabilities = Capabilities(put_if_absent=True, start_after=True, remote=True)

    def __init__(self, storage: MemoryStorage) -> None:
        self._storage = storage
        self.walked: list[str] = []
        self.listed: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    def walk(self, directory: str) -> Iterator[FileInfo]:
        self.walked.append(directory)
        return self._storage.walk(directory)

    def list(self, directory: str, **options: Any) -> Iterator[FileInfo]:
        self.listed.append(directory)
        return self._storage.list(directory, **options)


def counted(removed: Callable[[], Iterator[str]], nested: str | None = None) -> list[str]:
    """The directories that a lite vacuum of a table asks for."""
    storage = Counting(MemoryStorage(f"memory://nested-{os.urandom(4).hex()}/t"))
    actions = [remove(path) for path in removed()]
    storage.replace(commit_file(0), lines([PROTOCOL, metadata(), *actions]))
    if nested:
        storage.replace(f"{nested}/{commit_file(0)}", b"{}")
    planned(storage, mode="lite")
    assert set(storage.listed) <= {"_delta_log"}
    return sorted(storage.walked)


def test_each_directory_is_asked_once_however_many_files_it_has() -> None:
    def removed() -> Iterator[str]:
        return (f"p={p}/q={q}/{n}" for p in range(3) for q in range(2) for n in range(50))

    whole = [f"p={p}{q}/_delta_log" for p in range(3) for q in ("", "/q=0", "/q=1")]
    assert counted(removed) == sorted(whole)
    # Below the directory of another table there is nothing to be asked.
    assert counted(removed, "p=1") == sorted(set(whole) - {f"p=1/q={q}/_delta_log" for q in (0, 1)})
    assert counted(lambda: iter(["a", "b"])) == []


def test_a_path_without_end_costs_nothing() -> None:
    assert counted(lambda: iter(["d/" * 40_000 + "x", "e/x"])) == ["e/_delta_log"]
