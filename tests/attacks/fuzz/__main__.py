"""``python -m tests.attacks.fuzz``: run cases, and print what is wrong, one group for each kind of it."""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.attacks.fuzz.runner import (
    SAMPLE,
    SECONDS,
    Finding,
    Report,
    Runner,
    make_templates,
    seeds_of,
)
from tests.attacks.fuzz.tables import FORMS


def main() -> int:
    """Run the cases that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m tests.attacks.fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="of the first case")
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, help="how long an operation may take"
    )
    parser.add_argument("--form", action="append", choices=FORMS, help="only this form of the log")
    parser.add_argument("--mutation", action="append", help="only this mutation")
    parser.add_argument("--operation", action="append", help="only this operation")
    parser.add_argument("--all", action="store_true", help="every operation on each case, not some")
    parser.add_argument(
        "--sample", type=int, default=SAMPLE, help="how many operations on each case"
    )
    parser.add_argument("--store", action="store_true", help="lay tables out in an S3 of moto's")
    parser.add_argument("--keep", action="store_true", help="leave the directory of the last case")
    parser.add_argument("--verbose", action="store_true", help="print each outcome")
    parser.add_argument("--answers", action="store_true", help="print how often each answer came")
    options = parser.parse_args()
    started = time.monotonic()
    report = _run(options)
    _print(report, answers=options.answers)
    print(f"{report.cases} cases in {time.monotonic() - started:.0f} s")
    return 1 if report.findings else 0


def _run(options: argparse.Namespace) -> Report:
    report = Report()
    with tempfile.TemporaryDirectory() as directory:
        templates = make_templates(Path(directory))

        def part(number: int) -> Report:
            with Runner(
                seconds=options.seconds,
                keep=options.keep,
                chosen={"forms": options.form or (), "mutations": options.mutation or ()},
                operations=options.operation or (),
                sample=None if options.all else options.sample,
                verbose=options.verbose,
                templates=templates,
                store=options.store,
                progress=True,
            ) as runner:
                if options.keep:
                    print(f"in {runner.directory}")
                return runner.run(seeds_of(options.seed, options.cases, number, options.workers))

        with ThreadPoolExecutor(options.workers) as pool:
            for found in pool.map(part, range(options.workers)):
                report.add(found)
    return report


def _print(report: Report, *, answers: bool) -> None:
    groups: dict[str, list[Finding]] = defaultdict(list)
    for finding in report.findings:
        said = re.sub(r"/\S*/case/\S*|:\d+ |\d+|'[^']*'", "_", finding.said)[:110]
        said = said.partition(":")[0] if finding.kind == "left the root" else said
        groups[f"{finding.kind}: {said}"].append(finding)
    for found in sorted(groups.values(), key=len, reverse=True):
        operations = sorted({finding.operation for finding in found})
        seeds = sorted({finding.seed for finding in found})
        print(f"\n{len(found)} times, {len(seeds)} cases, in {', '.join(operations)[:200]}")
        print(f"    first of seeds {seeds[:8]}: {found[0]}"[:900])
    if answers:
        for answer, count in sorted(report.answers.items()):
            print(f"{count:7} {answer}")
        for name, count in sorted(report.mutations.items()):
            print(f"{count:7} {name}")
    print(f"\n{len(groups)} groups of findings; {report.operations} operations")
    print(
        f"slowest {report.slowest}, largest {report.largest} MB, with {os.cpu_count()} processors"
    )


if __name__ == "__main__":
    sys.exit(main())
