"""Whether any of millions of keys comes twice: answered for little while they stream past.

A checkpoint holds each file once. In one that doesn't, a file would be counted twice, so their keys are
compared while the files of a table are listed. A short hash of each is kept and sorted in the end, which
takes a tenth of the time that reading the keys took. That two of them are equal is only a suspicion: the
caller then looks at the keys themselves.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from airflow_delta.engine.replay.key_hashes import KeyHasher, UInt64Vector

__all__ = ["RepeatedKeys"]


class RepeatedKeys:
    """Suspects keys that come more than once. Not for use by several threads at once."""

    def __init__(self) -> None:
        self._hasher = KeyHasher()
        self._met: list[UInt64Vector] = []

    def meet(self, keys: pa.ChunkedArray) -> bool:
        """Take in keys.

        Args:
            keys: strings without nulls.

        Returns:
            Whether one seems to come directly after itself: a row that is repeated a million times is
            suspected before the others are read.
        """
        hashes = self._hasher.short_hashes(keys)
        self._met.append(hashes)
        return bool((hashes[1:] == hashes[:-1]).any())

    def any(self) -> bool:
        """Whether one of the keys seems to have come more than once. To be asked in the end, once."""
        hashes = np.concatenate([np.empty(0, np.uint64), *self._met])
        self._met.clear()
        hashes.sort()
        return bool((hashes[1:] == hashes[:-1]).any())
