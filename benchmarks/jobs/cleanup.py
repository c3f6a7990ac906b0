"""Jobs that plan or do a metadata cleanup of a log of many commits, and the cleanup of `deltalake`.

The log is that of the time travel jobs, with ten checkpoints. All files are as old as their versions, so
only the newest version stays. This includes the checkpoints, because the peer uses their modification
times. The peer has no dry run, so our plan is compared with its whole cleanup too.

The answer is the number of deleted commits and checkpoints. It doesn't include version checksums: ours
deletes those of deleted checkpoints, the peer deletes none.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from benchmarks import tables
from benchmarks.handles import our_table, peer_table
from benchmarks.job import ENGINE, Job, deltalake, ours

__all__ = ["JOBS"]

_LOADS = (*ENGINE, "airflow_delta.engine.maintenance.metadata_cleanup.execution")
_COUNTED = re.compile(r"[0-9]{20}\.(json|checkpoint\.parquet)")


def _our_plan(uri: str) -> int:
    plan = our_table(uri).cleanup_metadata(dry_run=True).plan
    return plan.count("commits") + plan.count("checkpoints")


def _our_cleanup(given: tuple[str, int]) -> int:
    uri, before = given
    our_table(uri).cleanup_metadata()
    return before - _count(uri)


def _peer_cleanup(given: tuple[str, int]) -> int:
    uri, before = given
    peer_table(uri).cleanup_metadata()
    return before - _count(uri)


def _counted(uri: str) -> tuple[str, int]:
    return uri, _count(uri)


def _count(uri: str) -> int:
    # Not by Path.glob, for the sake of memory. After a cleanup there is next to nothing to count.
    with os.scandir(Path(uri, "_delta_log")) as entries:
        return sum(_COUNTED.fullmatch(entry.name) is not None for entry in entries)


def _old_log(work: Path, actions: int) -> Path:
    """The log of `tables.long_log`, its checkpoints as old as their versions."""
    source = tables.long_log(work, actions // 10)
    root = work / f"old-{source.name}"
    if not root.is_dir():
        unfinished = root.with_suffix(".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        shutil.copytree(source, unfinished, copy_function=_link_or_copy)
        for file in (unfinished / "_delta_log").glob("*.[!j]*"):
            stamp = tables.commit_ms(int(file.name[:20])) * 1_000_000
            os.utime(file, ns=(stamp, stamp))
        unfinished.rename(root)
    return root


def _link_or_copy(source: str, target: str) -> None:
    """The commits stay as they are, so another name is enough."""
    if source.endswith(".json"):
        os.link(source, target)
    else:
        shutil.copy2(source, target)


JOBS = (
    Job(
        "cleanup-plan",
        "plan a metadata cleanup, nearly all of a log goes (the peer: the whole cleanup)",
        _old_log,
        ours(_our_plan, loads=_LOADS),
        deltalake(_peer_cleanup, prepare=_counted),
        fresh=True,
        only_by_name=True,
    ),
    Job(
        "cleanup",
        "plan the same cleanup and do it",
        _old_log,
        ours(_our_cleanup, prepare=_counted, loads=_LOADS),
        deltalake(_peer_cleanup, prepare=_counted),
        fresh=True,
        only_by_name=True,
    ),
)
