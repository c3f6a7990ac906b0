"""Find out cheaply whether any of millions of keys comes twice, while they stream past.

A checkpoint holds each file once; otherwise the file would be counted twice. So the keys are
compared while the files of a table are listed. A short hash of each key is kept, and the hashes are
sorted at the end. That takes a tenth of the time of reading the keys. Two equal hashes are only a
suspicion: the caller then compares the keys themselves.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from airflow_delta.engine.replay.key_hashes import KeyHasher, UInt64Vector

__all__ = ["RepeatedKeys"]


class RepeatedKeys:
    """Detects keys that probably come more than once. Not for use by several threads at once."""

    def __init__(self) -> None:
        self._hasher = KeyHasher()
        self._met: list[UInt64Vector] = []

    def add(self, keys: pa.ChunkedArray) -> bool:
        """Add keys.

        Args:
            keys: strings without nulls.

        Returns:
            Whether two neighbours seem to be equal: a row that is repeated a million times is
            noticed before the others are read.
        """
        hashes = self._hasher.short_hashes(keys)
        self._met.append(hashes)
        return bool((hashes[1:] == hashes[:-1]).any())

    def any(self) -> bool:
        """Whether a key seems to have come more than once. Call it once, at the end."""
        hashes = np.concatenate([np.empty(0, np.uint64), *self._met])
        self._met.clear()
        hashes.sort()
        return bool((hashes[1:] == hashes[:-1]).any())
