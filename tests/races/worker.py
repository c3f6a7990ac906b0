"""Processes that work on one table at the same time. Each receives its tasks line by line.

`Worker` is the side of the test; ``python -m tests.races.worker`` is the process. A worker does its tasks
one after the other, and then answers. So a test that sends tasks to two workers before it waits for both
has them work at the same time.

The table's history is known in advance (`commit`), so that each process knows what a version must contain.
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from airflow_delta.engine import AddFile, DeltaTable, RemoveFile
from airflow_delta.engine.errors import DeltaError, DeltaWarning
from tests.memory_server import MEMORY_SERVER, MemoryServerStorage
from tests.table_builder import FAR_FUTURE_MS

__all__ = ["Worker", "live_files", "open_table", "serve", "warn_of_all_but_replacements"]

_ROOT = Path(__file__).resolve().parents[2]
_LAG = 3


class Worker:
    """A process that works on a table.

    Args:
        module: what it runs, which ends in `serve`.
    """

    def __init__(self, module: str = "tests.races.worker") -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def send(
        self,
        root: Path | str,
        tasks: list[dict[str, Any]],
        *,
        options: Mapping[str, str] | None = None,
    ) -> None:
        """Send tasks to the process: each is the name of a function below, with its arguments.

        Args:
            root: the table's location; `open_table` knows the possible ones.
            tasks: what to do with it.
            options: its storage options.
        """
        assert self._process.stdin
        self._process.stdin.write(json.dumps([str(root), dict(options or {}), tasks]) + "\n")
        self._process.stdin.flush()

    def is_done(self) -> bool:
        """Whether there are answers."""
        assert self._process.stdout
        return bool(select.select([self._process.stdout], [], [], 0)[0])

    def answers(self) -> list[Any]:
        """What came of the tasks; waits until they are done."""
        assert self._process.stdout
        answers: list[Any] = json.loads(self._process.stdout.readline())
        return answers

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.wait(timeout=30)
        self._process.stdout.close()


def live_files(version: int) -> set[str]:
    """The files of a version, when version 0 has none."""
    return {f"f{n}" for n in range(1, version + 1) if n % 2 or n + _LAG > version}


def open_table(root: str, options: Mapping[str, str]) -> DeltaTable:
    """A table by its location, which may also be that of a `MemoryServerStorage`."""
    delta = DeltaTable(root, storage_options=options)
    if root.startswith(MEMORY_SERVER):
        address, _, path = root[len(MEMORY_SERVER) :].partition("/")
        delta.__dict__["storage"] = MemoryServerStorage(address, path)
    return delta


def append(delta: DeltaTable, *, writer: str, count: int, behind_ms: int = 0) -> list[list[int]]:
    """Commit one file after the other, ``<writer>-<n>``; the versions and attempts that it took.

    If a checkpoint of the new version is due, its writer writes it.

    Args:
        delta: the table.
        writer: the writer's name.
        count: how many.
        behind_ms: how much this writer's clock is slow.
    """
    right = time.time_ns
    made = []
    with patch.object(time, "time_ns", lambda: right() - behind_ms * 1_000_000):
        for number in range(count):
            transaction = delta.transaction("WRITE")
            transaction.add_file(
                AddFile(f"{writer}-{number}", {}, 1, 1, data_change=True, stats='{"numRecords":1}')
            )
            result = transaction.commit()
            made.append([result.version, result.attempts])
            if result.checkpoint_due:
                delta.checkpoint(result.version)
    return made


def commit(delta: DeltaTable) -> int:
    """Add a file; and remove one of every two, three versions later."""
    transaction = delta.transaction("WRITE")
    number = transaction.read_table().version + 1
    transaction.add_file(
        AddFile(f"f{number}", {}, number, 1, data_change=True, stats='{"numRecords":1}')
    )
    old = number - _LAG
    if old > 0 and old % 2 == 0:
        transaction.remove_file(
            RemoveFile(f"f{old}", data_change=True, deletion_timestamp=FAR_FUTURE_MS)
        )
    return transaction.commit().version


def checkpoint(delta: DeltaTable, *, policy: Any, back: int) -> list[Any]:
    """Write one of the newest version, or of one before it."""
    version = max(delta.latest_version() - back, 0)
    result = delta.checkpoint(version, policy=policy)
    return [version, result.written, result.plan.incremental]


def compact(delta: DeltaTable, *, commits: int) -> bool:
    """Compact the last commits."""
    end = delta.latest_version()
    return delta.compact_log(max(end - commits, 0), end).written


def warn_of_all_but_replacements() -> None:
    """Have every warning of the engine raised, but for the one of a known defect.

    A reader whose checkpoint another writer replaces under his eyes takes it for damaged, and goes by
    the commits: see `tests.faults.test_replaced_meanwhile`.
    """
    warnings.simplefilter("error", DeltaWarning)
    warnings.filterwarnings("ignore", ".*checkpoint.parquet is damaged", DeltaWarning)


_TASKS: dict[str, Callable[..., Any]] = {
    "append": append,
    "commit": commit,
    "checkpoint": checkpoint,
    "compact": compact,
}


def serve(
    tasks: Mapping[str, Callable[..., Any]],
    opened: Callable[[str, Mapping[str, str]], DeltaTable],
) -> None:
    """Do what each line of the input says.

    Args:
        tasks: what can be done, by name.
        opened: opens a table, by its location and options.
    """
    warn_of_all_but_replacements()
    for line in sys.stdin:
        root, options, requested = json.loads(line)
        answers = [_done(tasks, partial(opened, root, options), **task) for task in requested]
        print(json.dumps(answers), flush=True)


def _done(
    tasks: Mapping[str, Callable[..., Any]],
    opened: Callable[[], DeltaTable],
    *,
    task: str,
    **arguments: Any,
) -> Any:
    try:
        return tasks[task](opened(), **arguments)
    except (DeltaError, DeltaWarning) as error:
        return {"error": type(error).__name__, "message": str(error)}
    # The test shall see it, wherever it is raised.
    except Exception:
        return {"error": "unexpected", "message": traceback.format_exc()}


if __name__ == "__main__":
    serve(_TASKS, open_table)
