"""Threads that take turns, so that a race is a list of decisions, and the same one each time.

Each actor is a thread, and all but one of them wait. Whoever has the turn gives it away where it could
meet the others, before each call of a `SteppedStorage`, by `Turns.step`; who goes on is for a function to
choose. So any interleaving of storage calls can be had, without a clock, and again by the same choices::

    turns = Turns(random.Random(7).choice)
    storage = SteppedStorage(MemoryStorage("memory://races/t"), turns)
    outcomes = turns.run([one_writer, another_writer])

Threads that an actor starts aren't stepped: while it waits for them they have its turn.
"""

from __future__ import annotations

import itertools
import os
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest

from airflow_delta.engine.clock import now_ms
from airflow_delta.engine.storage.base import Storage
from airflow_delta.engine.transaction import commit_loop
from tests.faulty_storage import Fault, FaultyStorage

__all__ = ["SteppedStorage", "Turns", "stepped_engine"]

_Result = TypeVar("_Result")


class Turns:
    """Runs actors, one at a time.

    Args:
        choose: of the numbers of the actors that aren't done, ascending, the one that goes on.

    Attributes:
        trace: what was done, in order: the actor's number, and what it did with the turn.
    """

    def __init__(self, choose: Callable[[Sequence[int]], int]) -> None:
        self.trace: list[tuple[int, str]] = []
        self._choose = choose
        self._gates: list[threading.Lock] = []
        self._going: list[int] = []
        self._actors: dict[int, int] = {}

    def run(self, actors: Sequence[Callable[[], object]]) -> list[object]:
        """Run actors to their end: what each of them has returned or raised."""
        outcomes: list[object] = [None] * len(actors)
        done = _shut()
        self._gates = [_shut() for _ in actors]
        self._going = [*range(len(actors))]

        def act(number: int) -> None:
            self._actors[threading.get_ident()] = number
            self._gates[number].acquire()
            try:
                outcomes[number] = actors[number]()
            # The test shall see it, wherever it is raised.
            except BaseException as error:
                outcomes[number] = error
            self._going.remove(number)
            # A thread that another actor starts may get the number of this one.
            del self._actors[threading.get_ident()]
            if self._going:
                self._gates[self._choose(self._going)].release()
            else:
                done.release()

        threads = [threading.Thread(target=act, args=(n,), daemon=True) for n in self._going]
        for thread in threads:
            thread.start()
        self._gates[self._choose(self._going)].release()
        done.acquire()
        for thread in threads:
            thread.join()
        self._actors.clear()
        return outcomes

    def step(self, what: str) -> None:
        """Give the turn away; returns when it has come back. No actor: goes on at once."""
        me = self._actors.get(threading.get_ident())
        if me is None:
            return
        following = self._choose(self._going)
        if following != me:
            self._gates[following].release()
            self._gates[me].acquire()
        self.trace.append((me, what))


class SteppedStorage(FaultyStorage):
    """A storage each call of which takes a turn; files that are opened or written to are no steps."""

    def __init__(self, inner: Storage, turns: Turns, *faults: Fault) -> None:
        super().__init__(inner, *faults)
        self._turns = turns

    def step(
        self,
        operation: str,
        path: str,
        effect: Callable[[], _Result],
        *,
        half: Callable[[], object] | None = None,
    ) -> _Result:
        self._turns.step(f"{operation} {path}")
        return super().step(operation, path, effect, half=half)


@contextmanager
def stepped_engine(clock: Callable[[], int]) -> Iterator[Callable[[Turns], None]]:
    """The engine made fit for turns: it neither waits by the clock nor for another thread.

    Args:
        clock: what the commit loop takes for the time, in epoch milliseconds.

    Yields:
        Has the pauses between attempts be turns of some actors'.
    """
    with _one_core(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(commit_loop, "now_ms", clock)

        def use(turns: Turns) -> None:
            patch.setattr(commit_loop, "pause", lambda attempt: turns.step(f"pause {attempt}"))

        yield use


def ticking_clock() -> Callable[[], int]:
    """A clock that goes on with each look at it, so that a race is the same each time."""
    ticking = itertools.count(now_ms())
    return lambda: next(ticking)


def skewed_clock() -> Callable[[], int]:
    """The clock of writers whose clocks differ by minutes, and go back."""
    skew = random.Random(0)
    return lambda: now_ms() + skew.randrange(-300_000, 300_000)


@contextmanager
def _one_core() -> Iterator[None]:
    """Keep this thread, and those that it starts, on one core: no two actors are ever under way at once.

    On a busy machine, who is given a turn on another core waits for that core to be free: thousands of
    turns take three times as long. Each process of pytest-xdist takes another core.
    """
    if not hasattr(os, "sched_setaffinity"):  # as on macOS
        yield
        return
    cores = os.sched_getaffinity(0)
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    os.sched_setaffinity(0, {sorted(cores)[number % len(cores)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def _shut() -> Any:
    gate = threading.Lock()
    gate.acquire()
    return gate
