"""Jobs that plan a vacuum, and the dry run of `deltalake`, for a table whose files exist.

The files are empty, because a vacuum doesn't open them, and as old as the log says. A tenth of the adds is
removed; their files still exist, and one unreferenced file for every hundred adds. The log has a checkpoint
of the peer and all commits. Both sides list the directories, read the log, and return the number of files
to delete. Ours also computes the oldest version that can be restored.

The lite vacuum has no peer: ours goes back to the last vacuum, that of `deltalake` to the last checkpoint.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from benchmarks import tables
from benchmarks.handles import our_table, peer_table
from benchmarks.job import ENGINE, Job, deltalake, ours
from benchmarks.tables import COMMITS

__all__ = ["JOBS"]

_LOADS = (*ENGINE, "airflow_delta.engine.maintenance.vacuum.plan")


def _our_plan(uri: str) -> int:
    return int(our_table(uri).vacuum(dry_run=True).plan.files.num_rows)


def _peer_plan(uri: str) -> int:
    return len(peer_table(uri).vacuum(dry_run=True, full=True))


def _our_lite_plan(uri: str) -> int:
    return int(our_table(uri).vacuum(dry_run=True, mode="lite").plan.files.num_rows)


def _with_files(work: Path, actions: int) -> Path:
    """The table of `json_log` with a checkpoint of the peer's, all commits, and its files."""
    root = work / f"files-{actions}-{COMMITS}"
    if not root.is_dir():
        unfinished = root.with_suffix(".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        shutil.copytree(tables.json_log(work, actions, COMMITS), unfinished)
        _make_files(unfinished, actions)
        peer_table(str(unfinished)).create_checkpoint()
        unfinished.rename(root)
    return root


def _make_files(root: Path, actions: int) -> None:
    stamp = tables.START_MS * 1_000_000
    folders: set[str] = set()
    for path in chain(map(tables.data_path, range(actions)), _orphans(actions // 100)):
        folder = path.rpartition("/")[0]
        if folder not in folders:
            (root / folder).mkdir(parents=True, exist_ok=True)
            folders.add(folder)
        # By descriptors, for there are a million.
        descriptor = os.open(f"{root}/{path}", os.O_CREAT | os.O_WRONLY)
        os.utime(descriptor, ns=(stamp, stamp))
        os.close(descriptor)


def _orphans(count: int) -> Iterator[str]:
    return (f"day={key % 365:03}/orphan-{key:07}.parquet" for key in range(count))


JOBS = (
    Job(
        "vacuum",
        "plan a full vacuum: list all files, compare them with the log",
        _with_files,
        ours(_our_plan, loads=_LOADS),
        deltalake(_peer_plan),
        only_by_name=True,
    ),
    Job(
        "vacuum-lite",
        "plan a lite vacuum: what the log has removed",
        _with_files,
        ours(_our_lite_plan, loads=_LOADS),
        only_by_name=True,
    ),
)
