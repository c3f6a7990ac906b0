"""Each step of whatever is done to a managed table goes wrong once, in the store or in the commit store.

Whoever did it is told the truth; the table is in order for all kinds of readers at once, and whatever users
do next, the job is done once in the end, the table can be committed to, and all is in the log.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import ClassVar, TypeVar

import pytest
from deltalake import DeltaTable as Peer

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.commit.owner import Standing
from airflow_delta.engine.commit.store.owner import StoreBackedOwner
from airflow_delta.engine.errors import (
    CommitConflictError,
    CommitOutcomeUnknownError,
    CommitOwnerError,
    DeltaError,
    DeltaWarning,
    ObjectExistsError,
    StorageError,
    UnsafeStorageError,
)
from airflow_delta.engine.snapshot.opening import open_newest
from airflow_delta.engine.storage.base import Capabilities, Storage
from airflow_delta.engine.storage.memory import MemoryStorage
from airflow_delta.engine.transaction import commit_loop
from tests.deep import deep_but_for
from tests.faults.commit_jobs import append
from tests.faults.managed_jobs import (
    JOBS,
    Job,
    lenient,
    nothing_more,
    other_appends,
    other_backfills,
)
from tests.faults.managed_killed import Place, kills
from tests.faults.managed_world import (
    COMMIT_STORE_READS,
    Client,
    CommitStoreOnStorage,
    Truth,
    World,
)
from tests.faulty_storage import READS, STREAMED, Call, Crash, Fault, FaultyStorage, How
from tests.races.serial_model import timestamp_problems
from tests.table_builder import State, state_of

_Result = TypeVar("_Result")

_EFFECTLESS = READS | COMMIT_STORE_READS
CRASHES = [How.CRASH_BEFORE, How.CRASH_WITHIN, How.CRASH_AFTER]
ERRORS = [How.FAIL, How.LOSE_ANSWER, How.REPEAT, How.FULL]


class RemoteStorage(MemoryStorage):
    """A store behind a network, so that a request that failed may still be under way."""

    capabilities: ClassVar[Capabilities] = Capabilities(
        put_if_absent=True, start_after=True, remote=True
    )


class WithoutPutIfAbsent(MemoryStorage):
    """A store that can't create exclusively."""

    capabilities: ClassVar[Capabilities] = Capabilities(
        put_if_absent=False, start_after=True, remote=True
    )

    def create(self, path: str, data: bytes) -> None:
        """Refuse, as such stores do when it is tried all the same."""
        raise UnsafeStorageError("no put-if-absent", table=self.root, path=path)


STORES: dict[str, type[MemoryStorage]] = {
    "local": MemoryStorage,
    "remote": RemoteStorage,
    "without put-if-absent": WithoutPutIfAbsent,
}


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_loop, "pause", lambda _: None)


IN_SHORT = (
    "commit, each third is backfilled",
    "commit, backfilled from the start",
    "backfill",
    "create",
    "hand over",
    "take back",
)
"""One job of each kind."""


@pytest.fixture(params=deep_but_for(JOBS, *IN_SHORT))
def job(request: pytest.FixtureRequest) -> Job:
    return JOBS[request.param]


@pytest.fixture
def store(request: pytest.FixtureRequest) -> type[MemoryStorage]:
    return STORES[request.param]


@pytest.fixture
def start(job: Job) -> Iterator[World]:
    """The world before the job."""
    world = World()
    job.before(world.client())
    yield world
    world.clear()


def outcome_of(job: Job, client: Client) -> object:
    """What a task is told: the version or the error; an error of another kind goes through."""
    try:
        return lenient(job.run, client)
    except (DeltaError, Crash) as error:
        return error


def steps_of(client: Client) -> list[Call]:
    assert isinstance(client.storage, FaultyStorage)
    return client.storage.calls


