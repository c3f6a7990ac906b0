"""Run pairs: peer and engine in turn, each in a fresh process, and compare their medians."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.jobs import JOBS, Job

_ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Measured:
    """One run: seconds of work after the imports, peak memory in MB, and the answer."""

    seconds: float
    peak_mb: float
    answer: int


@dataclass(frozen=True, slots=True)
class Pair:
    """The medians of one job."""

    job: Job
    ours: Measured
    peer: Measured | None

    @property
    def time_ratio(self) -> float | None:
        """Our time over the peer's."""
        return self.ours.seconds / self.peer.seconds if self.peer else None

    @property
    def memory_ratio(self) -> float | None:
        """Our peak memory over the peer's."""
        return self.ours.peak_mb / self.peer.peak_mb if self.peer else None


def run_pair(job: Job, work: Path, actions: int, repeats: int) -> Pair:
    """Measure a job: peer and engine in turn, so that both see the same machine."""
    table = job.table(work, actions)
    peer_table = job.peer_table(work, actions) if job.peer_table else table
    ours, peers = [], []
    for _ in range(repeats):
        if job.peer:
            peers.append(_spawn(job, "peer", peer_table, work))
        ours.append(_spawn(job, "ours", table, work))
    if peers and {run.answer for run in peers} != {run.answer for run in ours}:
        raise RuntimeError(f"{job.name}: the answers differ: {peers[0].answer}, {ours[0].answer}")
    return Pair(job, _median(ours), _median(peers) if peers else None)


def _spawn(job: Job, side: str, table: Path, work: Path) -> Measured:
    with tempfile.TemporaryDirectory(dir=work) as scratch:
        target = table
        if job.fresh:
            target = Path(scratch) / "table"
            shutil.copytree(table, target)
        command = [sys.executable, "-m", "benchmarks.harness", job.name, side, str(target)]
        # A process that may not keep compiled modules would compile them anew each time.
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
        begin = time.perf_counter()
        done = subprocess.run(
            command, cwd=_ROOT, env=environment, capture_output=True, text=True, check=True
        )
        seconds = time.perf_counter() - begin
    measured = Measured(**json.loads(done.stdout))
    return replace(measured, seconds=seconds) if job.whole else measured


def _median(runs: Sequence[Measured]) -> Measured:
    return Measured(
        statistics.median(run.seconds for run in runs),
        statistics.median(run.peak_mb for run in runs),
        runs[0].answer,
    )


def measure(name: str, side: str, table: str) -> Measured:
    """Do one run in this process."""
    job = next(job for job in JOBS if job.name == name)
    work = job.ours if side == "ours" else job.peer
    if work is None:
        raise ValueError(f"{name} has no peer")
    _import(side, light=job.light or job.whole)
    given = (job.given_ours if side == "ours" else job.given_peer)(table)
    begin = time.perf_counter()
    answer = work(given)
    seconds = time.perf_counter() - begin
    return Measured(seconds, _peak_mb(), answer)


def _peak_mb() -> float:
    """Peak memory of this process; ``ru_maxrss`` won't do, since it survives exec from the parent."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    peak_kb = next(line for line in status.splitlines() if line.startswith("VmHWM:")).split()[1]
    return int(peak_kb) / 1024


def _import(side: str, *, light: bool) -> None:
    """Load what the side needs, outside the clock."""
    if side == "peer":
        import deltalake  # noqa: F401

        return
    import airflow_delta.engine.table

    if not light:
        # What the engine loads when it is first asked for files.
        import airflow_delta.engine.arrow.json_actions
        import airflow_delta.engine.arrow.parquet
        import airflow_delta.engine.replay.reconcile
        import airflow_delta.engine.scan.file_pruner  # noqa: F401


if __name__ == "__main__":
    result = measure(*sys.argv[1:])
    print(
        json.dumps({"seconds": result.seconds, "peak_mb": result.peak_mb, "answer": result.answer})
    )
