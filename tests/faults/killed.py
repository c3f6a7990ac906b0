"""Jobs that are killed for real: in a process each, by SIGKILL, before the n-th step that they take.

A step is whatever changes a directory: a file is opened in order to write it, is written to, synced,
linked, renamed or removed, or a directory is made. The interpreter tells of most (PEP 578).

`Killer` is the test's end; ``python -m tests.faults.killed`` the other one, which forks for each job, so
that it pays only once for what it imports.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from airflow_delta.engine import DeltaTable
from tests.faults import commit_jobs, maintenance_jobs
from tests.faulty_storage import Fault, FaultyStorage

__all__ = ["Killer", "count_steps"]

_RUNS = {**maintenance_jobs.RUNS, **commit_jobs.RUNS}
_ROOT = Path(__file__).resolve().parents[2]
_CHANGES = frozenset({"os.rename", "os.link", "os.remove", "os.mkdir"})
_WRITES = os.O_WRONLY | os.O_RDWR


class Killer:
    """A process that runs jobs in processes of their own, and kills them."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.killed"],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def kills(self, root: Path, job: str, nth: int) -> bool:
        """Run a job; whether it was killed, that is, whether it has so many steps."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps([str(root), job, nth]) + "\n")
        self._process.stdin.flush()
        status = int(self._process.stdout.readline())
        assert status in (0, -signal.SIGKILL)
        return status != 0

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.wait(timeout=30)
        self._process.stdout.close()


def main() -> None:
    """Run a job for each line of the input, and say how its process ended."""
    for line in sys.stdin:
        root, job, nth = json.loads(line)
        child = os.fork()
        if child == 0:
            _run(root, job, nth)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _run(root: str, job: str, nth: int) -> None:
    left = nth

    def step() -> None:
        nonlocal left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    delta = DeltaTable(root)
    delta.__dict__["storage"] = FaultyStorage(
        delta.storage, Fault("file.write", nth=0, meanwhile=step)
    )
    count_steps(root, step)
    with maintenance_jobs.small_files():
        _RUNS[job](delta)


def count_steps(root: str, step: Callable[[], None]) -> None:
    """Have a function called before each step that this process takes from now on.

    Args:
        root: the directory; a file that is named below an open directory counts as well.
        step: the function.
    """
    sync = os.fsync

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            changes = flags & _WRITES
        else:
            path = arguments[0] if arguments else ""
            changes = event in _CHANGES
        if changes and (str(path).startswith(root) or not os.path.isabs(str(path))):
            step()

    def synced(descriptor: int) -> None:
        step()
        sync(descriptor)

    sys.addaudithook(hook)
    os.fsync = synced


if __name__ == "__main__":
    main()