def examine(truth: Truth, client: Client, before: list[bytes]) -> list[bytes]:
    """The table is in order, for those who ask its owner and for those who don't.

    Args:
        truth: what there is.
        client: a client.
        before: the commits that were there before.

    Returns:
        The commits that are there.
    """
    contents = truth.contents()
    assert contents[: len(before)] == before
    assert not [*truth.problems(), *timestamp_problems(truth.log)]
    states = truth.log.states
    assert len(states) == len(contents)
    if states:
        newest = client.delta.snapshot()
        assert newest.version == len(states) - 1 == client.delta.latest_version()
        assert state_of(newest) == states[-1].visible()
        if len(truth.logged) < len(states):
            with pytest.warns(DeltaWarning, match="may be stale"):
                logged = DeltaTable(client.storage.root).snapshot()
            assert logged.version == max(truth.logged)
            assert state_of(logged) == states[logged.version].visible()
    return contents


def recover(job: Job, world: World, others: Callable[[Client], object]) -> None:
    """What a user does next: the job once more, perhaps after others. Then all is as it is to be."""
    before = world.truth().contents()
    others(world.client())
    told = job.run(world.client())
    truth = world.truth()
    contents, made = truth.contents(), job.versions(truth.log)
    assert contents[: len(before)] == before
    if job.made is not None:
        assert len(made) == 1
        assert told in (None, *made)
    # The owner takes commits, or the file system does.
    version = append(world.client().delta, path="later", name="later")
    other_backfills(world.client())
    truth = world.truth()
    assert [*truth.logged.values()] == examine(truth, world.client(), contents)
    assert len(truth.logged) == len(contents) + 1 == version + 1
    assert truth.log.commits[version].info["userMetadata"] == "later"
    entry = truth.entry
    if job.managed:
        assert entry
        assert (entry.standing, entry.latest_version) == (Standing.ACTIVE, version)
        assert (entry.backfilled_version, entry.commits) == (version, ())
    else:
        assert entry is None


RECOVERIES = [nothing_more, other_appends, other_backfills]


def test_a_process_dies_before_in_and_after_each_step(job: Job, start: World) -> None:
    before = start.truth().contents()
    world = start.copy()
    client = world.client()
    lenient(job.run, client)
    seen = set()
    for nth, step in enumerate(steps_of(client), 1):
        if step.operation in _EFFECTLESS:
            continue
        for how in CRASHES:
            world = start.copy()
            assert isinstance(outcome_of(job, world.client(Fault("*", nth, how))), Crash)
            shape = world.truth().shape()
            if shape not in seen:
                seen.add(shape)
                examine(world.truth(), world.client(), before)
                for others in RECOVERIES:
                    recovered = world.copy()
                    recover(job, recovered, others)
                    recovered.clear()
            world.clear()
    assert len(seen) > 2


def judge(job: Job, world: World, outcome: object, before: list[bytes], *, unknown: bool) -> None:
    """The task was told the truth, and may go on.

    Args:
        job: what it did.
        world: where.
        outcome: what it was told.
        before: the commits that were there before.
        unknown: whether nobody can tell what became of a commit.
    """
    truth = world.truth()
    examine(truth, world.client(), before)
    made = job.versions(truth.log)
    if isinstance(outcome, CommitOutcomeUnknownError):
        assert unknown
        assert outcome.txn_id
    elif isinstance(outcome, DeltaError):
        assert isinstance(outcome, (StorageError, CommitOwnerError, CommitConflictError))
        assert not made
    elif job.made is not None:
        assert made == [outcome]


# Whether the store is remote, and whether it has put-if-absent, matters to puts that decide.
_STORES = [
    pytest.param(store, name, marks=() if name in IN_SHORT else pytest.mark.deep)
    for name, job in JOBS.items()
    for store in ("remote", "local" if job.puts else "without put-if-absent")
]


@pytest.mark.parametrize(("store", "job"), _STORES, indirect=True)
def test_each_step_fails_once(job: Job, start: World, store: type[MemoryStorage]) -> None:
    before = start.truth().contents()
    world = start.copy()
    client = world.client(capable=store)
    lenient(job.run, client)
    seen = set()
    for nth, step in enumerate(steps_of(client), 1):
        for how in [How.FAIL] if step.operation in _EFFECTLESS else ERRORS:
            world = start.copy()
            client = world.client(Fault("*", nth, how), capable=store)
            outcome = outcome_of(job, client)
            # Without room no repetition of the put can tell either.
            unknown = how is How.FULL and store is RemoteStorage and job.puts
            case = world.truth().shape(), _kind(outcome)
            if case not in seen:
                seen.add(case)
                judge(job, world, outcome, before, unknown=unknown)
                recover(job, world, nothing_more)
            world.clear()


