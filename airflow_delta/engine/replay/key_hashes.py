"""128-bit hashes of file keys: a set of hashes takes a fifth of the memory of a set of paths.

Two hashes that are equal are taken for the same file, so the odds of two files sharing one must be
too small to matter, whatever the paths. The hash is *universal*: it is drawn at random, anew in each
process, and any two different keys share a hash with a chance of 2**-128, or less. Over ``n``
files of a table that makes at most ``n²/2**129``: for ten million files one in 10**25.

It is the multilinear hash (Carter and Wegman; Lemire and Kaser, "Strongly universal string hashing is
fast"): a key is a row of 32-bit numbers, its length among them, each is multiplied with a random
64-bit number of its own, and the upper half of their sum, with one more number added, is the hash.
Four of these, with independent numbers, make the 128 bits. It takes no more than multiplying and
adding, which numpy does for all keys at once.

A key of more than 4096 bytes, as one with a large deletion vector in it, is such a row of its length
and of its BLAKE2b digest of 512 bits, with a secret of the process. That is as good as the key itself
unless two of them share a digest, for which no more likely way is known than chance: 2**-512.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from airflow_delta.engine.arrow.numpy_arrays import (
    BoolVector,
    Int64Vector,
    bool_array,
    offsets_view,
)

__all__ = ["KeyHasher", "KeyHashes"]

UInt64Vector = npt.NDArray[np.uint64]

_WORD = 8
_LANES = 4
_LONGEST = 4096
"""In bytes; longer keys are digested first. Words are added one by one, so a long key would cost a
step of the loop for each eight of its bytes."""
_DIGEST = 64
_SHORT = 512
"""In bytes; longer keys take more memory as rows of one length than they are."""
_SLICE = 4096
"""Keys whose rows of words stay in a processor's cache."""
_MASKS = np.array([(1 << 8 * count) - 1 for count in range(_WORD + 1)], np.uint64)
_HALF = np.uint64(32)
_LOWER = np.uint64(0xFFFFFFFF)


@dataclass(frozen=True, slots=True)
class KeyHashes:
    """Hashes of keys, as two vectors of 64 bits each.

    Attributes:
        high: the bits that tell nearly all keys apart.
        low: the others.
    """

    high: UInt64Vector
    low: UInt64Vector

    def __len__(self) -> int:
        return len(self.high)

    def pick(self, chosen: BoolVector | Int64Vector) -> KeyHashes:
        """The hashes at the places that a mask or a vector of places chooses."""
        # Both are twice as fast as indexing with brackets.
        if chosen.dtype == np.bool_:
            return KeyHashes(self.high.compress(chosen), self.low.compress(chosen))
        return KeyHashes(self.high.take(chosen), self.low.take(chosen))

    def order(self) -> Int64Vector:
        """The places of the hashes in ascending order."""
        order = np.argsort(self.high)
        high = self.high[order]
        alike = np.flatnonzero(high[1:] == high[:-1])
        if (self.low[order[alike]] != self.low[order[alike + 1]]).any():
            # Hardly ever: it takes two keys that share half of their hashes.
            order = np.lexsort((self.low, self.high))
        return order

    def numbered(self) -> tuple[Int64Vector, KeyHashes]:
        """Each key as its number among the distinct ones, and those, ascending."""
        order = self.order()
        ascending = self.pick(order)
        first = np.ones(len(self), np.bool_)
        first[1:] = (ascending.high[1:] != ascending.high[:-1]) | (
            ascending.low[1:] != ascending.low[:-1]
        )
        numbers = np.empty(len(self), np.int64)
        numbers[order] = np.cumsum(first) - 1
        return numbers, ascending.pick(first)

    def within(self, others: KeyHashes) -> BoolVector:
        """Which of these are among others, which ascend. Ascending ones are found much faster."""
        found = np.zeros(len(self), np.bool_)
        asked = np.arange(len(self))
        places = np.searchsorted(others.high, self.high)
        while len(asked):
            # The next of the others has the same high half, or the key isn't there.
            alike = places < len(others)
            alike[alike] = others.high[places[alike]] == self.high[asked[alike]]
            asked, places = asked[alike], places[alike]
            same = others.low[places] == self.low[asked]
            found[asked[same]] = True
            asked, places = asked[~same], places[~same] + 1
        return found

    @staticmethod
    def joined(parts: Sequence[KeyHashes]) -> KeyHashes:
        """The hashes of all parts, one after the other."""
        if len(parts) == 1:
            return parts[0]
        nothing = np.empty(0, np.uint64)
        return KeyHashes(
            np.concatenate([nothing, *(part.high for part in parts)]),
            np.concatenate([nothing, *(part.low for part in parts)]),
        )


