"""The contract of commit stores, over every implementation."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import permutations
from multiprocessing import get_context
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_delta.engine.commit.owner import Standing
from airflow_delta.engine.commit.sql.store import SqlCommitStore
from airflow_delta.engine.commit.store.commit_store import CommitStore, TableEntry
from airflow_delta.engine.commit.store.memory import MemoryCommitStore
from airflow_delta.engine.log.files import UnbackfilledCommit, unbackfilled_commit_path
from tests.postgres_server import new_database

PROPOSED, ACTIVE, RELEASED = Standing.PROPOSED, Standing.ACTIVE, Standing.RELEASED


def memory(folder: Path) -> CommitStore:
    return MemoryCommitStore()


def on_sqlite(folder: Path) -> CommitStore:
    return SqlCommitStore(f"sqlite:///{folder}/commits.db")


def on_postgresql(folder: Path) -> CommitStore:
    return SqlCommitStore(new_database())


SHARED = {"sqlite": on_sqlite, "postgresql": on_postgresql}
COMMIT_STORES: dict[str, Callable[[Path], CommitStore]] = {"memory": memory, **SHARED}


@pytest.fixture(scope="module", params=COMMIT_STORES)
def commit_store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> CommitStore:
    """One of each kind for all tests: they use tables of their own."""
    made = COMMIT_STORES[request.param](tmp_path_factory.mktemp("central"))
    active(made)
    return made


@pytest.fixture(scope="module", params=SHARED)
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> CommitStore:
    """One of each kind that several processes can share."""
    return SHARED[request.param](tmp_path_factory.mktemp("central"))


def commit(version: int, uuid: str | None = None) -> UnbackfilledCommit:
    uuid = uuid or str(uuid4())
    return UnbackfilledCommit(
        version, uuid, unbackfilled_commit_path(version, uuid), 2**40 + version, 2**41 + version
    )


def active(commit_store: CommitStore, version: int = 0) -> str:
    """A new table that is active from a version on."""
    table_id = str(uuid4())
    commit_store.propose(table_id, f"s3://bucket/{table_id}", version)
    commit_store.activate(table_id)
    return table_id


def entry(commit_store: CommitStore, table_id: str) -> TableEntry:
    found = commit_store.find(table_id)
    assert found is not None
    return found


# The hand-over.


def test_a_table_that_was_never_entered_is_not_found(commit_store: CommitStore) -> None:
    assert commit_store.find(str(uuid4())) is None
    assert commit_store.entries_at(f"s3://bucket/{uuid4()}") == []


@pytest.mark.parametrize("version", [0, 7, 2**62])
def test_a_proposal_is_of_the_version_before_the_hand_over(
    commit_store: CommitStore, version: int
) -> None:
    table_id, location = str(uuid4()), "s3://bücket/it's %41 \\ 表"
    commit_store.propose(table_id, location, version)
    assert entry(commit_store, table_id) == TableEntry(
        table_id, location, PROPOSED, version, version - 1, version - 1, ()
    )
    commit_store.activate(table_id)
    assert entry(commit_store, table_id) == TableEntry(
        table_id, location, ACTIVE, version, version, version, ()
    )


def test_a_proposal_replaces_the_one_before(commit_store: CommitStore) -> None:
    table_id = str(uuid4())
    commit_store.propose(table_id, "s3://bucket/a", 5)
    commit_store.propose(table_id, "s3://bucket/b", 7)
    assert entry(commit_store, table_id) == TableEntry(
        table_id, "s3://bucket/b", PROPOSED, 7, 6, 6, ()
    )
    commit_store.propose(table_id, "s3://bucket/a", 5)  # a request that was on its way for long
    assert entry(commit_store, table_id) == TableEntry(
        table_id, "s3://bucket/b", PROPOSED, 7, 6, 6, ()
    )


def test_nothing_is_ratified_or_observed_of_a_proposal(commit_store: CommitStore) -> None:
    table_id = str(uuid4())
    commit_store.propose(table_id, "s3://bucket/a", 7)
    before = entry(commit_store, table_id)
    assert not commit_store.ratify(table_id, commit(7), releases=False)
    assert not commit_store.ratify(table_id, commit(8), releases=False)
    commit_store.observe(table_id, 9)
    assert entry(commit_store, table_id) == before


STEPS: dict[str, Callable[[CommitStore, str], object]] = {
    "propose": lambda commit_store, table_id: commit_store.propose(table_id, "s3://bucket/new", 3),
    "forget": lambda commit_store, table_id: commit_store.forget(table_id, 3),
    "activate": lambda commit_store, table_id: commit_store.activate(table_id),
}


@pytest.mark.parametrize("order", list(permutations(STEPS)), ids=" ".join)
def test_the_hand_over_in_all_orders_and_twice(
    commit_store: CommitStore, order: tuple[str, ...]
) -> None:
    table_id = str(uuid4())
    for step in order * 2:
        STEPS[step](commit_store, table_id)
    # What is proposed becomes active by `activate` unless `forget` comes first; from then on all stays.
    standing = None
    for step in order * 2:
        if step == "propose":
            standing = standing or PROPOSED
        elif standing is PROPOSED:
            standing = ACTIVE if step == "activate" else None
    found = commit_store.find(table_id)
    assert (found and found.standing) == standing


@pytest.mark.parametrize("released", [False, True])
def test_an_active_or_released_entry_is_not_handed_over_again(
    commit_store: CommitStore, released: bool
) -> None:
    table_id = active(commit_store, 4)
    assert commit_store.ratify(table_id, commit(5), releases=released)
    before = entry(commit_store, table_id)
    assert before.standing is (RELEASED if released else ACTIVE)
    for step in STEPS.values():
        step(commit_store, table_id)
        assert entry(commit_store, table_id) == before


def test_what_is_not_there_is_left_alone(commit_store: CommitStore) -> None:
    table_id = str(uuid4())
    commit_store.forget(table_id, 0)
    commit_store.activate(table_id)
    commit_store.observe(table_id, 3)
    commit_store.relocate(table_id, "s3://bucket/a")
    assert not commit_store.accept(table_id, 3, instead_of=3)
    assert not commit_store.ratify(table_id, commit(0), releases=False)
    assert commit_store.find(table_id) is None


# Locations.


def test_a_location_may_have_several_tables_and_a_table_may_move(commit_store: CommitStore) -> None:
    here, there = f"s3://bucket/{uuid4()}", f"s3://bucket/{uuid4()}"
    table_ids = sorted(str(uuid4()) for _ in range(3))
    for table_id in table_ids:
        commit_store.propose(table_id, here, 2)
    commit_store.activate(table_ids[1])
    assert commit_store.ratify(table_ids[1], commit(3), releases=False)

    found = sorted(commit_store.entries_at(here), key=lambda entry: entry.table_id)
    assert found == [replace(entry(commit_store, table_id), commits=()) for table_id in table_ids]

    before = entry(commit_store, table_ids[1])
    commit_store.relocate(table_ids[1], there)
    assert entry(commit_store, table_ids[1]) == replace(before, location=there)
    assert [moved.table_id for moved in commit_store.entries_at(there)] == [table_ids[1]]
    assert len(commit_store.entries_at(here)) == 2


# Ratification.


def test_a_version_is_ratified_once_and_recognised_by_its_uuid(commit_store: CommitStore) -> None:
    table_id = active(commit_store, 4)
    first, second = commit(5), commit(6)
    assert commit_store.ratify(table_id, first, releases=False)
    assert commit_store.ratify(table_id, first, releases=False)
    assert not commit_store.ratify(table_id, commit(5), releases=False)
    assert commit_store.ratify(table_id, second, releases=False)
    assert commit_store.ratify(table_id, first, releases=False)
    found = entry(commit_store, table_id)
    assert found.commits == (first, second)
    assert (found.latest_version, found.backfilled_version) == (6, 4)


@pytest.mark.parametrize("version", [0, 3, 4, 6, 7])
def test_only_the_next_version_is_ratified(commit_store: CommitStore, version: int) -> None:
    table_id = active(commit_store, 4)
    before = entry(commit_store, table_id)
    assert not commit_store.ratify(table_id, commit(version), releases=False)
    assert entry(commit_store, table_id) == before


def test_one_uuid_may_be_of_several_versions_and_tables(commit_store: CommitStore) -> None:
    one, other = active(commit_store), active(commit_store)
    first, second = commit(1, "same"), commit(2, "same")
    assert commit_store.ratify(one, first, releases=False)
    assert not commit_store.ratify(other, second, releases=False)
    assert commit_store.ratify(other, first, releases=False)
    assert commit_store.ratify(one, second, releases=False)
    assert entry(commit_store, one).commits == (first, second)
    assert entry(commit_store, other).commits == (first,)


def test_a_table_is_released_when_all_before_is_backfilled(commit_store: CommitStore) -> None:
    table_id = active(commit_store)
    assert commit_store.ratify(table_id, commit(1), releases=False)
    last = commit(2)
    before = entry(commit_store, table_id)
    assert not commit_store.ratify(table_id, last, releases=True)
    assert entry(commit_store, table_id) == before
    commit_store.observe(table_id, 1)
    assert commit_store.ratify(table_id, last, releases=True)
    assert commit_store.ratify(table_id, last, releases=True)
    assert not commit_store.ratify(table_id, commit(3), releases=False)
    found = entry(commit_store, table_id)
    assert (found.standing, found.latest_version, found.commits) == (RELEASED, 2, (last,))
    commit_store.observe(table_id, 2)
    assert entry(commit_store, table_id) == replace(found, backfilled_version=2, commits=())


# What the log holds.


def test_what_is_backfilled_is_tracked_no_longer(commit_store: CommitStore) -> None:
    table_id = active(commit_store)
    commits = [commit(version) for version in range(1, 5)]
    for known in commits:
        assert commit_store.ratify(table_id, known, releases=False)
    commit_store.observe(table_id, 2)
    found = entry(commit_store, table_id)
    assert (found.latest_version, found.backfilled_version) == (4, 2)
    assert found.commits == tuple(commits[2:])
    assert not commit_store.ratify(table_id, commits[1], releases=False)
    assert commit_store.ratify(table_id, commits[2], releases=False)


def test_observing_lowers_nothing(commit_store: CommitStore) -> None:
    table_id = active(commit_store)
    for version in range(1, 4):
        assert commit_store.ratify(table_id, commit(version), releases=False)
    commit_store.observe(table_id, 2)
    before = entry(commit_store, table_id)
    for version in (2, 1, 0):
        commit_store.observe(table_id, version)
        assert entry(commit_store, table_id) == before


def test_the_log_proves_more_than_the_commit_store_knows(commit_store: CommitStore) -> None:
    table_id = active(commit_store)
    assert commit_store.ratify(table_id, commit(1), releases=False)
    commit_store.observe(table_id, 9)
    found = entry(commit_store, table_id)
    assert (found.latest_version, found.backfilled_version, found.commits) == (9, 9, ())
    assert not commit_store.ratify(table_id, commit(2), releases=False)
    assert commit_store.ratify(table_id, commit(10), releases=False)


# What is given up.


def test_what_the_log_does_not_have_is_given_up(commit_store: CommitStore) -> None:
    table_id = active(commit_store)
    commits = [commit(version) for version in range(1, 6)]
    for known in commits:
        assert commit_store.ratify(table_id, known, releases=False)
    commit_store.observe(table_id, 3)
    before = entry(commit_store, table_id)
    for latest in (4, 6):
        assert not commit_store.accept(table_id, 2, instead_of=latest)
        assert entry(commit_store, table_id) == before
    for _ in range(2):
        assert commit_store.accept(table_id, 2, instead_of=5)
        assert entry(commit_store, table_id) == replace(
            before, latest_version=2, backfilled_version=2, commits=()
        )
    # The versions are made again, by other commits, and what was given up is not recognised.
    assert not commit_store.ratify(table_id, commits[3], releases=False)
    other = commit(4)
    assert not commit_store.ratify(table_id, other, releases=False)
    assert commit_store.ratify(table_id, third := commit(3), releases=False)
    assert commit_store.ratify(table_id, other, releases=False)
    assert not commit_store.ratify(table_id, commits[3], releases=False)
    assert entry(commit_store, table_id).commits == (third, other)
    assert not commit_store.accept(table_id, 2, instead_of=5)


def test_a_release_that_is_lost_is_given_up(commit_store: CommitStore) -> None:
    table_id = active(commit_store)
    assert commit_store.ratify(table_id, commit(1), releases=True)
    assert commit_store.accept(table_id, 0, instead_of=1)
    assert entry(commit_store, table_id).standing is ACTIVE
    assert commit_store.ratify(table_id, commit(1), releases=False)


def test_nothing_is_accepted_of_a_proposal(commit_store: CommitStore) -> None:
    table_id = str(uuid4())
    commit_store.propose(table_id, "s3://bucket/a", 7)
    before = entry(commit_store, table_id)
    assert not commit_store.accept(table_id, 6, instead_of=6)
    assert entry(commit_store, table_id) == before


# Any steps in any order, against a model that keeps everything.


@dataclass
class Model:
    """The contract, as literally as can be."""

    standing: Standing | None = None
    location: str = ""
    owned_from: int = 0
    ratified: dict[int, str] | None = None
    latest: int = 0
    backfilled: int = 0

    def propose(self, location: str, version: int) -> None:
        if self.standing is None or (self.standing is PROPOSED and self.owned_from <= version):
            self.standing, self.location, self.owned_from = PROPOSED, location, version
            self.latest = self.backfilled = version - 1
            self.ratified = {}

    def forget(self, version: int) -> None:
        if self.standing is PROPOSED and self.owned_from == version:
            self.standing = None

    def activate(self) -> None:
        if self.standing is PROPOSED:
            self.standing = ACTIVE
            self.latest = self.backfilled = self.owned_from

    def ratify(self, version: int, uuid: str, releases: bool) -> bool:
        tracked = {} if self.standing is None else dict(self.tracked())
        if tracked.get(version) == uuid:
            return True
        takes = self.standing is ACTIVE and version == self.latest + 1
        if releases and self.backfilled != version - 1:
            takes = False
        if takes:
            assert self.ratified is not None
            self.ratified[version], self.latest = uuid, version
            self.standing = RELEASED if releases else ACTIVE
        return takes

    def observe(self, version: int) -> None:
        if self.standing in (ACTIVE, RELEASED):
            self.backfilled = max(self.backfilled, version)
            self.latest = max(self.latest, version)

    def relocate(self, location: str) -> None:
        if self.standing is not None:
            self.location = location

    def accept(self, version: int, instead_of: int) -> bool:
        if self.standing in (ACTIVE, RELEASED) and self.latest == instead_of:
            self.standing, self.ratified = ACTIVE, {}
            self.latest = self.backfilled = version
        accepted = self.standing is ACTIVE and self.latest == self.backfilled == version
        return accepted and not self.tracked()

    def tracked(self) -> list[tuple[int, str]]:
        assert self.ratified is not None
        return [(v, uuid) for v, uuid in sorted(self.ratified.items()) if v > self.backfilled]

    def entry(self, table_id: str) -> TableEntry | None:
        if self.standing is None:
            return None
        commits = tuple(commit(version, uuid) for version, uuid in self.tracked())
        return TableEntry(
            table_id,
            self.location,
            self.standing,
            self.owned_from,
            self.latest,
            self.backfilled,
            commits,
        )


# Mostly the next version, else others near it.
offsets = st.sampled_from([1, 1, 1, 0, -1, 2, 3])
operations = st.one_of(
    st.tuples(st.just("propose"), st.sampled_from("ab"), st.integers(0, 4)),
    st.tuples(st.just("activate")),
    st.tuples(st.just("forget"), st.integers(0, 4)),
    st.tuples(st.just("ratify"), offsets, st.sampled_from("xyz"), st.booleans()),
    st.tuples(st.just("ratify"), offsets, st.sampled_from("xyz"), st.just(value=False)),
    st.tuples(st.just("observe"), offsets),
    st.tuples(st.just("relocate"), st.sampled_from("ab")),
    st.tuples(st.just("accept"), st.sampled_from([0, 0, -1, -2, 1]), st.sampled_from([0, 0, 1])),
)


@given(st.lists(st.tuples(st.integers(0, 1), operations), max_size=25))
@settings(max_examples=30)
def test_a_commit_store_does_what_the_model_does(
    commit_store: CommitStore, steps: list[tuple[int, tuple[object, ...]]]
) -> None:
    place = str(uuid4())
    table_ids, models = [str(uuid4()), str(uuid4())], [Model(), Model()]
    for index, (name, *arguments) in steps:
        table_id, model = table_ids[index], models[index]
        match name, arguments:
            case "ratify", [int(offset), str(uuid), bool(releases)]:
                version = max(model.latest + offset, 0)
                answer = commit_store.ratify(table_id, commit(version, uuid), releases=releases)
                assert answer == model.ratify(version, uuid, releases)
            case "observe", [int(offset)]:
                version = max(model.backfilled + offset, 0)
                commit_store.observe(table_id, version)
                model.observe(version)
            case "accept", [int(offset), int(late)]:
                version, latest = max(model.latest + offset, 0), model.latest - late
                answer = commit_store.accept(table_id, version, instead_of=latest)
                assert answer == model.accept(version, latest)
            case "propose", [str(location), int(version)]:
                commit_store.propose(table_id, f"{place}/{location}", version)
                model.propose(f"{place}/{location}", version)
            case "relocate", [str(location)]:
                commit_store.relocate(table_id, f"{place}/{location}")
                model.relocate(f"{place}/{location}")
            case _:
                getattr(commit_store, str(name))(table_id, *arguments)
                getattr(model, str(name))(*arguments)
        assert commit_store.find(table_id) == model.entry(table_id)
    expected = [model.entry(table_id) for table_id, model in zip(table_ids, models, strict=True)]
    for location in (f"{place}/a", f"{place}/b"):
        found = {there.table_id: there for there in commit_store.entries_at(location)}
        assert found == {
            known.table_id: replace(known, commits=())
            for known in expected
            if known and known.location == location
        }


# Races.


def test_of_threads_that_want_a_version_one_gets_it(commit_store: CommitStore) -> None:
    table_id, threads = active(commit_store), 6
    barrier = threading.Barrier(threads)

    def race(_: int) -> list[UnbackfilledCommit]:
        won = []
        for version in range(1, 16):
            mine = commit(version)
            barrier.wait(timeout=60)
            if commit_store.ratify(table_id, mine, releases=False):
                won.append(mine)
            barrier.wait(timeout=60)
        return won

    with ThreadPoolExecutor(threads) as pool:
        won = [mine for commits in pool.map(race, range(threads)) for mine in commits]
    assert (
        tuple(sorted(won, key=lambda known: known.version)) == entry(commit_store, table_id).commits
    )
    assert len(won) == 15


def test_of_threads_that_release_a_table_one_does(commit_store: CommitStore) -> None:
    table_id, threads = active(commit_store), 6
    barrier = threading.Barrier(threads)

    def race(index: int) -> bool:
        barrier.wait(timeout=60)
        return commit_store.ratify(table_id, commit(1), releases=index % 2 == 0)

    with ThreadPoolExecutor(threads) as pool:
        assert sum(pool.map(race, range(threads))) == 1


def test_commits_that_are_ratified_concurrently_are_not_given_up(commit_store: CommitStore) -> None:
    barrier = threading.Barrier(2)
    with ThreadPoolExecutor(2) as pool:
        for _ in range(15):
            table_id = active(commit_store)
            assert commit_store.ratify(table_id, commit(1), releases=False)
            second = commit(2)

            def ratify(table_id: str = table_id, mine: UnbackfilledCommit = second) -> bool:
                barrier.wait(timeout=60)
                return commit_store.ratify(table_id, mine, releases=False)

            def accept(table_id: str = table_id) -> bool:
                barrier.wait(timeout=60)
                return commit_store.accept(table_id, 0, instead_of=1)

            futures = [pool.submit(ratify), pool.submit(accept)]
            ratified, accepted = (future.result(timeout=60) for future in futures)
            assert ratified is not accepted
            found = entry(commit_store, table_id)
            assert found.latest_version == (2 if ratified else 0)
            assert [known.version for known in found.commits] == ([1, 2] if ratified else [])


def test_a_version_that_the_log_has_while_it_is_ratified_is_not_tracked(
    commit_store: CommitStore,
) -> None:
    table_id = active(commit_store)
    barrier = threading.Barrier(2)
    with ThreadPoolExecutor(2) as pool:
        for version in range(1, 31):
            mine = commit(version)

            def ratify(mine: UnbackfilledCommit = mine) -> None:
                barrier.wait(timeout=60)
                commit_store.ratify(table_id, mine, releases=False)

            def observe(version: int = version) -> None:
                barrier.wait(timeout=60)
                commit_store.observe(table_id, version)

            for future in [pool.submit(ratify), pool.submit(observe)]:
                future.result(timeout=60)
            found = entry(commit_store, table_id)
            assert (found.latest_version, found.backfilled_version) == (version, version)
            assert found.commits == ()
            assert not commit_store.ratify(table_id, mine, releases=False)


RATIFICATIONS = 50


def ratify_many(commit_store: CommitStore, table_id: str) -> list[tuple[int, str]]:
    """Make versions until so many are one's own; what a process does."""
    mine: list[tuple[int, str]] = []
    while len(mine) < RATIFICATIONS:
        proposed = commit(entry(commit_store, table_id).latest_version + 1)
        if commit_store.ratify(table_id, proposed, releases=False):
            mine.append((proposed.version, proposed.uuid))
    return mine