def _kind(outcome: object) -> object:
    return type(outcome) if isinstance(outcome, BaseException) else outcome


def test_a_task_is_started_again_while_it_still_runs(job: Job, start: World) -> None:
    """At each of its steps the second try does all of it, and one of them makes the commit."""
    before = start.truth().contents()
    world = start.copy()
    client = world.client()
    lenient(job.run, client)
    for nth in range(1, len(steps_of(client)) + 1):
        world = start.copy()
        second: list[int | None] = []
        meanwhile = partial(_note, job, world, second)
        first = outcome_of(job, world.client(Fault("*", nth, meanwhile=meanwhile)))
        truth = world.truth()
        examine(truth, world.client(), before)
        if job.made is not None:
            made = job.versions(truth.log)
            assert len(made) == 1
            assert isinstance(first, CommitConflictError) or first in (None, *made)
            assert second == made or (second == [None] and [first] == made)
        elif isinstance(first, DeltaError):
            raise first
        world.clear()


def _note(job: Job, world: World, outcomes: list[int | None]) -> None:
    outcomes.append(lenient(job.run, world.client()))


def overtaken(world: World) -> Fault:
    """Another writer is faster, once."""
    return Fault("create", suffix=".json", meanwhile=lambda: other_appends(world.client()))


@pytest.mark.parametrize("job", ["commit, none is backfilled", "take back"], indirect=True)
def test_a_commit_is_recognised_though_others_have_backfilled_it(job: Job, start: World) -> None:
    """The answer of the commit store was lost, and it doesn't track the commit any more."""
    others = Fault("commit_store.ratify", 2, meanwhile=lambda: other_backfills(start.client()))
    client = start.client(Fault("commit_store.ratify", 1, How.LOSE_ANSWER), others)
    before = start.truth().contents()
    judge(job, start, outcome_of(job, client), before, unknown=False)
    assert job.versions(start.truth().log) == [len(before)]
    recover(job, start, nothing_more)


class LateStorage(FaultyStorage):
    """A network that takes its time: the n-th request with an effect fails, and arrives some calls later.

    Args:
        inner: where it arrives.
        nth: which one, from 1.
        later: after how many further calls.
    """

    def __init__(self, inner: Storage, *faults: Fault, nth: int, later: int) -> None:
        super().__init__(inner, *faults)
        self.late = ""
        self._left = nth
        self._later = later
        self._pending: Callable[[], object] | None = None

    def step(
        self,
        operation: str,
        path: str,
        effect: Callable[[], _Result],
        *,
        half: Callable[[], object] | None = None,
    ) -> _Result:
        if self._pending is not None:
            if not self._later:
                self.arrive()
            self._later -= 1
        if operation in _EFFECTLESS or operation in STREAMED:
            return super().step(operation, path, effect, half=half)
        self._left -= 1
        if self._left:
            return super().step(operation, path, effect, half=half)
        self.late, self._pending = operation, effect
        raise StorageError(f"{operation} {path!r} timed out", table=self.root, path=path)

    def arrive(self) -> None:
        """What is under way arrives."""
        pending, self._pending = self._pending, None
        if pending is not None:
            with suppress(ObjectExistsError):
                pending()


NEVER = 99
LATER = (0, 1, 2, 7, NEVER)
"""After how many calls; a request and its repetitions are a few calls apart, and so are two attempts."""


# Nobody is faster to create the table than whoever creates it.
_RACES = [
    pytest.param(race, name, marks=() if name in IN_SHORT else pytest.mark.deep)
    for race in ("alone", "overtaken")
    for name in JOBS
    if (race, name) != ("overtaken", "create")
]