class KeyHasher:
    """A hash function drawn at random; equal keys have equal hashes, from any of its calls.

    Threads may share one.
    """

    def __init__(self) -> None:
        self._factors = _random_factors(64)
        self._secret = os.urandom(64)
        self._growing = Lock()

    def hashes(self, keys: pa.ChunkedArray) -> KeyHashes:
        """The hash of each key.

        Args:
            keys: strings without nulls.
        """
        return KeyHashes.joined([self._of_chunk(chunk) for chunk in keys.chunks])

    def short_hashes(self, keys: pa.ChunkedArray) -> UInt64Vector:
        """A hash of 64 bits of each key, in a quarter of the time.

        Two different keys share one with a chance of 2**-32 at most: enough to find that a million keys
        are all different, or else a few that are to be looked at.

        Args:
            keys: strings without nulls.
        """
        # Slices of what a cache holds: the pages of larger arrays would cost more than the arithmetic.
        parts = [
            self._short_of_chunk(chunk.slice(start, _SLICE))
            for chunk in keys.chunks
            for start in range(0, len(chunk), _SLICE)
        ]
        return np.concatenate([np.empty(0, np.uint64), *parts])

    def _short_of_chunk(self, keys: pa.Array) -> UInt64Vector:
        lengths = np.diff(offsets_view(keys).astype(np.int64))
        long = lengths > _SHORT
        if not long.any():
            return self._short(keys)
        # Which way a key is hashed must not depend on its neighbours.
        found = np.empty(len(keys), np.uint64)
        if not long.all():
            found[~long] = self._short(keys.filter(bool_array(~long)))
        found[long] = self._of_chunk(keys.filter(bool_array(long))).high
        return found

    def _short(self, keys: pa.Array) -> UInt64Vector:
        """The short hashes of keys up to `_SHORT` bytes: rows of as many words, times random numbers."""
        offsets = offsets_view(keys).astype(np.int64)
        starts, lengths = offsets[:-1] - offsets[0], np.diff(offsets)
        plain, words = int(offsets[-1] - offsets[0]), -(-int(lengths.max(initial=1)) // _WORD)
        factors = np.ascontiguousarray(self._factors_for(words)[: words + 1, 0])
        # The bytes behind the last key: its row may reach that far.
        text = np.zeros(plain + words * _WORD, np.uint8)
        if plain:
            text[:plain] = np.frombuffer(keys.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
        rows = np.ndarray((plain + 1,), f"V{words * _WORD}", text, strides=(1,))
        matrix = rows[starts].view("<u8").reshape(-1, words)
        for number in range(int(lengths.min()) // _WORD, words):
            # Without what lies behind a key's end.
            matrix[:, number] &= _MASKS[np.clip(lengths - number * _WORD, 0, _WORD)]
        # The product keeps no more of a difference in the upper half of a word than reaches the lower one.
        matrix ^= matrix >> _HALF
        sums: UInt64Vector = matrix @ factors[1:] + lengths.astype(np.uint64) * factors[0]
        return sums

    def _of_chunk(self, keys: pa.Array) -> KeyHashes:
        if not len(keys):
            return KeyHashes.joined([])
        text, starts, lengths, closing = self._rows_of_words(keys)
        # A word at each byte, overlapping the next.
        words = np.ndarray((len(text) - _WORD + 1,), "<u8", text, strides=(1,))
        shortest, length = int(lengths.min()), int(lengths.max())
        complete, longest = shortest // _WORD, -(-length // _WORD)
        factors = self._factors_for(longest)
        sums = [start + factor * closing for start, factor in zip(*factors[:2], strict=True)]
        # Usual, for names of files have numbers of fixed width: each key is as long as the others, and
        # behind the one before.
        even = shortest == length and starts[-1] == (len(keys) - 1) * length
        rows = np.arange(len(keys))
        for number in range(longest):
            place = number * _WORD
            if even:
                here = np.ndarray((len(keys),), "<u8", text, place, (length,)).copy()
                if place + _WORD > length:
                    here &= np.uint64((1 << 8 * (length - place)) - 1)
                _add(sums, here, factors[2 + 2 * number :])
                continue
            if number < complete:
                _add(sums, words[starts + place], factors[2 + 2 * number :])
                continue
            # Those that reach this far are among those that reached the word before.
            rows = rows[lengths[rows] > place]
            # Without what lies behind a key's end. At least a byte is left: all shifts are below 64.
            rest = np.minimum(lengths[rows] - place, _WORD)
            unused = (8 * (_WORD - rest)).astype(np.uint64)
            here = (words[starts[rows] + place] << unused) >> unused
            some = [part[rows] for part in sums]
            _add(some, here, factors[2 + 2 * number :])
            for part, values in zip(sums, some, strict=True):
                part[rows] = values
        halves = [part >> _HALF for part in sums]
        return KeyHashes((halves[0] << _HALF) | halves[1], (halves[2] << _HALF) | halves[3])

    def _rows_of_words(
        self, keys: pa.Array
    ) -> tuple[npt.NDArray[np.uint8], Int64Vector, Int64Vector, UInt64Vector]:
        """What is hashed of each key: bytes, where its own begin, how many, and a number more.

        The number is the key's own length, which also tells keys that were digested from others.
        """
        offsets = offsets_view(keys).astype(np.int64)
        starts, lengths = offsets[:-1] - offsets[0], np.diff(offsets)
        closing = lengths.astype(np.uint64)
        plain = int(offsets[-1] - offsets[0])
        long = np.flatnonzero(lengths > _LONGEST)
        # The bytes behind the last key: a word of it may reach that far.
        text = np.zeros(plain + len(long) * _DIGEST + _WORD, np.uint8)
        text[:plain] = np.frombuffer(keys.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
        # A loop over keys, but only over the long ones, at which the bytes are what costs time.
        for number, row in enumerate(long.tolist()):
            key = text[starts[row] : starts[row] + lengths[row]]
            digest = hashlib.blake2b(key.data, digest_size=_DIGEST, key=self._secret).digest()
            starts[row], lengths[row] = plain + number * _DIGEST, _DIGEST
            text[starts[row] : starts[row] + _DIGEST] = np.frombuffer(digest, np.uint8)
        return text, starts, lengths, closing

    def _factors_for(self, words: int) -> npt.NDArray[np.uint64]:
        """The factors for keys of so many words; those that were used before stay."""
        count = 2 + 2 * words
        with self._growing:
            missing = count - len(self._factors)
            if missing > 0:
                self._factors = np.concatenate([self._factors, _random_factors(count + missing)])
            return self._factors


def _add(sums: list[UInt64Vector], words: UInt64Vector, factors: npt.NDArray[np.uint64]) -> None:
    """Add the products of the words' halves with their factors to each sum, modulo 2**64."""
    product = np.empty_like(words)
    for half, row in ((words & _LOWER, factors[0]), (words >> _HALF, factors[1])):
        for part, factor in zip(sums, row, strict=True):
            np.multiply(half, factor, out=product)
            part += product


def _random_factors(count: int) -> npt.NDArray[np.uint64]:
    return np.frombuffer(os.urandom(count * _LANES * 8), np.uint64).reshape(count, _LANES)
