"""Tables that are created managed, given to a commit owner and taken back, by several clients at once.

The conversions are interrupted at every step. Observers see all versions after every step, and none
disappears: see `stepped_world`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.commit.owner import Standing
from airflow_delta.engine.errors import (
    CommitOutcomeUnknownError,
    CommitOwnerUnavailableError,
    InvalidArgumentError,
    StorageError,
    TableAlreadyExistsError,
)
from airflow_delta.engine.log.files import commit_path
from airflow_delta.engine.model.schema import LONG, StructField, StructType
from airflow_delta.engine.transaction.conversion import ConversionResult
from airflow_delta.engine.transaction.creation import create_table
from tests.deep import deep_but_for
from tests.faulty_storage import Crash, Fault, FaultyStorage, How
from tests.races.stepped_world import (
    OWNER,
    Steps,
    World,
    append,
    backfill,
    begun,
    each_death,
    each_schedule,
    plain_files,
)
from tests.stepping import Turns, stepped_engine, ticking_clock

POLICIES = ["1", "on-request", "direct"]
OTHER = "other owner"
SCHEMA = StructType((StructField("id", LONG),))
Use = Callable[[Turns], None]


@pytest.fixture
def use() -> Iterator[Use]:
    with stepped_engine(ticking_clock()) as use:
        yield use


def give(delta: DeltaTable, policy: str = "1", owner: str = OWNER) -> ConversionResult:
    return delta.convert_to_managed(owner, {"backfill": policy})


def side(outcome: object, result: object) -> str:
    """Where a commit is, as seen from a conversion."""
    assert isinstance(result, ConversionResult)
    if not isinstance(outcome, int):
        return type(outcome).__name__
    return "before" if outcome < result.version else "after"


def standings(world: World) -> dict[str, list[Standing]]:
    """How the owners stand to the table, by their names, if they know it."""
    found = {
        name: [entry.standing for entry in commit_store.entries_at(world.location)]
        for name, commit_store in world.commit_stores.items()
    }
    return {name: some for name, some in found.items() if some}


# From the file system to an owner.


@pytest.mark.parametrize("policy", deep_but_for(POLICIES, "on-request"))
def test_an_append_and_a_conversion_interrupt_each_other(policy: str, use: Use) -> None:
    """L14g: the append is first, or it finds the table changed, or goes to the owner."""
    met: Counter[str] = Counter()
    for steps in each_schedule():
        use(steps)
        with World(steps, plain_files()) as world:
            result, a = world.run(
                partial(give, world.client(), policy), partial(append, world.client(), "a")
            )
            met[side(a, result)] += 1
            assert standings(world) == {OWNER: [Standing.ACTIVE]}
            world.check({"a": a})
    assert met.keys() == {"before", "after", "ProtocolChangedError"}


@pytest.mark.deep
def test_a_commit_and_a_conversion_interrupt_each_other_again(use: Use) -> None:
    """L14g, of writers who were already under way when the table was given away."""
    met: Counter[str] = Counter()
    for steps in each_schedule(twice=True):
        use(steps)
        with World(steps, plain_files(), thorough=False) as world:
            commit = begun(world.client(), "a")
            held = world.client()
            held._newest.get()
            result, a = world.run(partial(give, held), commit)
            met[side(a, result)] += 1
            assert standings(world) == {OWNER: [Standing.ACTIVE]}
            world.check({"a": a})
    assert met.keys() == {"before", "ProtocolChangedError"}


@pytest.mark.parametrize("policy", deep_but_for(POLICIES, "on-request"))
def test_a_conversion_dies_before_others_come(policy: str, use: Use) -> None:
    """At each of its steps; then a commit goes to where it belongs, and so does the table at last."""
    met = set()
    for steps in each_death():
        use(steps)
        with World(steps, plain_files()) as world:

            def go_on(world: World = world) -> tuple[int, ConversionResult]:
                delta = world.client()
                return append(delta, "a"), give(world.client(), policy)

            died, outcome = world.run(partial(give, world.client(), policy), go_on)
            assert isinstance(died, Crash | ConversionResult)
            assert isinstance(outcome, tuple), outcome
            a, result = outcome
            assert world.direct().commit_status().standing is Standing.ACTIVE
            # A promise about a commit that will never come was forgotten.
            assert standings(world) == {OWNER: [Standing.ACTIVE]}
            met.add(result.converted)
            world.check({"a": a})
    assert met == {True, False}


def test_a_conversion_dies_while_a_commit_is_under_way(use: Use) -> None:
    for steps in each_death(meanwhile=True):
        use(steps)
        with World(steps, plain_files(), thorough=False) as world:
            commit = begun(world.client(), "a")
            died, a = world.run(partial(give, world.client(), "1"), commit)
            assert isinstance(died, Crash | ConversionResult)
            world.check({"a": a})


FAULTS: dict[str, tuple[list[Fault], list[Fault]]] = {
    "the answer to the put": ([Fault("create", 1, How.LOSE_ANSWER, suffix=".json")], []),
    "the put": ([Fault("create", 1, How.FAIL, suffix=".json")], []),
    "the answers to all puts": ([Fault("create", 0, How.LOSE_ANSWER, suffix=".json")], []),
    "all puts": ([Fault("create", 0, How.FAIL, suffix=".json")], []),
    "the proposal": ([], [Fault("propose", 1, How.FAIL)]),
    "the answer to the proposal": ([], [Fault("propose", 1, How.LOSE_ANSWER)]),
    "to tell the owner": ([], [Fault("activate", 0, How.FAIL)]),
    "to have the owner forget": ([], [Fault("forget", 0, How.FAIL)]),
    "what comes after the proposal": ([], [Fault("find", 2, How.FAIL), Fault("find", 3, How.FAIL)]),
}


@pytest.mark.parametrize(
    "what", deep_but_for(FAULTS, "the answer to the put", "the proposal", "to tell the owner")
)
def test_something_of_a_conversion_fails_while_another_writer_comes(what: str, use: Use) -> None:
    """L14g, if the store or the commit store fails."""
    store, commit_store = FAULTS[what]
    for steps in each_schedule():
        use(steps)
        with World(steps, plain_files()) as world:
            result, a = world.run(
                partial(give, world.client(*store, commit_store=commit_store)),
                partial(append, world.client(), "a"),
            )
            given = world.direct().commit_status().standing is Standing.ACTIVE
            if isinstance(result, ConversionResult):
                assert given
            else:
                failures = (StorageError, CommitOwnerUnavailableError, CommitOutcomeUnknownError)
                assert isinstance(result, failures), result
                assert not given
            world.check({"a": a})
            assert given != give(world.direct()).converted
            world.check_onward("at last")


@pytest.mark.parametrize("policy", ["1", "direct"])
def test_two_conversions_to_one_owner_interrupt_each_other(policy: str, use: Use) -> None:
    met: Counter[str] = Counter()
    for steps in each_schedule(firsts=[0]):
        use(steps)
        with World(steps, plain_files()) as world:
            results = world.run(*(partial(give, world.client(), policy) for _ in range(2)))
            met[" ".join(sorted(map(kind, results)))] += 1
            assert standings(world) == {OWNER: [Standing.ACTIVE]}
            world.check({})
    assert met.keys() == {"converted left", "ProtocolChangedError converted"}


@pytest.mark.deep
def test_two_conversions_to_different_owners_interrupt_each_other(use: Use) -> None:
    met: Counter[str] = Counter()
    for steps in each_schedule(twice=True, firsts=[0]):
        use(steps)
        with World(steps, plain_files(), [OWNER, OTHER], thorough=False) as world:
            results = world.run(
                partial(give, world.client()), partial(give, world.client(), "1", OTHER)
            )
            met[" ".join(map(kind, results))] += 1
            (winner,) = [each for each in results if isinstance(each, ConversionResult)]
            # The owner has forgotten the request of the one that was too late.
            assert standings(world) == {winner.owner: [Standing.ACTIVE]}
            world.check({})
    # An error of the argument for whoever sees that the table has an owner, and a conflict for whoever
    # learns it too late.
    late = {"InvalidArgumentError", "ProtocolChangedError"}
    assert met.keys() == {f"converted {error}" for error in late} | {
        f"{error} converted" for error in late
    }


def kind(outcome: object) -> str:
    if isinstance(outcome, ConversionResult):
        return "converted" if outcome.converted else "left"
    return type(outcome).__name__


# New tables.


def create(delta: DeltaTable, owner: str | None) -> None:
    properties = {} if owner is None else {"delta.managedCommit.commitOwner": owner}
    create_table(delta.storage, SCHEMA, properties=properties, owners=delta._owners)


@pytest.mark.parametrize(
    "owners",
    deep_but_for([(OWNER, OWNER), (OWNER, OTHER), (OWNER, None)], (OWNER, OTHER)),
    ids=["same", "two", "one or none"],
)
def test_two_creations_interrupt_each_other(owners: tuple[str, str | None], use: Use) -> None:
    met: Counter[bool] = Counter()
    for steps in each_schedule(twice=True):
        use(steps)
        with World(steps, owners=[OWNER, OTHER], thorough=False) as world:
            outcomes = world.run(*(partial(create, world.client(), owner) for owner in owners))
            (lost,) = [each for each in outcomes if each is not None]
            assert isinstance(lost, TableAlreadyExistsError), lost
            winner = owners[outcomes.index(None)]
            expected = {} if winner is None else {winner: [Standing.ACTIVE]}
            assert standings(world) == expected
            world.check({})
            met[outcomes[0] is None] += 1
    assert met.keys() == {True, False}


@pytest.mark.parametrize("second", [OWNER, OTHER, None])
def test_a_creation_dies_before_another_one_comes(second: str | None, use: Use) -> None:
    met = set()
    for steps in each_death():
        use(steps)
        with World(steps, owners=[OWNER, OTHER]) as world:
            died, lost = world.run(
                partial(create, world.client(), OWNER), partial(create, world.client(), second)
            )
            assert died is None or isinstance(died, Crash)
            assert lost is None or isinstance(lost, TableAlreadyExistsError)
            active = [name for name, some in standings(world).items() if Standing.ACTIVE in some]
            found_owner = world.direct().commit_status().owner
            assert found_owner == (second if lost is None else OWNER)
            # The owner may not know of the first one yet.
            assert active in ([found_owner], []) or found_owner is None
            world.check({})
            met.add(lost is None)
    assert met == {True, False}


# From an owner to the file system.


@pytest.mark.parametrize("policy", deep_but_for(POLICIES, "on-request"))
def test_an_append_and_a_release_interrupt_each_other(policy: str, use: Use) -> None:
    """L14h: with commits that aren't backfilled when it begins."""
    met: Counter[str] = Counter()
    for steps in each_schedule():
        use(steps)
        with World(steps, plain_files()).managed(policy) as world:
            result, a = world.run(
                world.client().convert_to_file_system, partial(append, world.client(), "a")
            )
            met[side(a, result)] += 1
            assert world.direct().commit_status().owner is None
            assert world.stranger_version() == len(world.truth()) - 1
            world.check({"a": a})
            assert append(world.stranger(), "by a stranger") == len(world.truth()) - 1
    assert met.keys() == {"before", "after", "ProtocolChangedError"}