@pytest.fixture(scope="module")
def processes() -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(4, mp_context=get_context("spawn")) as pool:
        yield pool


def test_processes_make_one_line_of_versions(
    shared: CommitStore, processes: ProcessPoolExecutor
) -> None:
    table_id = active(shared)
    running = [processes.submit(ratify_many, shared, table_id) for _ in range(4)]
    made = sorted(known for future in running for known in future.result(timeout=120))
    assert [version for version, _ in made] == list(range(1, 4 * RATIFICATIONS + 1))
    assert [(known.version, known.uuid) for known in entry(shared, table_id).commits] == made


def test_an_entry_is_of_one_moment_while_commits_come_and_go(
    shared: CommitStore, processes: ProcessPoolExecutor
) -> None:
    table_id = active(shared)
    running = [processes.submit(ratify_many, shared, table_id) for _ in range(2)]
    seen: dict[int, str] = {}
    latest = 0
    while latest < 2 * RATIFICATIONS:
        found = entry(shared, table_id)
        versions = [known.version for known in found.commits]
        assert versions == list(range(found.backfilled_version + 1, found.latest_version + 1))
        assert found.latest_version >= latest
        latest = found.latest_version
        for known in found.commits:
            assert seen.setdefault(known.version, known.uuid) == known.uuid
        shared.observe(table_id, max(found.backfilled_version, latest - 3))
        if any(future.done() and future.exception() for future in running):
            break
    made = dict(known for future in running for known in future.result(timeout=120))
    assert sorted(made) == list(range(1, 2 * RATIFICATIONS + 1))
    assert seen.items() <= made.items()
