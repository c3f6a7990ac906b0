"""Transactions in a thousand interleavings, storage call by storage call, against a serial model.

Each seed gives a table, two or three writers with a transaction or two, and the order in which their
calls of the storage take effect. Some calls lose their answer. A failure names the seed, which reproduces
it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from airflow_delta.engine import CommitResult
from airflow_delta.engine.transaction.conflicts import RULES
from tests.deep import deep_but_for
from tests.faulty_storage import Fault, How
from tests.races.random_writers import Table, Work, Writer
from tests.races.replayed_log import Log
from tests.races.serial_model import problems
from tests.stepping import SteppedStorage, Turns, skewed_clock, stepped_engine
from tests.table_builder import MemoryTable, state_of

# The seeds of a test. Each of them is large enough that everything happens in it.
FEW_SEEDS, MORE_SEEDS = range(100), [range(100, 400), range(400, 700), range(700, 1000)]
Use = Callable[[Turns], None]


@pytest.fixture
def use() -> Iterator[Use]:
    with stepped_engine(skewed_clock()) as use:
        yield use


def race(seed: int, use: Use) -> tuple[list[str], list[Work], list[str]]:
    """One race: what is wrong with it, its transactions, and its trace."""
    rng = random.Random(seed)
    table = Table.by_chance(rng)
    turns = Turns(rng.choice)
    use(turns)
    count = rng.choice([2, 3])
    with MemoryTable(table.files) as memory:
        storage = SteppedStorage(memory.storage, turns, *_faults(rng))
        log = Log(memory.storage)
        shared = memory.delta()
        shared.__dict__["storage"] = storage
        if warm := rng.random() < 0.7:
            shared.transaction("READ")
        writers = []
        for name in "xyz"[:count]:
            delta = shared if warm else memory.delta()
            delta.__dict__["storage"] = storage
            rng_of = random.Random(rng.random())
            writers.append(Writer(delta, log, table, rng=rng_of, name=name))
        each = [1, 2] if count == 2 else [1, 1, 1]
        outcomes = turns.run([partial(w.run, n) for w, n in zip(writers, each, strict=True)])
        found = [f"a writer has raised {o!r}" for o in outcomes if o is not None]
        works = [work for writer in writers for work in writer.works]
        log.look()
        found += problems(log, works, table.level or "Serializable")
        if seed % 8 == 0:
            for snapshot in (memory.delta().snapshot(), shared.transaction("READ").snapshot):
                assert snapshot
                if state_of(snapshot) != log.states[-1].visible():
                    found.append(f"version {snapshot.version} isn't what its commits come to")
    return found, works, [f"{number} {what}" for number, what in turns.trace]


def _faults(rng: random.Random) -> list[Fault]:
    """In one race of three a commit's answer is lost, or its request, or the request is repeated."""
    how = rng.choice([None] * 6 + [How.LOSE_ANSWER, How.REPEAT, How.FAIL])
    return [] if how is None else [Fault("create", rng.choice([1, 2, 3]), how, suffix=".json")]


@pytest.mark.parametrize("seeds", deep_but_for([FEW_SEEDS, *MORE_SEEDS], FEW_SEEDS), ids=str)
def test_every_interleaving_is_as_good_as_a_serial_one(seeds: range, use: Use) -> None:
    met: Counter[str] = Counter()
    for seed in seeds:
        found, works, trace = race(seed, use)
        assert not found, "\n".join([f"seed {seed}:", *found, *trace, *map(str, works)])
        met.update(_kind(work) for work in works)
    # All of it has happened.
    conflicts = {error.__name__ for _, error in RULES}
    assert met.keys() >= {*conflicts, "repeated", "1 attempts", "2 attempts", "3 attempts"}


def test_a_race_is_the_same_each_time(use: Use) -> None:
    for seed in range(10):
        (_, once, trace), (_, again, same) = race(seed, use), race(seed, use)
        assert trace == same
        assert [_kind(work) for work in once] == [_kind(work) for work in again]
        assert len({line[0] for line in trace}) > 1


def _kind(work: Work) -> str:
    if not isinstance(work.outcome, CommitResult):
        return type(work.outcome).__name__
    return "repeated" if work.outcome.repeated else f"{work.outcome.attempts} attempts"
