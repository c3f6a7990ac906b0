"""Commits and backfills of a managed table that interrupt each other, and die, at every step.

Observers see all versions after every step, and none disappears: see `stepped_world`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from airflow_delta.engine import DeltaTable, Snapshot
from airflow_delta.engine.errors import CommitOutcomeUnknownError, CommitOwnerUnavailableError
from airflow_delta.engine.transaction.transaction import OptimisticTransaction
from tests.deep import deep_but_for
from tests.faulty_storage import Crash, Fault, How
from tests.races.stepped_world import (
    Steps,
    World,
    append,
    backfill,
    backfill_by_owner,
    begun,
    each_death,
    each_schedule,
    file,
    plain_files,
)
from tests.stepping import Turns, stepped_engine, ticking_clock

POLICIES = ["1", "2", "on-request", "direct"]
Use = Callable[[Turns], None]


@pytest.fixture
def use() -> Iterator[Use]:
    with stepped_engine(ticking_clock()) as use:
        yield use


def managed(steps: Steps, policy: str, appends: int = 2, *, thorough: bool = True) -> World:
    return World(steps, plain_files(), thorough=thorough).managed(policy, appends)


@pytest.mark.parametrize("policy", deep_but_for(POLICIES, "on-request"))
def test_writers_interrupt_each_other(policy: str, use: Use) -> None:
    for steps in each_schedule(firsts=[0]):
        use(steps)
        with managed(steps, policy) as world:
            jobs = [partial(append, world.client(), name) for name in "ab"]
            a, b = world.run(*jobs)
            assert sorted([a, b]) == [4, 5]  # type: ignore[type-var]
            world.check({"a": a, "b": b})


@pytest.mark.parametrize("policy", deep_but_for(["1", "on-request", "direct"], "direct"))
def test_commits_interrupt_each_other_again(policy: str, use: Use) -> None:
    """Each of them in the middle, when the other one goes on."""
    for steps in each_schedule(twice=True, firsts=[0]):
        use(steps)
        with managed(steps, policy, 1, thorough=False) as world:
            a, b = world.run(*(begun(world.client(), name) for name in "ab"))
            assert sorted([a, b]) == [3, 4]  # type: ignore[type-var]
            world.check({"a": a, "b": b})


@pytest.mark.parametrize("policy", deep_but_for(["2", "on-request"], "on-request"))
def test_a_writer_and_a_backfill_interrupt_each_other(policy: str, use: Use) -> None:
    for steps in each_schedule():
        use(steps)
        with managed(steps, policy, 3) as world:
            a, done = world.run(
                partial(append, world.client(), "a"), partial(backfill, world.client())
            )
            assert (a, done in (4, 5)) == (5, True)
            world.check({"a": a})


@pytest.mark.parametrize("policy", deep_but_for(["1", "on-request"], "on-request"))
def test_a_commit_and_a_backfill_interrupt_each_other_again(policy: str, use: Use) -> None:
    for steps in each_schedule(twice=True):
        use(steps)
        with managed(steps, policy, thorough=False) as world:
            a, done = world.run(
                begun(world.client(), "a"), partial(backfill_by_owner, world.owned())
            )
            assert (a, done in (3, 4)) == (4, True)
            world.check({"a": a})


def test_backfills_interrupt_each_other_again(use: Use) -> None:
    for steps in each_schedule(twice=True):
        use(steps)
        with managed(steps, "on-request", 3, thorough=False) as world:
            done = world.run(
                partial(backfill_by_owner, world.owned()),
                partial(backfill_by_owner, world.owned(), 3),
            )
            # A later backfill may find more commits than it was requested to.
            assert done[0] == 4
            assert done[1] in (3, 4)
            world.check({})


def read(world: World, delta: DeltaTable) -> tuple[int, Snapshot, set[str]]:
    """A snapshot with its files, which are read later, and the version that it may not be older than."""
    oldest = len(world.truth()) - 1
    snapshot = delta.snapshot()
    return oldest, snapshot, {*snapshot.files(columns=["path", "stats"])["path"].to_pylist()}


def check_read(world: World, outcome: object) -> None:
    assert isinstance(outcome, tuple), outcome
    oldest, snapshot, files = outcome
    assert oldest <= snapshot.version
    world.check_seen(snapshot)
    log = world.log()
    assert files == {path for path, _ in log.state(snapshot.version).files}


def test_a_reader_is_interrupted_by_a_commit(use: Use) -> None:
    """The commit backfills the one before it: a file is read from where it is by then."""
    for steps in each_schedule(twice=True, firsts=[0]):
        use(steps)
        with managed(steps, "2", thorough=False) as world:
            seen, a = world.run(partial(read, world, world.client()), begun(world.client(), "a"))
            assert a == 4
            check_read(world, seen)
            world.check({"a": a})


def test_a_reader_is_interrupted_by_a_backfill(use: Use) -> None:
    for steps in each_schedule(twice=True, firsts=[0]):
        use(steps)
        with managed(steps, "on-request", thorough=False) as world:
            seen, _ = world.run(
                partial(read, world, world.client()), partial(backfill_by_owner, world.owned())
            )
            check_read(world, seen)
            world.check({})


@pytest.mark.parametrize("policy", deep_but_for(POLICIES, "on-request"))
def test_a_writer_dies_before_another_one_comes(policy: str, use: Use) -> None:
    """L14e: what was ratified is a version, however far its writer has come with it."""
    met = set()
    for steps in each_death():
        use(steps)
        with managed(steps, policy) as world:
            left: list[tuple[bool, bool]] = []

            def go_on(world: World = world, left: list[tuple[bool, bool]] = left) -> int:
                logged = world.stranger_version()
                left.append(("a" in world.made(), len(world.truth()) - 1 == logged))
                delta = world.client()
                version = append(delta, "b")
                assert backfill(delta) == version
                return version

            a, b = world.run(partial(append, world.client(), "a"), go_on)
            assert isinstance(a, Crash | int)
            made = world.check({"a": a, "b": b})
            assert made["b"] == [4 + len(made.get("a", []))]
            met.add((*left[0], isinstance(a, int)))
    lags = policy in ("2", "on-request")
    assert met >= {
        # made, backfilled, alive
        (False, not lags, False),
        *({(True, False, False)} if policy in ("1", "2") else ()),
        *({(True, True, False)} if policy in ("1", "2", "direct") else ()),
        (True, policy != "on-request", True),
    }


@pytest.mark.deep
def test_a_writer_dies_while_another_one_is_under_way(use: Use) -> None:
    for steps in each_death(meanwhile=True):
        use(steps)
        with managed(steps, "1", thorough=False) as world:
            a, b = world.run(*(begun(world.client(), name) for name in "ab"))
            assert isinstance(b, int)
            world.check({"a": a, "b": b})


def test_a_backfill_dies_before_another_one_comes(use: Use) -> None:
    for steps in each_death():
        use(steps)
        with managed(steps, "on-request", 3) as world:
            _, done = world.run(
                partial(backfill, world.client()), partial(backfill, world.client())
            )
            assert done == 4
            world.check({})


LOST = {
    "one answer": [Fault("ratify", 1, How.LOSE_ANSWER)],
    "two answers": [Fault("ratify", 1, How.LOSE_ANSWER), Fault("ratify", 2, How.LOSE_ANSWER)],
    "all answers": [Fault("ratify", 0, How.LOSE_ANSWER)],
    "one request": [Fault("ratify", 1, How.FAIL)],
    "all requests": [Fault("ratify", 0, How.FAIL)],
    "an answer and then the connection": [
        Fault("ratify", 0, How.LOSE_ANSWER),
        Fault("find", 4, How.FAIL),
    ],
    "a request and then the connection": [
        Fault("ratify", 0, How.FAIL),
        Fault("find", 4, How.FAIL),
    ],
}
"""The failures of the commit store. Usually it gets three requests before a ratification."""

UNKNOWN = [
    "all requests",
    "an answer and then the connection",
    "a request and then the connection",
]
"""Where the client may not learn what has come of its commit."""


@pytest.mark.parametrize("lost", deep_but_for(LOST, UNKNOWN[1]))
def test_a_ratification_is_not_heard_of(lost: str, use: Use) -> None:
    """L14f: the request is repeated, others commit and backfill at any time; nothing is there twice."""
    for steps in each_schedule():
        use(steps)
        with managed(steps, "1") as world:

            def other(world: World = world) -> int:
                delta = world.client()
                version = append(delta, "b")
                backfill(delta)
                return version

            a, b = world.run(begun(world.client(commit_store=LOST[lost]), "a"), other)
            assert isinstance(b, int)
            made = world.check({"a": a, "b": b})
            assert lost in UNKNOWN or isinstance(a, int)
            assert lost != "all requests" or "a" not in made


@pytest.mark.parametrize("lost", deep_but_for(["one answer", *UNKNOWN], UNKNOWN[1]))
def test_who_tries_again_has_committed_once(lost: str, use: Use) -> None:
    """L14f, with the remedy for an unknown outcome: the same transaction identifier again."""

    def once(delta: DeltaTable) -> int:
        def stage(transaction: OptimisticTransaction) -> None:
            transaction.add_file(file("a"))

        return delta.commit_once("app", 1, "WRITE", stage, user_metadata="a").version

    for steps in each_schedule():
        use(steps)
        with managed(steps, "on-request") as world:

            def insist(world: World = world) -> int:
                try:
                    return once(world.client(commit_store=LOST[lost]))
                except (CommitOutcomeUnknownError, CommitOwnerUnavailableError):
                    return once(world.client())

            outcomes = world.run(insist, partial(append, world.client(), "b"))
            assert all(isinstance(outcome, int) for outcome in outcomes)
            world.check(dict(zip("ab", outcomes, strict=True)))
