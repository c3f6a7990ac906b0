"""Jobs that commit small appends, by one writer, and by eight writers to one table."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import tables
from benchmarks.commit_writer import APPENDS, Append, commit
from benchmarks.job import ENGINE, Job, Outcome, Side, Work

__all__ = [
    "COMMITS",
    "JOBS",
    "WRITERS",
    "empty",
    "many_writers",
    "one_writer",
    "prepared",
    "started",
]

COMMITS = 1000
WRITERS = 8


def one_writer(given: tuple[str, Append]) -> Outcome:
    """The work of a single writer."""
    uri, append = given
    began = time.perf_counter()
    took = commit(append, 0, COMMITS)
    return _outcome(uri, took, time.perf_counter() - began)


def many_writers(given: tuple[str, list[subprocess.Popen[str]]]) -> Outcome:
    """The work of several writers that are ready; the times of all their commits are combined."""
    uri, writers = given
    began = time.perf_counter()
    for writer in writers:
        _say(writer, "go")
    took = [seconds for writer in writers for seconds in json.loads(_answer(writer))]
    return _outcome(uri, took, time.perf_counter() - began)


def _outcome(uri: str, took: list[float], seconds: float) -> Outcome:
    figures = {
        "commits/s": len(took) / seconds,
        "median ms": statistics.median(took) * 1000,
        "p95 ms": statistics.quantiles(took, n=20)[-1] * 1000,
    }
    return Outcome(_newest(uri), figures)


def _newest(uri: str) -> int:
    """The newest version, if all up to it are there."""
    names = sorted(path.name for path in Path(uri, "_delta_log").glob("*[0-9].json"))
    if names != [f"{version:020}.json" for version in range(len(names))]:
        raise RuntimeError(f"{uri}: a commit is missing among {len(names)}")
    return len(names) - 1


def prepared(side: str) -> Callable[[str], tuple[str, Append]]:
    """Makes what a writer commits with."""
    return lambda uri: (uri, APPENDS[side](uri))


def started(side: str) -> Callable[[str], tuple[str, list[subprocess.Popen[str]]]]:
    """Makes writers that are ready to commit."""

    def start(uri: str) -> tuple[str, list[subprocess.Popen[str]]]:
        command = [sys.executable, "-m", "benchmarks.commit_writer", side, uri]
        writers = [
            subprocess.Popen(
                [*command, str(number), str(COMMITS // WRITERS)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for number in range(WRITERS)
        ]
        for writer in writers:
            _answer(writer)
        return uri, writers

    return start


def _say(writer: subprocess.Popen[str], line: str) -> None:
    assert writer.stdin
    writer.stdin.write(f"{line}\n")
    writer.stdin.flush()


def _answer(writer: subprocess.Popen[str]) -> str:
    assert writer.stdout
    if line := writer.stdout.readline():
        return line
    raise RuntimeError("a writer has failed; what it said is above")


def empty(work: Path, _: int) -> Path:
    """Makes the table: version 0 alone."""
    return tables.empty(work)


def _job(
    name: str, title: str, work: Work, prepare: Callable[[str], Callable[[str], object]]
) -> Job:
    return Job(
        name,
        title,
        empty,
        Side("ours", work, prepare("ours"), ENGINE),
        (Side("deltalake", work, prepare("deltalake"), ("deltalake",)),),
        fresh=True,
        only_by_name=True,
    )


JOBS = (
    _job("commits-1", f"{COMMITS:,} commits of one add, one writer", one_writer, prepared),
    _job(
        "commits-8",
        f"{COMMITS:,} commits of one add, {WRITERS} writers on one table",
        many_writers,
        started,
    ),
)
