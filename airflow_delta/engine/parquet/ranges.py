"""Read a Parquet file in few requests: its end with the footer, then ranges that lie close together."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import BinaryIO

from airflow_delta.engine.parquet.fallback import PyarrowFallback

__all__ = ["ParquetBytes"]

_MAGIC = b"PAR1"

# Enough for most footers, and for all of a small file.
_TAIL = 64 << 10

# With a longer footer, or more bytes to read, pyarrow is faster.
_LONGEST_FOOTER = 1 << 20
_MAX_BYTES = 8 << 20

# Ranges with a smaller gap between them are read by one request. (Over a network a request costs as
# much as a megabyte, but storages bridge larger gaps themselves.)
_MAX_GAP = 64 << 10


class ParquetBytes:
    """The bytes of a file.

    Args:
        source: the file.
        size: its size in bytes.

    Attributes:
        footer: the bytes of the footer.

    Raises:
        PyarrowFallback: the file is no Parquet file, is encrypted, or has another size.
    """

    def __init__(self, source: BinaryIO, *, size: int) -> None:
        self._source = source
        self._tail_start = max(size - _TAIL, 0)
        self._tail = self._read(self._tail_start, size - self._tail_start)
        if len(self._tail) < 3 * len(_MAGIC) or not self._tail.endswith(_MAGIC):
            raise PyarrowFallback("the file doesn't end as Parquet does")
        length = int.from_bytes(self._tail[-8:-4], "little")
        self._footer_start = size - 8 - length
        if self._footer_start < len(_MAGIC) or length > _LONGEST_FOOTER:
            raise PyarrowFallback(f"a footer of {length} bytes in a file of {size}")
        if self._footer_start < self._tail_start:
            missing = self._read(self._footer_start, self._tail_start - self._footer_start)
            self._tail, self._tail_start = missing + self._tail, self._footer_start
        self.footer = self._slice(self._footer_start, length)

    def read(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Read some ranges.

        Args:
            ranges: the start and the length of each.

        Returns:
            Their bytes, in the same order.

        Raises:
            PyarrowFallback: a range isn't in the file before the footer, or the ranges are too long.
        """
        if any(
            start < len(_MAGIC) or start + length > self._footer_start for start, length in ranges
        ):
            raise PyarrowFallback("a column chunk lies outside of the data of the file")
        blocks = self._blocks(ranges)
        if sum(end - start for start, end in blocks) > _MAX_BYTES:
            raise PyarrowFallback(f"more than {_MAX_BYTES} bytes are to be read")
        contents = [(start, self._read(start, end - start)) for start, end in blocks]
        contents.append((self._tail_start, self._tail))
        return [_cut(contents, start, length) for start, length in ranges]

    def _blocks(self, ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """The start and end of each block to read, so that the blocks cover all ranges."""
        blocks: list[tuple[int, int]] = []
        for start, length in sorted(ranges):
            end = start + length
            if start >= self._tail_start:
                continue
            if blocks and start - blocks[-1][1] < _MAX_GAP:
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
            raise PyarrowFallback(f"the file has {start + len(data)} bytes, expected more")
        return data


def _cut(contents: list[tuple[int, bytes]], start: int, length: int) -> bytes:
    """Cut a range out of the block that contains it."""
    for offset, data in contents:
        if offset <= start and start + length <= offset + len(data):
            return data[start - offset : start - offset + length]
    raise AssertionError("every range lies in a block")
