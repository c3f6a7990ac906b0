"""How often the poll that several watchers share looks: as often as the most eager of them wants.

A trigger that subscribes to a poll names its interval here, and the poll sleeps here between two looks.
Both run in the one event loop of the triggerer.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["intervals_of", "pause_seconds", "sleep_until_due", "subscribed", "wait_or_cancel"]

_LONGEST_PAUSE_SECONDS = 900.0


class _Pace:
    """The intervals of the watchers of one poll, and an event that wakes it when one joins."""

    def __init__(self) -> None:
        self.intervals: list[float] = []
        self.joined = asyncio.Event()


_PACES: dict[Hashable, _Pace] = {}


@contextmanager
def subscribed(key: Hashable, interval: float) -> Iterator[None]:
    """Have the poll with a key look at least once in an interval, as long as the block lasts.

    :param key: the key of the shared stream.
    :param interval: the interval in seconds.
    """
    pace = _PACES.setdefault(key, _Pace())
    is_eager = bool(pace.intervals) and interval < min(pace.intervals)
    pace.intervals.append(interval)
    if is_eager:
        pace.joined.set()
    try:
        yield
    finally:
        pace.intervals.remove(interval)
        if not pace.intervals:
            _PACES.pop(key, None)


def intervals_of(key: Hashable) -> list[float]:
    """The intervals of the watchers of a poll; none if nobody has subscribed yet."""
    pace = _PACES.get(key)
    return [] if pace is None else list(pace.intervals)


async def sleep_until_due(key: Hashable, seconds: float) -> None:
    """Sleep, but no longer than until a watcher joins that is more eager than the others.

    :param key: the key of the shared stream.
    :param seconds: how long.
    """
    pace = _PACES.get(key)
    if pace is None:
        await asyncio.sleep(seconds)
        return
    pace.joined.clear()
    await wait_or_cancel(asyncio.ensure_future(pace.joined.wait()), seconds)


async def wait_or_cancel(task: asyncio.Future[Any], seconds: float) -> bool:
    """Wait for a task, and cancel it if it takes too long, or if the caller is cancelled.

    `asyncio.wait_for` before Python 3.12 doesn't notice that the caller is cancelled just when the task
    ends: a trigger that the triggerer has cancelled would go on.

    :param task: the task.
    :param seconds: how long it may take.
    :returns: whether it has ended.
    """
    try:
        ended, _ = await asyncio.wait({task}, timeout=seconds)
    finally:
        task.cancel()
    return bool(ended)


def pause_seconds(interval: float, failures: int) -> float:
    """The seconds until the next look: the interval, or after failures more and more; with jitter."""
    if not failures:
        return interval * random.uniform(0.9, 1.1)  # noqa: S311 - to spread the load
    most = max(interval, _LONGEST_PAUSE_SECONDS)
    return min(interval * 2.0 ** min(failures, 20), most) * random.uniform(0.5, 1.0)  # noqa: S311
