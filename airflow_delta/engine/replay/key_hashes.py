"""128-bit hashes of file keys, which need a fifth of the memory of the paths.

Equal hashes are taken for the same file. The hash function is *universal*: it is drawn at random in each
process, and any two different keys share a hash with a probability of at most 2**-128, whatever they are.
For ``n`` files that adds up to at most ``n²/2**129``: for ten million files, one in 10**25.

It is the multilinear hash (Carter and Wegman; Lemire and Kaser, "Strongly universal string hashing is
fast"), for all keys at once in numpy.
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
"""In bytes. The loop adds one word at a time, so a longer key, such as one with a large inline deletion
vector, would cost one iteration for every eight bytes. So it is hashed by its length and its BLAKE2b digest
of 512 bits, with a secret of the process. That is as good as hashing the key itself, unless two keys share
a digest; no way to this is known that is more likely than chance, 2**-512."""
_DIGEST = 64
_SHORT = 512
"""In bytes; for longer keys, rows of equal length would take more memory than the keys."""
_SLICE = 4096
"""The number of keys whose rows of words fit in a processor's cache."""
_MASKS = np.array([(1 << 8 * count) - 1 for count in range(_WORD + 1)], np.uint64)
_HALF = np.uint64(32)
_LOWER = np.uint64(0xFFFFFFFF)


@dataclass(frozen=True, slots=True)
class KeyHashes:
    """Hashes of keys, as two arrays of 64 bits each.

    Attributes:
        high: the upper halves, which already differ for nearly all keys.
        low: the lower halves.
    """

    high: UInt64Vector
    low: UInt64Vector

    def __len__(self) -> int:
        return len(self.high)

    def pick(self, chosen: BoolVector | Int64Vector) -> KeyHashes:
        """The hashes that a mask, or an array of indices, selects."""
        # Both are twice as fast as indexing with brackets.
        if chosen.dtype == np.bool_:
            return KeyHashes(self.high.compress(chosen), self.low.compress(chosen))
        return KeyHashes(self.high.take(chosen), self.low.take(chosen))

    def order(self) -> Int64Vector:
        """The indices of the hashes in ascending order."""
        order = np.argsort(self.high)
        high = self.high[order]
        alike = np.flatnonzero(high[1:] == high[:-1])
        if (self.low[order[alike]] != self.low[order[alike + 1]]).any():
            # Rare: two keys share half of their hashes.
            order = np.lexsort((self.low, self.high))
        return order

    def factorize(self) -> tuple[Int64Vector, KeyHashes]:
        """For each key its index among the distinct keys; and the distinct keys, ascending."""
        order = self.order()
        ascending = self.pick(order)
        first = np.ones(len(self), np.bool_)
        first[1:] = (ascending.high[1:] != ascending.high[:-1]) | (
            ascending.low[1:] != ascending.low[:-1]
        )
        numbers = np.empty(len(self), np.int64)
        numbers[order] = np.cumsum(first) - 1
        return numbers, ascending.pick(first)

    def is_in(self, others: KeyHashes) -> BoolVector:
        """Whether each of these is among others, which ascend. Much faster if these ascend, too."""
        found = np.zeros(len(self), np.bool_)
        pending = np.arange(len(self))
        indices = np.searchsorted(others.high, self.high)
        while len(pending):
            # The next of the others has the same high half, or the key isn't among them.
            alike = indices < len(others)
            alike[alike] = others.high[indices[alike]] == self.high[pending[alike]]
            pending, indices = pending[alike], indices[alike]
            same = others.low[indices] == self.low[pending]
            found[pending[same]] = True
            pending, indices = pending[~same], indices[~same] + 1
        return found

    @staticmethod
    def concat(parts: Sequence[KeyHashes]) -> KeyHashes:
        """The hashes of all parts, one after the other."""
        if len(parts) == 1:
            return parts[0]
        nothing = np.empty(0, np.uint64)
        return KeyHashes(
            np.concatenate([nothing, *(part.high for part in parts)]),
            np.concatenate([nothing, *(part.low for part in parts)]),
        )


