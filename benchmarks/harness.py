"""Run jobs: all sides in turn, each in a fresh process, and compare their medians."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.job import Job, Side
from benchmarks.measure import Measured

__all__ = ["Result", "run_job"]

_ROOT = Path(__file__).resolve().parent.parent

WRITTEN = "MB written"


@dataclass(frozen=True, slots=True)
class Result:
    """The medians of one job, for each side that was measured."""

    job: Job
    ours: Measured
    peers: tuple[tuple[Side, Measured], ...]


def run_job(job: Job, work: Path, actions: int, repeats: int) -> Result:
    """Measure a job: all sides in turn, so that they see the same machine.

    Raises:
        RuntimeError: a side failed, or the answers differ.
    """
    sides = (*job.peers, job.ours)
    made = {side.name: (side.table or job.table)(work, actions) for side in sides}
    runs: dict[str, list[Measured]] = {side.name: [] for side in sides}
    for _ in range(repeats):
        for side in sides:
            runs[side.name].append(_spawn(job, side, made[side.name], work))
    answers = {name: {run.answer for run in of_side} for name, of_side in runs.items()}
    if len(set.union(*answers.values())) != 1:
        raise RuntimeError(f"{job.name}: the answers differ: {answers}")
    peers = tuple((side, _median(runs[side.name])) for side in job.peers)
    return Result(job, _median(runs[job.ours.name]), peers)


def _spawn(job: Job, side: Side, table: Path, work: Path) -> Measured:
    with tempfile.TemporaryDirectory(dir=work) as scratch:
        target = table
        if job.fresh:
            target = Path(scratch) / "table"
            shutil.copytree(table, target, copy_function=_link_or_copy)
        before = _log_files(target) if job.fresh else {}
        command = [sys.executable, "-m", "benchmarks.measure", job.name, side.name, str(target)]
        # A process that may not keep compiled modules would compile them anew each time.
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
        begin = time.perf_counter()
        done = subprocess.run(
            command, cwd=_ROOT, env=environment, capture_output=True, text=True, check=False
        )
        seconds = time.perf_counter() - begin
        if done.returncode:
            raise RuntimeError(f"{job.name}, {side.name}, failed:\n{done.stderr}")
        # Above it may be what the JVM had to say.
        measured = Measured.from_json(done.stdout.splitlines()[-1])
        if job.fresh:
            measured.figures[WRITTEN] = _written(before, target)
    if job.whole:
        measured.seconds = seconds
    return measured


def _link_or_copy(source: str, target: str) -> None:
    """Link commits and data files, which no job changes; copy the other files of the log."""
    path = Path(source)
    if path.name.endswith(".json") or "_delta_log" not in path.parts:
        os.link(source, target)
    else:
        shutil.copy2(source, target)


def _log_files(table: Path) -> dict[Path, tuple[int, int]]:
    found = ((path, path.stat()) for path in (table / "_delta_log").rglob("*") if path.is_file())
    return {path: (status.st_size, status.st_mtime_ns) for path, status in found}


def _written(before: dict[Path, tuple[int, int]], table: Path) -> float:
    """The size of all files that are new or changed in the log, in MB."""
    now = _log_files(table).items()
    return sum(size for path, (size, time_) in now if before.get(path) != (size, time_)) / 1e6


def _median(runs: Sequence[Measured]) -> Measured:
    return Measured(
        statistics.median(run.seconds for run in runs),
        statistics.median(run.peak_mb for run in runs),
        runs[0].answer,
        {name: statistics.median(run.figures[name] for run in runs) for name in runs[0].figures},
    )
