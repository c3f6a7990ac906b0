"""A set of millions of hashed keys that only grows, in some twenty bytes a key.

The keys are kept as sorted runs. Whenever there are eight of a generation they are merged to one of
the next, so that there are few and each key is seldom moved. Long runs are left as they are, so that
merging never takes much memory.

Nearly every key that is asked for is new, for nearly every action of a log is the only one about its
file. So a bitmap answers first (a Bloom filter of one function): a key whose bit isn't set was never
added, and only the others are looked up in the runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import numpy as np
import numpy.typing as npt

from airflow_delta.engine.arrow.numpy_arrays import BoolVector, Int64Vector
from airflow_delta.engine.replay.key_hashes import KeyHashes

__all__ = ["SeenKeys"]

_GENERATION = 8
_LONGEST_MERGE = 1 << 21

# With so many bits for each key, one in sixteen of the keys that are new is looked up in vain.
_BITS_PER_KEY = 16
_LEAST_BITS = 1 << 16


class SeenKeys:
    """A set of hashed keys. Not for use by several threads at once."""

    def __init__(self) -> None:
        self._generations: list[list[KeyHashes]] = [[]]
        self._settled: list[KeyHashes] = []
        self._count = 0
        self._bitmap = np.zeros(_LEAST_BITS // 8, np.uint8)

    def __len__(self) -> int:
        return self._count

    def add(self, keys: KeyHashes) -> None:
        """Add keys.

        Args:
            keys: ascending, each once, and none of them added before.
        """
        if not len(keys):
            return
        self._count += len(keys)
        self._generations[0].append(keys)
        bits = needed = 8 * len(self._bitmap)
        while needed < self._count * _BITS_PER_KEY:
            needed *= 2
        if needed > bits:
            self._bitmap = np.zeros(needed // 8, np.uint8)
        for run in self._runs() if needed > bits else (keys,):
            self._mark(run)
        self._merge()

    def contain(self, keys: KeyHashes) -> BoolVector:
        """Which of some keys were added. Ask for ascending keys: that is much faster."""
        places, masks = self._bits(keys)
        found = np.zeros(len(keys), np.bool_)
        asked = np.flatnonzero(self._bitmap[places] & masks)
        for run in self._runs():
            there = keys.pick(asked).within(run)
            found[asked[there]] = True
            asked = asked[~there]
        return found

    def _runs(self) -> Iterator[KeyHashes]:
        return chain(self._settled, *self._generations)

    def _merge(self) -> None:
        for number, runs in enumerate(self._generations):
            if len(runs) < _GENERATION:
                return
            if number + 1 == len(self._generations):
                self._generations.append([])
            if sum(map(len, runs)) > _LONGEST_MERGE:
                self._settled += runs
                runs.clear()
            else:
                self._generations[number + 1].append(_merged(runs))

    def _mark(self, keys: KeyHashes) -> None:
        places, masks = self._bits(keys)
        np.bitwise_or.at(self._bitmap, places, masks)

    def _bits(self, keys: KeyHashes) -> tuple[Int64Vector, npt.NDArray[np.uint8]]:
        """Each key's bit in the bitmap: the place of its byte, and the bit alone."""
        numbers = keys.low & np.uint64(8 * len(self._bitmap) - 1)
        within_byte = (numbers & np.uint64(7)).astype(np.uint8)
        return (numbers >> np.uint64(3)).astype(np.int64), np.left_shift(np.uint8(1), within_byte)


def _merged(runs: list[KeyHashes]) -> KeyHashes:
    """One ascending run of many, which are emptied: they would double the memory."""
    joined = KeyHashes.joined(runs)
    runs.clear()
    return joined.pick(joined.order())
