"""The processes of `tests.races.test_cleanup`. Each works until a given time, and then reports what it did.

``floor`` in the table's folder contains the version up to which the log is being cleaned up. The cleanup
writes it before it deletes anything. So no version from there on may ever be missing.
"""

from __future__ import annotations

import os
import random
import re
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.checkpoint.read import open_checkpoint
from airflow_delta.engine.errors import (
    CommitConflictError,
    DeltaWarning,
    ObjectNotFoundError,
    VersionNotFoundError,
)
from airflow_delta.engine.log.files import ClassicCheckpoint, V2Checkpoint, parse_log_file
from airflow_delta.engine.maintenance.backfill.backfilled import open_backfilled
from airflow_delta.engine.maintenance.metadata_cleanup.cutoff import find_cutoff_at
from airflow_delta.engine.maintenance.metadata_cleanup.execution import execute_metadata_cleanup
from airflow_delta.engine.maintenance.metadata_cleanup.plan import plan_metadata_cleanup
from airflow_delta.engine.storage.base import FileInfo
from tests.races.worker import commit, live_files, open_table, serve

FLOOR = "floor"
KEPT_MS = 400
"""The log is kept so far back; for days no test can wait."""
_DAYS_AGO = 3 * 24 * 60 * 60


def floor_of(delta: DeltaTable) -> int:
    return int(delta.storage.read(FLOOR))


def write(delta: DeltaTable, *, until: float, seed: int) -> dict[str, int]:
    """Commit, and compact the log now and then."""
    rng, done = random.Random(seed), Counter[str]()
    while time.time() < until:
        try:
            commit(delta)
            done["commits"] += 1
            if rng.random() < 0.1:
                end = delta.latest_version()
                done["compactions"] += delta.compact_log(max(end - 3, 0), end).written
        except CommitConflictError:
            done["conflicts"] += 1
        except (VersionNotFoundError, DeltaWarning) as error:
            _allow(delta, error)
    return dict(done)


def checkpoint(delta: DeltaTable, *, until: float, seed: int) -> dict[str, int]:
    """Write checkpoints of both kinds, of new versions and of older ones.

    What a checkpoint names is given the look of being old, so that only the checkpoint protects it.
    """
    rng, done = random.Random(seed), Counter[str]()
    sidecars = Path(delta.storage.root, "_delta_log", "_sidecars")
    while time.time() < until:
        version = max(0, delta.latest_version() - rng.choice([0, 0, 0, 1, 5, 20]))
        try:
            result = delta.checkpoint(version, policy=rng.choice(["classic", "v2", "v2"]))
        except (VersionNotFoundError, DeltaWarning) as error:
            _allow(delta, error)
            continue
        except ObjectNotFoundError as error:
            _allow_gone(delta, error.path)
            continue
        done["checkpoints"] += result.written
        done["of shared sidecars"] += bool(result.sidecars_reused)
        if result.kind == "v2" and result.written:
            for name in _named(delta, result.path):
                then = time.time() - _DAYS_AGO
                os.utime(sidecars / name, (then, then))
    return dict(done)


def clean_up(delta: DeltaTable, *, until: float, seed: int) -> dict[str, int]:
    """Clean up again and again."""
    rng, done = random.Random(seed), Counter[str]()
    while time.time() < until:
        snapshot = open_backfilled(delta.storage)
        cutoff = find_cutoff_at(snapshot, int(time.time() * 1000) - KEPT_MS)
        plan = plan_metadata_cleanup(delta.storage, snapshot, cutoff=cutoff)
        if plan.needed:
            delta.storage.replace(FLOOR, str(max(plan.earliest_version, floor_of(delta))).encode())
            result = execute_metadata_cleanup(delta.storage, plan)
            done["cleanups"] += 1
            done["commits"] += plan.count("commits")
            done["checkpoints"] += plan.count("checkpoints")
            done["sidecars"] += plan.count("sidecars")
            done["spared"] += result.num_spared
        time.sleep(0.2 + rng.random() * 0.4)
    return dict(done)


def read(delta: DeltaTable, *, until: float, seed: int) -> dict[str, int]:
    """Read versions that are there: the newest, the oldest, and some in between, by several ways."""
    rng, done = random.Random(seed), Counter[str]()
    while time.time() < until:
        newest, floor = delta.latest_version(), floor_of(delta)
        version: int | None = rng.choice([None, floor, floor + 1, rng.randint(floor, newest)])
        if version is not None and version > newest:
            continue
        try:
            snapshot = delta.snapshot(version)
            if rng.random() < 0.3:
                time.sleep(rng.random() * 0.05)  # so that more may go between opening and reading
            paths = set(snapshot.files(columns=["path"])["path"].to_pylist())
        except (VersionNotFoundError, DeltaWarning) as error:
            _allow(delta, error)
            done["gone"] += 1
        else:
            assert paths == live_files(snapshot.version), snapshot.version
            done["read"] += 1
    return dict(done)


def _allow(delta: DeltaTable, error: VersionNotFoundError | DeltaWarning) -> None:
    """What may befall somebody: that a version is cleaned up, or twice the checkpoint that he goes by.

    The first time he looks at the log again without a word. The second time he warns, and would go on if
    warnings weren't errors here.
    """
    if isinstance(error, VersionNotFoundError):
        floor = floor_of(delta)
        assert error.version < floor, f"{error}: the log was cut down to {floor}"
        return
    named = re.search(r"the checkpoint (_delta_log/\S+) of version \d+ can't be used", str(error))
    assert named, error
    try:
        delta.storage.head(named[1])
    except ObjectNotFoundError:
        return
    raise AssertionError(f"{error}: it is still there")


def _allow_gone(delta: DeltaTable, path: str) -> None:
    """Before it writes a checkpoint it reads the existing one, unless that is cleaned up before."""
    gone = parse_log_file(FileInfo(path, 0, 0))
    assert isinstance(gone, V2Checkpoint | ClassicCheckpoint), path
    assert gone.version < floor_of(delta), path


def _named(delta: DeltaTable, path: str) -> list[str]:
    try:
        found: Any = parse_log_file(delta.storage.head(path))
        reader = open_checkpoint(delta.storage, found, table=delta.uri)
        return [sidecar.path for sidecar in reader.sidecars]
    except ObjectNotFoundError:
        return []


TASKS: dict[str, Callable[..., Any]] = {
    "write": write,
    "checkpoint": checkpoint,
    "clean_up": clean_up,
    "read": read,
}

if __name__ == "__main__":
    serve(TASKS, open_table)