@pytest.mark.deep
def test_a_commit_and_a_release_interrupt_each_other_again(use: Use) -> None:
    met: Counter[str] = Counter()
    for steps in each_schedule(twice=True, firsts=[0]):
        use(steps)
        with World(steps, plain_files(), thorough=False).managed("on-request") as world:
            commit = begun(world.client(), "a")
            held = world.client()
            held._newest.get()
            result, a = world.run(held.convert_to_file_system, commit)
            met[side(a, result)] += 1
            world.check({"a": a})
    assert met.keys() == {"before", "ProtocolChangedError"}


@pytest.mark.parametrize("policy", deep_but_for(POLICIES, "on-request"))
def test_a_backfill_and_a_release_interrupt_each_other(policy: str, use: Use) -> None:
    for steps in each_schedule():
        use(steps)
        with World(steps, plain_files()).managed(policy) as world:
            result, _ = world.run(
                world.client().convert_to_file_system, partial(backfill, world.client())
            )
            assert kind(result) == "converted"
            assert world.stranger_version() == len(world.truth()) - 1
            world.check({})


@pytest.mark.parametrize("policy", deep_but_for(POLICIES, "on-request"))
def test_two_releases_interrupt_each_other(policy: str, use: Use) -> None:
    met: Counter[str] = Counter()
    for steps in each_schedule(firsts=[0]):
        use(steps)
        with World(steps, plain_files()).managed(policy) as world:
            results = world.run(*(world.client().convert_to_file_system for _ in range(2)))
            met[" ".join(sorted(map(kind, results)))] += 1
            assert world.stranger_version() == len(world.truth()) - 1
            world.check({})
    assert met.keys() == {"converted left", "ProtocolChangedError converted"}


