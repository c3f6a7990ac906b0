"""Read a Parquet file in few requests: its end, which holds the footer, then what lies together."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import BinaryIO

from airflow_delta.engine.parquet.refusals import NotReadHere

__all__ = ["ParquetBytes"]

_MAGIC = b"PAR1"

# Enough for most footers; of a small file it is all.
_TAIL = 64 << 10

# With a longer footer, or with more to read, pyarrow is faster.
_LONGEST_FOOTER = 1 << 20
_MOST_BYTES = 8 << 20

# Less than this lies between what is read at once. Over a network a request costs as much as a
# megabyte; storages see to that, and this is enough for the gaps there are.
_GAP = 64 << 10


class ParquetBytes:
    """The bytes of a file.

    Args:
        source: the file.
        size: its size in bytes.

    Attributes:
        footer: the footer's bytes.

    Raises:
        NotReadHere: it is no Parquet file, encrypted, or of another size.
    """

    def __init__(self, source: BinaryIO, *, size: int) -> None:
        self._source = source
        self._tail_start = max(size - _TAIL, 0)
        self._tail = self._read(self._tail_start, size - self._tail_start)
        if len(self._tail) < 3 * len(_MAGIC) or not self._tail.endswith(_MAGIC):
            raise NotReadHere("the file doesn't end as Parquet does")
        length = int.from_bytes(self._tail[-8:-4], "little")
        self._footer_start = size - 8 - length
        if self._footer_start < len(_MAGIC) or length > _LONGEST_FOOTER:
            raise NotReadHere(f"a footer of {length} bytes in a file of {size}")
        if self._footer_start < self._tail_start:
            missing = self._read(self._footer_start, self._tail_start - self._footer_start)
            self._tail, self._tail_start = missing + self._tail, self._footer_start
        self.footer = self._slice(self._footer_start, length)

    def read(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """The bytes of some ranges, each given by its start and length, in their order.

        Raises:
            NotReadHere: a range isn't in the file before the footer, or they are very long.
        """
        if any(
            start < len(_MAGIC) or start + length > self._footer_start for start, length in ranges
        ):
            raise NotReadHere("a column chunk isn't where chunks can be")
        blocks = self._blocks(ranges)
        if sum(end - start for start, end in blocks) > _MOST_BYTES:
            raise NotReadHere(f"more than {_MOST_BYTES} bytes are to be read")
        contents = [(start, self._read(start, end - start)) for start, end in blocks]
        contents.append((self._tail_start, self._tail))
        return [_cut(contents, start, length) for start, length in ranges]

    def _blocks(self, ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """What to read: from where to where."""
        blocks: list[tuple[int, int]] = []
        for start, length in sorted(ranges):
            end = start + length
            if start >= self._tail_start:
                continue
            if blocks and start - blocks[-1][1] < _GAP:
                blocks[-1] = blocks[-1][0], max(blocks[-1][1], end)
            else:
                blocks.append((start, end))
        return blocks

    def _slice(self, start: int, length: int) -> bytes:
        return self._tail[start - self._tail_start : start - self._tail_start + length]

    def _read(self, start: int, length: int) -> bytes:
        self._source.seek(start, os.SEEK_SET)
        data = self._source.read(length)
        if len(data) != length:
            raise NotReadHere(f"the file has {start + len(data)} bytes, expected more")
        return data


def _cut(contents: list[tuple[int, bytes]], start: int, length: int) -> bytes:
    """A range out of the content that holds it."""
    for offset, data in contents:
        if offset <= start and start + length <= offset + len(data):
            return data[start - offset : start - offset + length]
    raise AssertionError("what is cut out has been read")
