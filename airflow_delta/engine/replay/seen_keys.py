"""A set of millions of hashed keys that only grows, in some twenty-five bytes a key.

It is a hash table that numpy works on: all keys of a batch take each step together. The keys stand in
the order of their arrival, sixteen bytes each, and a table of slots holds their numbers. The slot where
a key is looked for first is given by its upper bits; then come those in growing distances behind it, up
to one that is free. A third of the slots at least is free, so nearly all keys are found, or found to be
new, within a few. Because the upper bits choose the slot, ascending keys go through the table from its
start to its end, which memory likes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from airflow_delta.engine.arrow.numpy_arrays import BoolVector, Int64Vector
from airflow_delta.engine.replay.key_hashes import KeyHashes, UInt64Vector

__all__ = ["SeenKeys"]

_LEAST_SLOTS = 1 << 10
"""A power of two, as the number of slots always is."""
_FILLED = 2 / 3
"""The part of the slots that may be taken before the table gets twice as many."""
_STEP = 1 << 15
"""Keys that get their slots in a larger table at once."""

_SMALL, _LARGE = 1 << 16, 1 << 24
"""There is room for fewer keys than the one or for more than the other, never for a number between."""

_HALF = np.uint64(32)


class SeenKeys:
    """A set of hashed keys, numbered as they come. Not for use by several threads at once."""

    def __init__(self) -> None:
        self._count = 0
        self._high: UInt64Vector = np.empty(0, np.uint64)
        self._low: UInt64Vector = np.empty(0, np.uint64)
        # A slot holds the number of a key, counted from 1, or 0.
        self._slots: npt.NDArray[Any] = np.zeros(_LEAST_SLOTS, np.int32)

    def __len__(self) -> int:
        return self._count

    def add(self, keys: KeyHashes) -> Int64Vector:
        """Add the keys that are new, and tell which aren't.

        Args:
            keys: each once. If they ascend it is much faster.

        Returns:
            Of each key, how many keys came before it; -1 where it has come just now.
        """
        self._make_room(len(keys))
        numbers, slots, steps = self._find(keys)
        new = np.flatnonzero(numbers == 0)
        end = self._count + len(new)
        self._high[self._count : end] = keys.high.take(new)
        self._low[self._count : end] = keys.low.take(new)
        given = np.arange(self._count + 1, end + 1, dtype=self._slots.dtype)
        self._put(given, slots.take(new), steps.take(new))
        self._count = end
        return numbers - 1

    def contain(self, keys: KeyHashes) -> BoolVector:
        """Which of some keys were added. Ask for ascending keys: that is much faster."""
        return self._find(keys)[0] > 0

    def _find(self, keys: KeyHashes) -> tuple[Int64Vector, Int64Vector, Int64Vector]:
        """The number of each key, from 1, or 0; the slot where looking for it ended; and its step."""
        numbers, steps = np.zeros((2, len(keys)), np.int64)
        slots = self._first_slots(keys.high)
        found = self._slots.take(slots)
        asked = np.flatnonzero(found)
        step = 0
        while len(asked):
            step += 1
            found = found[found > 0]
            same = self._high.take(found - 1) == keys.high.take(asked)
            same &= self._low.take(found - 1) == keys.low.take(asked)
            numbers[asked.compress(same)] = found.compress(same)
            asked = asked.compress(~same)
            steps[asked] = step
            following = self._after(slots.take(asked), step)
            slots[asked] = following
            found = self._slots.take(following)
            asked = asked.take(np.flatnonzero(found))
        return numbers, slots, steps

    def _put(self, numbers: npt.NDArray[Any], slots: Int64Vector, steps: Int64Vector) -> None:
        """Give numbers slots: those where they are in their steps, or the next ones that are free."""
        while len(numbers):
            free = np.flatnonzero(self._slots.take(slots) == 0)
            self._slots[slots.take(free)] = numbers.take(free)
            # Of those that want the same slot one gets it.
            left = np.flatnonzero(self._slots.take(slots) != numbers)
            numbers, steps = numbers.take(left), steps.take(left) + 1
            slots = self._after(slots.take(left), steps)

    def _first_slots(self, high: UInt64Vector) -> Int64Vector:
        """High halves brought down to the range of the slots: the higher, the later."""
        slots: Int64Vector = (((high >> _HALF) * np.uint64(len(self._slots))) >> _HALF).view(
            np.int64
        )
        return slots

    def _after(self, slots: Int64Vector, step: int | Int64Vector) -> Int64Vector:
        """The next slots: steps that grow by one come to all slots, if they are a power of two."""
        following: Int64Vector = (slots + step) & (len(self._slots) - 1)
        return following

    def _make_room(self, more: int) -> None:
        needed = self._count + more
        self._high = _with_room(self._high, self._count, needed)
        self._low = _with_room(self._low, self._count, needed)
        slots = len(self._slots)
        while needed > slots * _FILLED:
            slots *= 2
        if slots > len(self._slots):
            # The old one goes first: the keys alone tell where they belong.
            self._slots = np.empty(0, np.int32)
            self._slots = np.zeros(slots, np.int32 if slots < 1 << 31 else np.int64)
            for start in range(0, self._count, _STEP):
                stop = min(start + _STEP, self._count)
                numbers = np.arange(start + 1, stop + 1, dtype=self._slots.dtype)
                first = self._first_slots(self._high[start:stop])
                self._put(numbers, first, np.zeros_like(first))


def _with_room(values: UInt64Vector, used: int, needed: int) -> UInt64Vector:
    """A vector that has room for as many values as needed."""
    if needed <= len(values):
        return values
    if len(values) >= _LARGE:
        # So large a vector has pages of its own, which the system moves without copying them. Except for
        # the first time, because numpy has asked for huge pages in a part of it: few logs get there.
        values.resize(max(needed, len(values) + len(values) // 16), refcheck=False)
        return values
    # From some size on at once a large one: memory that was never touched costs nothing.
    room = max(needed, 2 * len(values))
    larger = np.empty(room if room < _SMALL else max(room, _LARGE), np.uint64)
    larger[:used] = values[:used]
    return larger