COMERS: dict[str, Callable[[DeltaTable], object]] = {
    "an append": lambda delta: append(delta, "a"),
    "a backfill": backfill,
    "a release": lambda delta: delta.convert_to_file_system(),
    "a conversion": lambda delta: delta.convert_to_managed(OWNER),
    "a conversion to another owner": lambda delta: delta.convert_to_managed(OTHER),
}


@pytest.mark.parametrize("policy", deep_but_for(["1", "on-request"], "on-request"))
@pytest.mark.parametrize("comer", deep_but_for(COMERS, "an append", "a conversion"))
def test_a_release_dies_before_others_come(comer: str, policy: str, use: Use) -> None:
    """L14h: what was ratified counts, and the next client completes it."""
    met = set()
    for steps in each_death():
        use(steps)
        with World(steps, plain_files(), [OWNER, OTHER]).managed(policy) as world:
            left: list[int] = []

            def come(world: World = world, left: list[int] = left) -> object:
                left.append(releases(world))
                return COMERS[comer](world.client())

            died, outcome = world.run(world.client().convert_to_file_system, come)
            assert isinstance(died, Crash | ConversionResult)
            released = left == [1]
            if comer == "a conversion to another owner" and not released:
                assert isinstance(outcome, InvalidArgumentError)
            else:
                assert not isinstance(outcome, BaseException), outcome
            assert releases(world) == (comer == "a release" or released)
            if released:
                assert world.stranger_version() >= 4
            met.add(released)
            world.check({"a": outcome} if comer == "an append" else {})
    assert met == {True, False}