class KeyHasher:
    """A hash function drawn at random. Equal keys have equal hashes in all its calls.

    Several threads may share one.
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
        return KeyHashes.concat([self._of_chunk(chunk) for chunk in keys.chunks])

    def short_hashes(self, keys: pa.ChunkedArray) -> UInt64Vector:
        """A 64-bit hash of each key, in a quarter of the time.

        Two different keys share a hash with a probability of at most 2**-32. That is enough to find
        that a million keys are all different, except for a few that must be compared themselves.

        Args:
            keys: strings without nulls.
        """
        # In slices that fit in a cache: for larger arrays, allocating pages would cost more than
        # the arithmetic.
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
        # How a key is hashed must not depend on the other keys.
        found = np.empty(len(keys), np.uint64)
        if not long.all():
            found[~long] = self._short(keys.filter(bool_array(~long)))
        found[long] = self._of_chunk(keys.filter(bool_array(long))).high
        return found

    def _short(self, keys: pa.Array) -> UInt64Vector:
        """The short hashes of keys up to `_SHORT` bytes: rows of words, times random numbers."""
        offsets = offsets_view(keys).astype(np.int64)
        starts, lengths = offsets[:-1] - offsets[0], np.diff(offsets)
        plain, words = int(offsets[-1] - offsets[0]), -(-int(lengths.max(initial=1)) // _WORD)
        factors = np.ascontiguousarray(self._factors_for(words)[: words + 1, 0])
        # The row of the last key may reach beyond its end.
        text = np.zeros(plain + words * _WORD, np.uint8)
        if plain:
            text[:plain] = np.frombuffer(keys.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
        rows = np.ndarray((plain + 1,), f"V{words * _WORD}", text, strides=(1,))
        matrix = rows[starts].view("<u8").reshape(-1, words)
        for number in range(int(lengths.min()) // _WORD, words):
            # Clear the bytes after a key's end.
            matrix[:, number] &= _MASKS[np.clip(lengths - number * _WORD, 0, _WORD)]
        # A product modulo 2**64 keeps little of a difference in the upper half of a word. So that
        # half is also folded into the lower one.
        matrix ^= matrix >> _HALF
        sums: UInt64Vector = matrix @ factors[1:] + lengths.astype(np.uint64) * factors[0]
        return sums

    def _of_chunk(self, keys: pa.Array) -> KeyHashes:
        """The hashes of some keys.

        A key is a row of 32-bit numbers, including its length. Each is multiplied with its own random
        64-bit number. The upper half of their sum plus one more random number is a hash of 32 bits. Four of
        these, with independent random numbers, make the 128 bits.
        """
        if not len(keys):
            return KeyHashes.concat([])
        text, starts, lengths, closing = self._rows_of_words(keys)
        # A word at each byte, overlapping the next.
        words = np.ndarray((len(text) - _WORD + 1,), "<u8", text, strides=(1,))
        shortest, length = int(lengths.min()), int(lengths.max())
        complete, longest = shortest // _WORD, -(-length // _WORD)
        factors = self._factors_for(longest)
        sums = [start + factor * closing for start, factor in zip(*factors[:2], strict=True)]
        # Usual, because file names contain numbers of fixed width: all keys have the same length,
        # and follow each other without gaps.
        even = shortest == length and starts[-1] == (len(keys) - 1) * length
        rows = np.arange(len(keys))
        for number in range(longest):
            begin = number * _WORD
            if even:
                here = np.ndarray((len(keys),), "<u8", text, begin, (length,)).copy()
                if begin + _WORD > length:
                    here &= np.uint64((1 << 8 * (length - begin)) - 1)
                _add(sums, here, factors[2 + 2 * number :])
                continue
            if number < complete:
                _add(sums, words[starts + begin], factors[2 + 2 * number :])
                continue
            # Keys that reach this word also reached the word before.
            rows = rows[lengths[rows] > begin]
            # Clear the bytes after a key's end. At least one byte is left, so all shifts are below
            # 64.
            rest = np.minimum(lengths[rows] - begin, _WORD)
            unused = (8 * (_WORD - rest)).astype(np.uint64)
            here = (words[starts[rows] + begin] << unused) >> unused
            some = [part[rows] for part in sums]
            _add(some, here, factors[2 + 2 * number :])
            for part, values in zip(sums, some, strict=True):
                part[rows] = values
        halves = [part >> _HALF for part in sums]
        return KeyHashes((halves[0] << _HALF) | halves[1], (halves[2] << _HALF) | halves[3])

    def _rows_of_words(
        self, keys: pa.Array
    ) -> tuple[npt.NDArray[np.uint8], Int64Vector, Int64Vector, UInt64Vector]:
        """For each key: the bytes to hash, where they begin, how many they are, and one more number.

        The number is the key's own length, which also distinguishes keys that were digested.
        """
        offsets = offsets_view(keys).astype(np.int64)
        starts, lengths = offsets[:-1] - offsets[0], np.diff(offsets)
        closing = lengths.astype(np.uint64)
        plain = int(offsets[-1] - offsets[0])
        long = np.flatnonzero(lengths > _LONGEST)
        # The last word of the last key may reach beyond its end.
        text = np.zeros(plain + len(long) * _DIGEST + _WORD, np.uint8)
        text[:plain] = np.frombuffer(keys.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
        # A loop over keys, but only over the long ones, where the bytes cost the time.
        for number, row in enumerate(long.tolist()):
            key = text[starts[row] : starts[row] + lengths[row]]
            digest = hashlib.blake2b(key.data, digest_size=_DIGEST, key=self._secret).digest()
            starts[row], lengths[row] = plain + number * _DIGEST, _DIGEST
            text[starts[row] : starts[row] + _DIGEST] = np.frombuffer(digest, np.uint8)
        return text, starts, lengths, closing

    def _factors_for(self, words: int) -> npt.NDArray[np.uint64]:
        """The factors for keys of so many words; factors in use never change."""
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
