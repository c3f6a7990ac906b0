"""Each step of each kind of commit goes wrong once: the commit is there once, or not at all.

And whoever made it is told which. That it can't be told is the answer only where that is so: what
failed was the put, each repetition of it, and the look at what became of them. A request that is taken
for lost may still arrive later, from a store behind a network.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import ClassVar, TypeVar

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import (
    CommitConflictError,
    CommitOutcomeUnknownError,
    DeltaError,
    ObjectExistsError,
    StorageError,
    TableAlreadyExistsError,
)
from airflow_delta.engine.storage.base import Capabilities, Storage
from airflow_delta.engine.storage.local import LocalStorage
from airflow_delta.engine.storage.memory import MemoryStorage
from airflow_delta.engine.transaction import commit_loop
from tests.deep import deep_but_for
from tests.faults.commit_jobs import JOBS, Job, append
from tests.faults.killed import Killer
from tests.faults.test_maintenance_steps import lay_out
from tests.faulty_storage import READS, Call, Crash, Fault, FaultyStorage, How
from tests.races.replayed_log import Log
from tests.races.serial_model import row_id_problems, timestamp_problems
from tests.table_builder import MemoryTable, state_of

_Result = TypeVar("_Result")

COMMIT = ".json"
OTHER = "other"


class RemoteStorage(MemoryStorage):
    """A store behind a network, so that a request that failed may still be under way."""

    capabilities: ClassVar[Capabilities] = Capabilities(
        put_if_absent=True, start_after=True, remote=True
    )


STORES: dict[str, type[MemoryStorage]] = {"local": MemoryStorage, "remote": RemoteStorage}


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_loop, "pause", lambda _: None)
    # The steps of a commit are counted, and one of them is left out a few seconds after the last time.
    monkeypatch.setattr(commit_loop, "monotonic_s", lambda: 0.0)


@pytest.fixture(params=deep_but_for(STORES, "local"))
def store(request: pytest.FixtureRequest) -> type[MemoryStorage]:
    return STORES[request.param]


def on(storage: Storage) -> DeltaTable:
    """A table as a new process opens it."""
    delta = DeltaTable(storage.root)
    delta.__dict__["storage"] = storage
    return delta


def outcome_of(job: Job, storage: Storage) -> object:
    """The version that a task was told of, or the error; an error of another kind goes through."""
    try:
        return job.run(on(storage))
    except (DeltaError, Crash) as error:
        return error


def examine(job: Job, storage: Storage) -> Log:
    """Whatever happened, the table is in order."""
    log = Log(storage)
    log.look()
    if log.states:
        assert state_of(on(storage).snapshot()) == log.states[-1].visible()
    problems = [*row_id_problems(log), *timestamp_problems(log)]
    for commit in log.commits:
        problems += log.checksum_problems(commit.version)
    assert not problems
    assert len(job.versions(log)) <= 1
    return log


def judge(job: Job, storage: Storage, outcome: object, *, unknown: bool) -> None:
    """The task was told the truth, and can go on.

    Args:
        job: what it did.
        storage: where.
        outcome: what it was told.
        unknown: whether nobody can tell what became of the commit.
    """
    made = job.versions(examine(job, storage))
    if isinstance(outcome, CommitOutcomeUnknownError):
        assert unknown
        assert outcome.txn_id
    elif isinstance(outcome, int):
        assert made == [outcome]
    elif not isinstance(outcome, Crash):
        assert isinstance(outcome, (StorageError, CommitConflictError))
        assert not made
    again(job, storage, made)


def again(job: Job, storage: Storage, made: list[int]) -> None:
    """The retry of a task that doesn't know what became of the first try."""
    if job is JOBS["rewrite once"]:
        version = job.run(on(storage))
        assert job.versions(examine(job, storage)) == [version]
        assert made in ([], [version])
    elif job is JOBS["create"]:
        with suppress(TableAlreadyExistsError):
            job.run(on(storage))
        assert job.versions(examine(job, storage)) == [0]
    else:
        version = append(on(storage), path="later", name="later")
        log = examine(job, storage)
        assert log.commits[version].info["userMetadata"] == "later"
        assert job.versions(log) == made


