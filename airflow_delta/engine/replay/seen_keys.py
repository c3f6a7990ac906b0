"""A growing set of millions of hashed keys, with about 25 bytes per key.

It is a hash table in numpy arrays: all keys of a batch take each step together. The keys are stored
in the order of their arrival, 16 bytes each, and a table of slots contains their numbers. The upper
bits of a key select its first slot; if that is taken, slots at growing distances are tried until
one is free. At least a third of the slots is free, so nearly all lookups end within a few steps.
Because the upper bits select the slot, ascending keys access the table from its start to its end,
which suits the cache.
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
"""The share of taken slots at which the table doubles."""
_STEP = 1 << 15
"""Keys that are moved to a larger table at once."""

_SMALL, _LARGE = 1 << 16, 1 << 24
"""There is capacity for fewer keys than the first number or for more than the second."""

_HALF = np.uint64(32)


class SeenKeys:
    """A set of hashed keys, numbered in the order of arrival. Not for several threads at once."""

    def __init__(self) -> None:
        self._count = 0
        self._high: UInt64Vector = np.empty(0, np.uint64)
        self._low: UInt64Vector = np.empty(0, np.uint64)
        # A slot holds the number of a key, counted from 1, or 0.
        self._slots: npt.NDArray[Any] = np.zeros(_LEAST_SLOTS, np.int32)

    def __len__(self) -> int:
        return self._count

    def add(self, keys: KeyHashes) -> Int64Vector:
        """Add the keys that are new, and return which are known.

        Args:
            keys: distinct keys. Ascending keys are much faster.

        Returns:
            For each known key, the number of keys that came before it; -1 for a new one.
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

    def contains(self, keys: KeyHashes) -> BoolVector:
        """Whether each key was added. Ascending keys are much faster."""
        return self._find(keys)[0] > 0

    def _find(self, keys: KeyHashes) -> tuple[Int64Vector, Int64Vector, Int64Vector]:
        """For each key: its number, from 1, or 0; the slot where its search ended; and its step."""
        numbers, steps = np.zeros((2, len(keys)), np.int64)
        slots = self._first_slots(keys.high)
        found = self._slots.take(slots)
        pending = np.flatnonzero(found)
        step = 0
        while len(pending):
            step += 1
            found = found[found > 0]
            same = self._high.take(found - 1) == keys.high.take(pending)
            same &= self._low.take(found - 1) == keys.low.take(pending)
            numbers[pending.compress(same)] = found.compress(same)
            pending = pending.compress(~same)
            steps[pending] = step
            following = self._next_slots(slots.take(pending), step)
            slots[pending] = following
            found = self._slots.take(following)
            pending = pending.take(np.flatnonzero(found))
        return numbers, slots, steps

    def _put(self, numbers: npt.NDArray[Any], slots: Int64Vector, steps: Int64Vector) -> None:
        """Store numbers in slots: the given ones, or the next free ones."""
        while len(numbers):
            free = np.flatnonzero(self._slots.take(slots) == 0)
            self._slots[slots.take(free)] = numbers.take(free)
            # Of several keys that want the same slot, one gets it.
            left = np.flatnonzero(self._slots.take(slots) != numbers)
            numbers, steps = numbers.take(left), steps.take(left) + 1
            slots = self._next_slots(slots.take(left), steps)

    def _first_slots(self, high: UInt64Vector) -> Int64Vector:
        """Scale high halves to the range of slots, in ascending order."""
        slots: Int64Vector = (((high >> _HALF) * np.uint64(len(self._slots))) >> _HALF).view(
            np.int64
        )
        return slots

    def _next_slots(self, slots: Int64Vector, step: int | Int64Vector) -> Int64Vector:
        """The next slots to try. With steps that grow by one, all slots of a power of two are reached."""
        following: Int64Vector = (slots + step) & (len(self._slots) - 1)
        return following

    def _make_room(self, more: int) -> None:
        needed = self._count + more
        self._high = _grow_to(self._high, self._count, needed)
        self._low = _grow_to(self._low, self._count, needed)
        slots = len(self._slots)
        while needed > slots * _FILLED:
            slots *= 2
        if slots > len(self._slots):
            # Free the old table first: the keys alone are enough to fill a new one.
            self._slots = np.empty(0, np.int32)
            self._slots = np.zeros(slots, np.int32 if slots < 1 << 31 else np.int64)
            for start in range(0, self._count, _STEP):
                stop = min(start + _STEP, self._count)
                numbers = np.arange(start + 1, stop + 1, dtype=self._slots.dtype)
                first = self._first_slots(self._high[start:stop])
                self._put(numbers, first, np.zeros_like(first))


def _grow_to(values: UInt64Vector, used: int, needed: int) -> UInt64Vector:
    """An array with capacity for the values needed."""
    if needed <= len(values):
        return values
    if len(values) >= _LARGE:
        # An array of this size has pages of its own, which the system moves without copying them.
        # The first time it copies, because numpy has requested huge pages for a part; few logs get
        # there.
        values.resize(max(needed, len(values) + len(values) // 16), refcheck=False)
        return values
    # From some size on, allocate a large array at once: untouched memory costs nothing.
    room = max(needed, 2 * len(values))
    larger = np.empty(room if room < _SMALL else max(room, _LARGE), np.uint64)
    larger[:used] = values[:used]
    return larger