def releases(world: World) -> int:
    return sum(b'"DROP FEATURE"' in commit for commit in world.truth())


@pytest.mark.parametrize("policy", deep_but_for(["1", "on-request"], "on-request"))
def test_two_finish_a_release_and_go_on(policy: str, use: Use) -> None:
    """It was ratified and never backfilled; they don't know of each other."""
    for steps in each_schedule(firsts=[0]):
        use(steps)
        with World(steps, plain_files()).managed(policy) as world:
            left_unfinished(world)
            a, b = world.run(*(partial(append, world.client(), name) for name in "ab"))
            assert sorted([a, b]) == [5, 6]  # type: ignore[type-var]
            world.check({"a": a, "b": b})


def left_unfinished(world: World) -> None:
    """A release that was ratified as version 4, whose client then died."""
    delta = world.direct()
    put = Fault("create", 1, How.CRASH_BEFORE, suffix=commit_path(4))
    delta.__dict__["storage"] = FaultyStorage(world.table.storage, put)
    with pytest.raises(Crash):
        delta.convert_to_file_system()
    assert (len(world.truth()), world.stranger_version()) == (5, 3)


# There and back.


@pytest.mark.parametrize("policy", deep_but_for(["1", "on-request"], "on-request"))
def test_a_conversion_meets_a_release(policy: str, use: Use) -> None:
    """Of a managed table: it is left alone before the release, and given away again after it."""
    met: Counter[str] = Counter()
    for steps in each_schedule():
        use(steps)
        with World(steps, plain_files()).managed(policy) as world:
            results = world.run(
                world.client().convert_to_file_system, partial(give, world.client(), policy)
            )
            met[" ".join(map(kind, results))] += 1
            world.check({})
    assert met.keys() == {"converted left", "converted converted"}


def test_a_release_meets_a_conversion(use: Use) -> None:
    """Of a table that the file system manages."""
    met: Counter[str] = Counter()
    for steps in each_schedule():
        use(steps)
        with World(steps, plain_files()) as world:
            results = world.run(
                partial(give, world.client()), world.client().convert_to_file_system
            )
            met[" ".join(map(kind, results))] += 1
            world.check({})
    assert met.keys() == {"converted left", "converted converted"}


@pytest.mark.deep
def test_a_table_goes_there_and_back_under_the_eyes_of_a_writer(use: Use) -> None:
    """To the owner, back, to another owner: his commit is made before, or finds the table changed."""

    def travel(world: World) -> list[int]:
        delta, made = world.client(), []
        for owner in (OWNER, OTHER):
            give(delta, "on-request", owner)
            made.append(append(delta, f"owned by {owner}"))
            delta.convert_to_file_system()
        return made

    met: Counter[str] = Counter()
    for steps in each_schedule():
        use(steps)
        with World(steps, plain_files(), [OWNER, OTHER], thorough=False) as world:
            travels, a = world.run(partial(travel, world), partial(append, world.client(), "a"))
            assert isinstance(travels, list), travels
            met[type(a).__name__] += 1
            world.check({"a": a})
    assert met.keys() == {"int", "ProtocolChangedError"}


@pytest.mark.parametrize("policy", POLICIES)
def test_who_holds_a_table_open_sees_what_came_after_a_conversion(policy: str) -> None:
    with World(Steps(min), plain_files(), [OWNER, OTHER]) as world:
        world.check_follower()
        for number, owner in enumerate((OWNER, OTHER)):
            give(world.direct(), policy, owner)
            append(world.direct(), f"managed{number}")
            world.check_follower()
            append(world.direct(), f"managed{number} again")
            world.direct().convert_to_file_system()
            append(world.direct(), f"not managed{number}")
            world.check_follower()