def new_table(job: Job, store: type[MemoryStorage]) -> tuple[MemoryTable, Storage]:
    table = MemoryTable(job.files)
    return table, store(table.uri)


def steps_of(job: Job, store: type[MemoryStorage], *faults: Fault) -> list[Call]:
    """What is called where no more goes wrong."""
    table, storage = new_table(job, store)
    with table:
        watched = FaultyStorage(storage, *faults)
        assert isinstance(outcome_of(job, watched), int)
        return watched.calls


@pytest.mark.parametrize("name", JOBS)
def test_every_step_fails_once(name: str, store: type[MemoryStorage]) -> None:
    job = JOBS[name]
    steps = steps_of(job, store)
    assert sum(step.operation == "create" for step in steps) == 2  # the commit and its checksum
    for nth, step in enumerate(steps, 1):
        for how in [How.FAIL] if step.operation in READS else How:
            table, storage = new_table(job, store)
            with table:
                faulty = FaultyStorage(storage, Fault("*", nth, how))
                outcome = outcome_of(job, faulty)
                assert faulty.met
                # Without room no repetition of the put can tell either.
                full = how is How.FULL and step.path.endswith(COMMIT)
                judge(job, storage, outcome, unknown=full and storage.capabilities.remote)
                if step.operation == "create" and how in (How.FAIL, How.LOSE_ANSWER, How.REPEAT):
                    assert isinstance(outcome, int), "repeating the put should have told"


def overtaken(storage: Storage) -> Fault:
    """Another writer is faster, once."""
    return Fault(
        "create",
        suffix=COMMIT,
        meanwhile=lambda: append(on(storage), path="theirs", name=OTHER),
    )


@pytest.mark.parametrize(
    "name", deep_but_for(["append", "append with row ids", "turn timestamps on"], "append")
)
def test_every_step_after_a_lost_race_fails_once(name: str, store: type[MemoryStorage]) -> None:
    job = JOBS[name]
    table, storage = new_table(job, store)
    with table:
        watched = FaultyStorage(storage, overtaken(storage))
        assert isinstance(outcome_of(job, watched), int)
        steps = watched.calls
    lost = next(n for n, step in enumerate(steps, 1) if step.operation == "create")
    assert sum(step.path.endswith(COMMIT) and step.operation == "create" for step in steps) == 2
    for nth in range(lost, len(steps) + 1):
        for how in [How.FAIL] if steps[nth - 1].operation in READS else How:
            table, storage = new_table(job, store)
            with table:
                faulty = FaultyStorage(storage, overtaken(storage), Fault("*", nth, how))
                outcome = outcome_of(job, faulty)
                step = steps[nth - 1]
                full = how is How.FULL and step.path.endswith(COMMIT)
                unknown = full and storage.capabilities.remote
                judge(job, storage, outcome, unknown=unknown)
                names = [
                    commit.info.get("userMetadata") for commit in examine(job, storage).commits
                ]
                assert names.count(OTHER) == 1


@pytest.mark.parametrize("name", JOBS)
def test_the_store_goes_away_after_a_put(name: str, store: type[MemoryStorage]) -> None:
    """No put has an answer, and no look at what became of it; the first one may have arrived."""
    job = JOBS[name]
    for how in (How.FAIL, How.LOSE_ANSWER):
        table, storage = new_table(job, store)
        with table:
            gone = FaultyStorage(storage)
            # From the next step on nothing works any more.
            end = partial(gone.__init__, storage, Fault("**", 0, How.FAIL))
            gone.__init__(storage, Fault("create", how=how, suffix=COMMIT, meanwhile=end))
            outcome = outcome_of(job, gone)
            assert isinstance(outcome, CommitOutcomeUnknownError)
            made = job.versions(examine(job, storage))
            assert len(made) == (how is How.LOSE_ANSWER)
            again(job, storage, made)


