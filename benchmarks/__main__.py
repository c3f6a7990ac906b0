"""``python -m benchmarks``: measure jobs and their peers, and print a table of the ratios."""

from __future__ import annotations

import argparse
import platform
import tempfile
from pathlib import Path

from benchmarks.harness import Result, run_job
from benchmarks.job import Job
from benchmarks.jobs import JOBS
from benchmarks.measure import Measured


def main() -> None:
    """Parse the arguments, run, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    names = [job.name for job in JOBS]
    parser.add_argument("jobs", nargs="*", metavar="JOB", help=f"of {', '.join(names)}")
    parser.add_argument(
        "--actions", type=int, help="adds in the log, or rows; by default a million"
    )
    parser.add_argument("--repeats", type=int, default=5, help="runs of each side")
    parser.add_argument("--work", type=Path, help="keeps the tables from one call to the next")
    arguments = parser.parse_args()
    # Not `choices`: with nargs="*" the parser would ask that of the empty list, too.
    if unknown := sorted(set(arguments.jobs) - set(names)):
        parser.error(f"unknown jobs {', '.join(unknown)}: expected of {', '.join(names)}")
    named = arguments.jobs or [job.name for job in JOBS if not job.only_by_name]
    with tempfile.TemporaryDirectory() as scratch:
        work = arguments.work or Path(scratch)
        work.mkdir(parents=True, exist_ok=True)
        actions = f"{arguments.actions:,} actions, " if arguments.actions else ""
        print(f"Python {platform.python_version()}, {actions}medians of {arguments.repeats}\n")
        print("| job | ours | peer | time ratio | memory ratio | other ratios |")
        print("|---|---|---|---|---|---|")
        for job in JOBS:
            if job.name in named:
                _print(run_job(job, work, arguments.actions or job.actions, arguments.repeats))


def _print(result: Result) -> None:
    """Print a row for each peer."""
    job, ours = result.job, result.ours
    if not result.peers:
        print(f"| {_title(job)} | {_cell(ours)} | - | - | - | - |", flush=True)
    for side, peer in result.peers:
        cells = [
            _title(job),
            _cell(ours),
            f"{side.name}: {_cell(peer)}",
            f"{ours.seconds / peer.seconds:.3f}",
            f"{ours.peak_mb / peer.peak_mb:.2f}",
            ", ".join(
                f"{name} {ours.figures[name] / value:.3f}"
                for name, value in peer.figures.items()
                if value
            )
            or "-",
        ]
        print(f"| {' | '.join(cells)} |", flush=True)


def _title(job: Job) -> str:
    return f"{job.name}: {job.title}"


def _cell(measured: Measured) -> str:
    figures = [f"{name} {value:.3g}" for name, value in measured.figures.items()]
    return " / ".join([f"{measured.seconds:.3f} s", f"{measured.peak_mb:.0f} MB", *figures])


if __name__ == "__main__":
    main()
