"""``python -m benchmarks``: measure jobs beside the peer and print their ratios as a table."""

from __future__ import annotations

import argparse
import platform
import tempfile
from pathlib import Path

from benchmarks.harness import Pair, run_pair
from benchmarks.jobs import JOBS


def main() -> None:
    """Parse the arguments, run, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    names = [job.name for job in JOBS]
    parser.add_argument("jobs", nargs="*", metavar="JOB", help=f"of {', '.join(names)}")
    parser.add_argument("--actions", type=int, default=1_000_000, help="adds in the log")
    parser.add_argument("--repeats", type=int, default=5, help="runs of each side")
    parser.add_argument("--work", type=Path, help="keeps the tables from one call to the next")
    arguments = parser.parse_args()
    # Not `choices`: with nargs="*" the parser would ask that of the empty list, too.
    if unknown := sorted(set(arguments.jobs) - set(names)):
        parser.error(f"unknown jobs {', '.join(unknown)}: expected of {', '.join(names)}")
    wanted = [job for job in JOBS if not arguments.jobs or job.name in arguments.jobs]
    with tempfile.TemporaryDirectory() as scratch:
        work = arguments.work or Path(scratch)
        work.mkdir(parents=True, exist_ok=True)
        print(f"Python {platform.python_version()}, {arguments.actions:,} actions, ", end="")
        print(f"medians of {arguments.repeats}\n")
        print("| job | ours | peer | time ratio | memory ratio |")
        print("|---|---|---|---|---|")
        for job in wanted:
            print(_row(run_pair(job, work, arguments.actions, arguments.repeats)), flush=True)


def _row(pair: Pair) -> str:
    ours = f"{pair.ours.seconds:.3f} s / {pair.ours.peak_mb:.0f} MB"
    peer = f"{pair.peer.seconds:.3f} s / {pair.peer.peak_mb:.0f} MB" if pair.peer else "-"
    time_ratio = "-" if pair.time_ratio is None else f"{pair.time_ratio:.3f}"
    memory_ratio = "-" if pair.memory_ratio is None else f"{pair.memory_ratio:.2f}"
    return (
        f"| {pair.job.name}: {pair.job.title} | {ours} | {peer} | {time_ratio} | {memory_ratio} |"
    )


if __name__ == "__main__":
    main()
