"""Writers, converters, backfills and readers of one table in hundreds of interleavings, by a serial model.

Each call of the store, and of the commit stores of two owners, is a step. Some of them lose their answer. A
failure names the seed, which reproduces it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial

import pytest

from airflow_delta.engine import CommitResult, DeltaTable
from airflow_delta.engine.errors import CommitOwnerUnavailableError, StorageError
from tests.faulty_storage import Fault, How
from tests.races.random_conversions import Converter, Reader
from tests.races.random_writers import Table, Work, Writer
from tests.races.serial_model import problems
from tests.races.stepped_world import OWNER, Steps, World, backfill
from tests.stepping import Turns, skewed_clock, stepped_engine
from tests.table_builder import state_of

SEEDS = 150
OTHER = "other owner"
Use = Callable[[Turns], None]

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*may be stale:airflow_delta.engine.errors.DeltaWarning"
)


@pytest.fixture
def use() -> Iterator[Use]:
    with stepped_engine(skewed_clock()) as use:
        yield use


def choosing(rng: random.Random) -> Callable[[Sequence[int]], int]:
    """Anybody at any step; or mostly somebody who takes several in a row, so that some come late."""
    stays = rng.choice([0, 0.6, 0.9])
    last = [0]

    def choose(going: Sequence[int]) -> int:
        if last[0] not in going or rng.random() >= stays:
            last[0] = rng.choice(going)
        return last[0]

    return choose


def race(seed: int, use: Use) -> tuple[list[str], list[Work], list[str]]:
    """One race: what is wrong with it, its transactions, and its trace."""
    rng = random.Random(seed)
    table = Table.by_chance(rng)
    steps = Steps(choosing(rng))
    use(steps)
    with World(steps, table.files, [OWNER, OTHER], thorough=seed % 4 == 0) as world:
        found, works = _raced(world, table, rng)
        world.check_onward("at last")
        return found, works, [f"{number} {what}" for number, what in steps.trace]


def _raced(world: World, table: Table, rng: random.Random) -> tuple[list[str], list[Work]]:
    log = world.log()

    def some() -> random.Random:
        return random.Random(rng.random())

    def client() -> DeltaTable:
        return world.client(*_store_faults(rng), commit_store=_commit_store_faults(rng))

    before = Converter(world.direct(), [OWNER], rng=some(), name="before")
    first = Writer(world.direct(), log, table, rng=some(), name="v")
    if rng.random() < 0.7:
        before.convert(OWNER)
        first.run(rng.choice([0, 1, 2]))
    shared = client()
    if warm := rng.random() < 0.6:
        shared.transaction("READ")
    writers = [
        Writer(shared if warm else client(), log, table, rng=some(), name=name)
        for name in "xyz"[: rng.choice([2, 2, 3])]
    ]
    converter = Converter(client(), [OWNER, OTHER], rng=some(), name="converter")
    reader = Reader(world, rng=some())
    jobs = [partial(writer.run, rng.choice([1, 2])) for writer in writers]
    jobs += [partial(converter.run, rng.choice([1, 1, 2]))] * (rng.random() < 0.7)
    backfilling = client()
    jobs += [partial(_backfill, backfilling, rng.choice([1, 2, 3]))] * (rng.random() < 0.7)
    jobs += [partial(reader.run, 2)] * (rng.random() < 0.7)
    outcomes = world.run(*jobs)

    found = [f"somebody has raised {outcome!r}" for outcome in outcomes if outcome is not None]
    log.look()
    converters = (before, converter)
    found += [each for one in converters for each in one.name_commits(log)]
    works = [work for writer in (first, *writers) for work in writer.works]
    works += [work for one in converters for work in one.works]
    # Of those that failed none is in the log, or else it is there without an author.
    tried = [work for work in works if not isinstance(work.outcome, FAILURES)]
    found += problems(log, tried, table.level or "Serializable")
    for version, seen in reader.seen:
        if seen != log.states[version].visible():
            found.append(f"a reader has seen another version {version}: {seen}")
    newest = world.direct().snapshot()
    if state_of(newest) != log.states[-1].visible():
        found.append(f"version {newest.version} isn't what its commits come to")
    return found, works


def _backfill(delta: DeltaTable, times: int) -> None:
    for _ in range(times):
        with suppress(*FAILURES):
            backfill(delta)


FAILURES = (StorageError, CommitOwnerUnavailableError)


def _store_faults(rng: random.Random) -> list[Fault]:
    """Of one client of four a put of a commit, or of a copy, loses its answer, or its request."""
    how = rng.choice([None] * 9 + [How.LOSE_ANSWER, How.REPEAT, How.FAIL])
    return [] if how is None else [Fault("create", rng.choice([1, 2, 3]), how, suffix=".json")]


def _commit_store_faults(rng: random.Random) -> list[Fault]:
    """Likewise, of the steps of the commit store that change something."""
    how = rng.choice([None] * 6 + [How.LOSE_ANSWER, How.FAIL])
    changes = ["ratify", "ratify", "observe", "propose", "activate", "forget"]
    return [] if how is None else [Fault(rng.choice(changes), rng.choice([1, 2]), how)]


@pytest.mark.deep
def test_every_interleaving_is_as_good_as_a_serial_one(use: Use) -> None:
    met: Counter[str] = Counter()
    for seed in range(SEEDS):
        found, works, trace = race(seed, use)
        assert not found, "\n".join([f"seed {seed}:", *found, *trace, *map(str, works)])
        met.update(_kind(work) for work in works)
    # All of it has happened.
    assert met.keys() >= {
        *("ProtocolChangedError", "MetadataChangedError", "ConcurrentTransactionError"),
        *("ConcurrentAppendError", "ConcurrentDeleteReadError", "ConcurrentDeleteDeleteError"),
        *("StorageError", "CommitOwnerUnavailableError", "converted"),
        *("repeated", "1 attempts", "2 attempts", "3 attempts"),
    }


def test_a_race_is_the_same_each_time(use: Use) -> None:
    for seed in range(10):
        (_, once, trace), (_, again, same) = race(seed, use), race(seed, use)
        assert [line.split(".")[0] for line in trace] == [line.split(".")[0] for line in same]
        assert [_kind(work) for work in once] == [_kind(work) for work in again]
        assert len({line[0] for line in trace}) > 1


def _kind(work: Work) -> str:
    if not isinstance(work.outcome, CommitResult):
        return type(work.outcome).__name__
    if work.outcome.attempts:
        return f"{work.outcome.attempts} attempts"
    return "repeated" if work.outcome.repeated else "converted"
