"""``python -m benchmarks.measure JOB SIDE TABLE``: one run in this process, printed as a line of JSON."""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.job import Outcome

__all__ = ["Measured", "Stopwatch", "peak_mb", "process_tree"]

CPU = "CPU s"
"""The figure of a `Stopwatch`."""


@dataclass(slots=True)
class Measured:
    """One run.

    Attributes:
        seconds: of work after the imports.
        peak_mb: peak memory.
        answer: what the work gave.
        figures: other measures by name.
    """

    seconds: float
    peak_mb: float
    answer: int
    figures: dict[str, float] = field(default_factory=dict)

    def to_json(self) -> str:
        """As a line."""
        return json.dumps(
            {
                "seconds": self.seconds,
                "peak_mb": self.peak_mb,
                "answer": self.answer,
                "figures": self.figures,
            }
        )

    @classmethod
    def from_json(cls, line: str) -> Measured:
        """From such a line."""
        return cls(**json.loads(line))


class Stopwatch:
    """Measures work whose answer is computed afterwards; it starts when it is made.

    It also measures the time on processors of this process. On a machine with other work that says more
    than the time on the clock.
    """

    def __init__(self) -> None:
        self._began = time.perf_counter(), time.process_time()

    def stop(self) -> Callable[[int, Mapping[str, float]], Outcome]:
        """End the work, and return what makes its outcome of an answer and further figures."""
        seconds, cpu = time.perf_counter() - self._began[0], time.process_time() - self._began[1]
        peak = peak_mb()
        return lambda answer, figures: Outcome(answer, {CPU: cpu, **figures}, seconds, peak)


def measure(job_name: str, side_name: str, table: str) -> Measured:
    """Do one run in this process."""
    from benchmarks.jobs import JOBS

    side = next(job for job in JOBS if job.name == job_name).side(side_name)
    for module in side.loads:
        importlib.import_module(module)
    given = side.prepare(table)
    begin = time.perf_counter()
    outcome = side.work(given)
    seconds = time.perf_counter() - begin
    if not isinstance(outcome, Outcome):
        outcome = Outcome(outcome)
    if outcome.seconds is not None:
        seconds = outcome.seconds
    peak = peak_mb() if outcome.peak_mb is None else outcome.peak_mb
    return Measured(seconds, peak, outcome.answer, dict(outcome.figures))


def peak_mb(process: str = "self") -> float:
    """Peak memory of a process and of those it has started, each with its own, in MB.

    ``ru_maxrss`` won't do, since it survives exec from the parent.
    """
    return sum(_peak_kb(folder) for folder in process_tree(process)) / 1024


def process_tree(process: str) -> list[Path]:
    """The folders below ``/proc`` of a process and of those it has started."""
    folder = Path("/proc", process)
    found = [folder]
    # Each thread knows the processes that it has started itself.
    for children in folder.glob("task/*/children"):
        for child in children.read_text(encoding="ascii").split():
            found += process_tree(child)
    return found


def _peak_kb(folder: Path) -> int:
    lines = Path(folder, "status").read_text(encoding="ascii").splitlines()
    # A zombie process has no such line, and no memory.
    return sum(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


if __name__ == "__main__":
    print(measure(*sys.argv[1:]).to_json())