class LateStorage(FaultyStorage):
    """A store that takes its time: the n-th put of a commit fails, and arrives some calls later.

    Args:
        inner: where it arrives.
        nth: which put, from 1.
        later: after how many further calls.
    """

    def __init__(self, inner: Storage, *faults: Fault, nth: int, later: int) -> None:
        super().__init__(inner, *faults)
        self._left = nth
        self._later = later
        self._pending: Callable[[], None] | None = None

    def create(self, path: str, data: bytes) -> None:
        self._left -= path.endswith(COMMIT)
        if self._left or not path.endswith(COMMIT):
            super().create(path, data)
            return
        self._pending = lambda: self.inner.create(path, data)
        raise StorageError(f"create {path!r} timed out", table=self.root, path=path)

    def step(
        self,
        operation: str,
        path: str,
        effect: Callable[[], _Result],
        *,
        half: Callable[[], object] | None = None,
    ) -> _Result:
        if self._pending:
            if not self._later:
                self.arrive()
            self._later -= 1
        return super().step(operation, path, effect, half=half)

    def arrive(self) -> None:
        """What is under way arrives."""
        pending, self._pending = self._pending, None
        if pending:
            with suppress(ObjectExistsError):
                pending()


LATE_IN_SHORT = ("create", "append", "rewrite once", "turn timestamps on")


@pytest.mark.parametrize(
    ("name", "race"),
    [
        pytest.param(name, race, marks=() if name in LATE_IN_SHORT else pytest.mark.deep)
        for name in JOBS
        for race in ("alone", "overtaken")
        if JOBS[name].files or race == "alone"
    ],
)
def test_a_put_arrives_late(name: str, race: str) -> None:
    """Before, between or after its repetitions; the last ones come when all is over."""
    job = JOBS[name]
    for nth, later in itertools.product((1, 2), range(6)):
        table, storage = new_table(job, RemoteStorage)
        with table:
            faults = [overtaken(storage)] if race == "overtaken" else []
            late = LateStorage(storage, *faults, nth=nth, later=later)
            outcome = outcome_of(job, late)
            late.arrive()
            judge(job, storage, outcome, unknown=False)


@pytest.mark.parametrize("name", JOBS)
def test_a_put_arrives_when_it_was_given_up(name: str) -> None:
    """No repetition comes through, and nothing is there yet: nobody can tell, and it comes."""
    job = JOBS[name]
    table, storage = new_table(job, RemoteStorage)
    with table:
        late = LateStorage(storage, Fault("create", 0, How.FAIL), nth=1, later=99)
        outcome = outcome_of(job, late)
        assert isinstance(outcome, CommitOutcomeUnknownError)
        assert not job.versions(examine(job, storage))
        late.arrive()
        made = job.versions(examine(job, storage))
        assert len(made) == 1
        again(job, storage, made)


def test_a_put_arrives_after_the_retry_of_its_task() -> None:
    """The retry makes the version, so that what comes late finds it taken."""
    job = JOBS["rewrite once"]
    table, storage = new_table(job, RemoteStorage)
    with table:
        late = LateStorage(storage, Fault("create", 0, How.FAIL), nth=1, later=99)
        assert isinstance(outcome_of(job, late), CommitOutcomeUnknownError)
        version = job.run(on(storage))
        late.arrive()
        assert job.versions(examine(job, storage)) == [version]


@pytest.fixture(scope="module")
def killer() -> Iterator[Killer]:
    killer = Killer()
    yield killer
    killer.close()


@pytest.mark.parametrize(
    "name",
    deep_but_for(["create", "rewrite", "rewrite once", "turn timestamps on"], "rewrite once"),
)
def test_a_commit_survives_kill_9(name: str, killer: Killer, tmp_path: Path) -> None:
    """In a directory and for real, before each step that changes it."""
    job = JOBS[name]
    counts = []
    for nth in itertools.count(1):
        root = tmp_path / str(nth)
        root.mkdir()
        lay_out(job.files, root)
        killed = killer.kills(root, name, nth)
        storage = LocalStorage(str(root))
        made = job.versions(examine(job, storage))
        counts.append(len(made))
        again(job, storage, made)
        if not killed:
            break
    assert len(counts) > 5
    # Until some step it isn't there, and from then on it is.
    assert counts == sorted(counts)
    assert {*counts} == {0, 1}
