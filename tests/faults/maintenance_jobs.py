"""Everything that writes a checkpoint or a compaction, over logs that make it take its several ways.

`check` tells whether a table is in order, whatever has happened to it; `Job.run` is what happens.
Both work on a table in memory and on one in a directory, in this process and in one that is killed.
"""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.checkpoint import action_rows, incremental_v2
from airflow_delta.engine.checkpoint.read import open_checkpoint
from airflow_delta.engine.checkpoint.sidecars import layout as sidecar_layout
from airflow_delta.engine.log.last_checkpoint import read_last_checkpoint
from airflow_delta.engine.log.listing import list_log
from airflow_delta.engine.maintenance.checkpoint.plan import Kind
from airflow_delta.engine.storage.base import Storage
from tests.laws.histories import protocol
from tests.log_builder import add, metadata, remove
from tests.table_builder import (
    FAR_FUTURE_MS,
    Action,
    Files,
    MemoryTable,
    commit_file,
    commits,
    key_of,
    state_of,
    states,
)

STATS = '{"numRecords":3,"minValues":{"id":1},"maxValues":{"id":9},"nullCount":{"id":0}}'
HISTORY: list[list[Action]] = [
    [
        protocol({"v2Checkpoint"}),
        metadata(configuration={"delta.checkpoint.writeStatsAsStruct": "true"}),
        *(add(name, stats=STATS) for name in "abcdefg"),
    ],
    [add("h"), {"txn": {"appId": "app", "version": 4}}],
    [remove("g", deletionTimestamp=FAR_FUTURE_MS), add("i", stats=STATS)],
    [remove("b", deletionTimestamp=FAR_FUTURE_MS), remove("a", deletionTimestamp=1), add("j")],
]
LAST = len(HISTORY) - 1
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
STATES = [state.visible() for state in states(HISTORY)]


@contextmanager
def small_files() -> Iterator[None]:
    """Three rows fill a row group and a sidecar, and steps come in one order: none is on a thread."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "cpu_count", lambda: 1)
        patch.setattr(action_rows, "_GROUP_ROWS", 3)
        for module in (sidecar_layout, incremental_v2):
            patch.setattr(module, "SIDECAR_ROWS", 3)
        patch.setattr(incremental_v2, "_SMALL_ROWS", 1)
        yield


@dataclass(frozen=True)
class Job:
    """Something to be done to a table.

    Attributes:
        files: the table before.
        run: does it.
        version: what it writes is for.
    """

    files: Files
    run: Callable[[DeltaTable], Any]
    version: int = LAST

    def again(self, delta: DeltaTable) -> None:
        """The next run, of which nothing may be wrong."""
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.run(delta)


def checkpoint(policy: Kind, version: int | None = None) -> Callable[[DeltaTable], Any]:
    return lambda delta: delta.checkpoint(version, policy=policy)


RUNS: dict[str, Callable[[DeltaTable], Any]] = {
    "classic": checkpoint("classic"),
    "classic, of an older version": checkpoint("classic", 2),
    "classic, from the previous one": checkpoint("classic"),
    "v2": checkpoint("v2"),
    "v2 of the classic name": checkpoint("v2"),
    "v2, from the previous one": checkpoint("v2"),
    "compaction": lambda delta: delta.compact_log(1, LAST),
}
"""What is done, by the names of the jobs."""


def log(*checkpoints: tuple[int, Kind]) -> Files:
    """The history, with our checkpoints of some versions: each is written when its version is new."""
    with MemoryTable({}) as table, small_files():
        for version in range(LAST + 1):
            table.put({commit_file(version): commits(HISTORY)[commit_file(version)]})
            for policy in [policy for at, policy in checkpoints if at == version]:
                assert table.delta().checkpoint(policy=policy).written
        return table.files()


def jobs() -> dict[str, Job]:
    """By name."""
    logs: dict[str, list[tuple[int, Kind]]] = {
        "classic": [],
        "classic, of an older version": [],
        "classic, from the previous one": [(1, "classic")],
        "v2": [(1, "classic")],
        "v2 of the classic name": [],
        "v2, from the previous one": [(0, "v2"), (1, "v2")],
        "compaction": [(0, "classic")],
    }
    versions = {"classic, of an older version": 2}
    return {
        name: Job(log(*checkpoints), RUNS[name], versions.get(name, LAST))
        for name, checkpoints in logs.items()
    }


def examine(reopened: Callable[[], DeltaTable], job: Job) -> None:
    """The table is in order; so is the next run, and what it leaves is complete by itself.

    Args:
        reopened: opens the table as another process would.
        job: see `check`.
    """
    check(reopened(), job)
    job.again(reopened())
    check(reopened(), job, first=LAST)
    storage = reopened().storage
    versions = [found.version for found in list_log(storage).checkpoints]
    if versions[-1:] == [job.version]:
        assert versions.count(job.version) == 1
        rely_on(storage, job.version)
        assert state_of(reopened().snapshot()) == STATES[-1]


def shape(storage: Storage) -> tuple[str, ...]:
    """Which files there are, but for what is random in their names.

    Many a step that fails leaves the same behind as the one before.
    """
    return tuple(sorted(_UUID.sub("*", info.path) for info in storage.walk("")))


def check(delta: DeltaTable, job: Job, *, first: int = 0) -> None:
    """The table reads as it should, as a whole, by its hint and by each of its checkpoints.

    Args:
        delta: the table, opened afresh.
        job: the job, which is done, or isn't, or in part.
        first: the first version that is read.
    """
    storage = delta.storage
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for version in range(first, LAST + 1):
            assert state_of(delta.snapshot(version)) == STATES[version]
        hint = read_last_checkpoint(storage)
    listed = list_log(storage).checkpoints
    for found in listed:
        reader = open_checkpoint(storage, found, table=delta.uri)
        for sidecar in reader.sidecars:
            head = storage.head(f"_delta_log/_sidecars/{sidecar.path}")
            assert head.size == sidecar.size_in_bytes
        rows = [row for table in reader.adds() for row in table.to_pylist()]
        assert len(rows) == len(STATES[found.version].files)
        assert {key_of(row) for row in rows} == STATES[found.version].files.keys()
    assert hint is None or hint.version in {found.version for found in listed}
    for checksum in list_log(storage).checksums:
        told = json.loads(storage.read(checksum.path))
        assert told["numFiles"] == len(STATES[checksum.version].files)
    after = {info.path for info in storage.walk("")}
    for path, content in job.files.items():
        assert path.endswith("_last_checkpoint") or storage.read(path) == content
    for path in after - job.files.keys():
        assert is_of(path, job.version), path


def is_of(path: str, version: int) -> bool:
    """Whether a file may come of the job: its result, the hint, or what a killed process leaves."""
    folder, _, name = path.rpartition("/")
    if name.startswith(".") and name.endswith(".tmp"):
        return True
    return folder in {"_delta_log", "_delta_log/_sidecars"} and (
        name.startswith((f"{version:020}.checkpoint.", f"{1:020}.{version:020}.compacted."))
        or name in {"_last_checkpoint", f"{version:020}.crc"}
    )


def rely_on(storage: Storage, version: int) -> None:
    """Take away all that a checkpoint of a version stands for."""
    names = (info.name for info in storage.list("_delta_log"))
    older = [name for name in names if name[:1] > "." and name < f"{version:020}.checkpoint"]
    storage.delete(f"_delta_log/{name}" for name in older)
