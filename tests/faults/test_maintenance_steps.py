"""Each step of each job that writes checkpoints or compactions fails once, and kills the process once.

Whatever happens, the table reads as before, by each checkpoint that is there; nobody sees half a file;
the next run succeeds; and what an interrupted one has left behind is what a killed process leaves:
hidden neighbours, and sidecars that no checkpoint names.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import DeltaWarning, StorageError
from airflow_delta.engine.maintenance.checkpoint import execution as checkpointing
from tests.deep import deep_but_for
from tests.faults.killed import Killer
from tests.faults.maintenance_jobs import STATES, Job, examine, jobs, shape, small_files
from tests.faulty_storage import READS, STREAMED, Call, Crash, Fault, FaultyStorage, How
from tests.table_builder import Files, MemoryTable, state_of

JOBS = jobs()
HIDDEN = ("_delta_log/.", "_delta_log/_sidecars/")


def disturbed(table: MemoryTable, job: Job, *faults: Fault) -> tuple[object, FaultyStorage]:
    """Run a job with faults: what it returned or raised, and the storage that it had."""
    delta, storage = table.delta(), FaultyStorage(table.storage, *faults)
    delta.__dict__["storage"] = storage
    with warnings.catch_warnings():
        # They aren't necessary, and only they.
        warnings.filterwarnings("ignore", ".*(_last_checkpoint|checksum)", DeltaWarning)
        try:
            return job.run(delta), storage
        except (StorageError, Crash) as error:
            return error, storage


WAYS = {
    "read": (How.FAIL,),
    "stream": (How.FAIL, How.CRASH_WITHIN),
    "change": tuple(How),
}
"""What makes a difference: a process that dies in a read leaves what the step before it has left."""


WRITERS = {
    "classic": "write_classic_checkpoint",
    "classic, of an older version": "write_classic_checkpoint",
    "classic, from the previous one": "write_incremental_classic",
    "v2": "write_v2_checkpoint",
    "v2 of the classic name": "write_v2_checkpoint",
    "v2, from the previous one": "write_incremental_v2",
}


@pytest.mark.parametrize("name", WRITERS)
def test_the_jobs_go_the_ways_that_they_are_named_for(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = []
    for writer in set(WRITERS.values()):
        write = getattr(checkpointing, writer)
        monkeypatch.setattr(
            checkpointing,
            writer,
            lambda *args, writer=writer, write=write, **rest: (
                called.append(writer),
                write(*args, **rest),
            )[1],
        )
    with MemoryTable(JOBS[name].files) as table, small_files():
        result = JOBS[name].run(table.delta())
    assert called == [WRITERS[name]]
    assert result.path.endswith(".json") == (name in {"v2", "v2, from the previous one"})
    assert (result.sidecars_reused > 0) == (name == "v2, from the previous one")


def kind_of(step: Call) -> str:
    if step.operation in READS:
        return "read"
    return "stream" if step.operation in STREAMED else "change"


@pytest.mark.parametrize("name", deep_but_for(JOBS, "classic"))
def test_a_job_survives_whatever_fails(name: str) -> None:
    job = JOBS[name]
    with small_files():
        with MemoryTable(job.files) as table:
            nothing = shape(table.storage)
            done, undisturbed = disturbed(table, job)
            assert not isinstance(done, BaseException)
            examine(table.delta, job)
        examined: set[tuple[str, ...]] = set()
        for nth, step in enumerate(undisturbed.steps, 1):
            for how in WAYS[kind_of(step)]:
                with MemoryTable(job.files) as table:
                    outcome, storage = disturbed(table, job, Fault("**", nth, how))
                    assert [met.operation for met in storage.met] == [step.operation]
                    assert isinstance(outcome, Crash) == ("CRASH" in how.name)
                    left = shape(table.storage)
                    if left not in examined:
                        examine(table.delta, job)
                        examined.add(left)
                    if left == nothing:
                        assert isinstance(outcome, (StorageError, Crash))


@pytest.fixture(scope="module")
def killer() -> Iterator[Killer]:
    killer = Killer()
    yield killer
    killer.close()


@pytest.mark.deep
@pytest.mark.parametrize("name", ["classic, from the previous one", "v2, from the previous one"])
def test_a_job_survives_kill_9(name: str, killer: Killer, tmp_path: Path) -> None:
    """In a directory and for real, before each step that changes it."""
    job = JOBS[name]
    seen: set[tuple[str, ...]] = set()
    hidden = 0
    for nth in itertools.count(1):
        root = tmp_path / str(nth)
        lay_out(job.files, root)
        killed = killer.kills(root, name, nth)
        assert state_of(DeltaTable(str(root)).snapshot()) == STATES[-1]
        left = shape(DeltaTable(str(root)).storage)
        visible = tuple(path for path in left if not path.startswith(HIDDEN))
        hidden += visible != left
        if visible not in seen:
            with small_files():
                examine(lambda root=root: DeltaTable(str(root)), job)
            seen.add(visible)
        if not killed:
            break
    assert nth > 15
    assert hidden > 5


def lay_out(files: Files, root: Path) -> None:
    for path, content in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)