@pytest.mark.parametrize(("race", "job"), _RACES, indirect=["job"])
def test_each_request_may_arrive_late(job: Job, start: World, race: str) -> None:
    """Before, between or after its repetitions, or when all is over; or the task is tried again before."""
    before = start.truth().contents()
    seen = set()
    for nth in itertools.count(1):
        for later in LATER:
            world = start.copy()
            faults = [overtaken(world)] if race == "overtaken" else []
            late = LateStorage(RemoteStorage(world.storage.root), *faults, nth=nth, later=later)
            client = Client(late, StoreBackedOwner(CommitStoreOnStorage(world.commit_store, late)))
            outcome = outcome_of(job, client)
            retried = later == NEVER and isinstance(outcome, DeltaError)
            if retried:
                lenient(job.run, world.client())
            late.arrive()
            case = world.truth().shape(), _kind(outcome), retried
            if case not in seen:
                seen.add(case)
                if not retried:
                    judge(job, world, outcome, before, unknown=True)
                names = [each.info.get("userMetadata") for each in world.truth().log.commits]
                assert names.count("other") == len(late.met)
                recover(job, world, nothing_more)
            world.clear()
        if not late.late:
            break
    assert nth > 2


def test_readers_see_a_version_at_each_step_and_never_an_older_one(job: Job, start: World) -> None:
    """Those who ask the owner see all that is ratified, and those who don't what is in the log."""
    before = start.truth().contents()
    seen: list[tuple[int, State]] = []
    seen_in_log: list[tuple[int, State]] = []

    def look() -> None:
        truth = start.truth()
        if not truth.logged:
            return
        newest, logged = start.client().delta.snapshot(), open_newest(start.storage)
        assert newest.version == len(truth.contents()) - 1
        assert logged.version == max(truth.logged)
        seen.append((newest.version, state_of(newest)))
        seen_in_log.append((logged.version, state_of(logged)))

    lenient(job.run, start.client(Fault("*", 0, meanwhile=look)))
    look()
    states = start.truth().log.states
    assert len(seen) > 5 or not before
    for found in (seen, seen_in_log):
        assert all(state == states[version].visible() for version, state in found)
        versions = [version for version, _ in found]
        assert versions == sorted(versions)


@pytest.mark.parametrize("job", [name for name, job in JOBS.items() if job.puts], indirect=True)
def test_what_takes_put_if_absent_is_refused_without_it(job: Job, start: World) -> None:
    before, shape = start.truth().contents(), start.truth().shape()
    outcome = outcome_of(job, start.client(capable=WithoutPutIfAbsent))
    assert isinstance(outcome, UnsafeStorageError)
    assert start.truth().shape() == shape
    examine(start.truth(), start.client(), before)
    recover(job, start, nothing_more)


# The others take no steps of their own.
_KILLED = JOBS.keys() - {"backfill a part", "hand over again", "take back"}


@pytest.mark.parametrize("name", deep_but_for(sorted(_KILLED), "hand over"))
def test_a_job_survives_kill_9(name: str, tmp_path: Path) -> None:
    """In a directory and a database, for real, before each step that changes one of them."""
    job, template = JOBS[name], Place(tmp_path / "template")
    template.table.mkdir(parents=True)
    job.before(template.client)
    before, files = template.world.truth().contents(), files_in(template.table)
    seen = set()
    for nth in itertools.count(1):
        place = Place(tmp_path / str(nth))
        place.table.mkdir(parents=True)
        place.fill(template, files)
        killed = kills(place, name, nth)
        world = place.world
        if (shape := world.truth().shape()) not in seen:
            seen.add(shape)
            examine(world.truth(), world.client(), before)
            examine_by_peer(world)
            recover(job, world, nothing_more)
            examine_by_peer(world)
        if not killed:
            break
    assert nth > 10
    assert len(seen) > 2


def files_in(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()
    }


def examine_by_peer(world: World) -> None:
    """deltalake, which has never heard of commit owners, reads what is in the log."""
    truth = world.truth()
    if not truth.logged:
        return
    peer = Peer(world.storage.root)
    assert peer.version() == max(truth.logged)
    paths = {path for path, _ in truth.log.states[peer.version()].files}
    assert {Path(uri).name for uri in peer.file_uris()} == paths
