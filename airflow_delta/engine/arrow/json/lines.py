"""Cut commits into slices of whole lines, and find the lines of a slice.

A commit has one action per line (PROTOCOL.md, "Delta Log Entries"). It may be larger than memory, or one of
a hundred thousand tiny ones. A `Slice` has the right size for one call of a parser: a part of a large
commit, or many small ones. `Lines` has the offsets of lines as arrays, so that no loop over lines is
needed to select lines, or to find their commits.

The *position* of a line is the byte offset of its start in the stream of all commits. It is unique,
ascends in log order, and can be computed without counting the lines of other slices.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from airflow_delta.engine.arrow.numpy_arrays import BoolVector, Int64Vector
from airflow_delta.engine.errors import CorruptLogError, StorageError
from airflow_delta.engine.model.line_locations import (
    NO_PATHS,
    corrupt_line,
    empty_commit,
    larger_than_memory,
    path_of,
)

__all__ = ["NO_PATHS", "SLICE_BYTES", "Lines", "Piece", "Slice", "cut_slices", "index_lines"]

SLICE_BYTES = 4 << 20
"""The usual size of a slice: large enough for efficiency, small enough to have several in memory."""
_ALONE_BYTES = SLICE_BYTES // 8
_BLOCK_BYTES = 1 << 18
"""The bytes to search for line ends at once, so that the result for each byte stays in the cache."""

_BOM = b"\xef\xbb\xbf"
_NEWLINE, _RETURN = 0x0A, 0x0D


@dataclass(frozen=True, slots=True)
class Piece:
    """Whole lines of one commit: the bytes of its file's ``data`` from ``start`` to before ``stop``."""

    version: int
    path: str
    data: bytes
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Slice:
    """The input of one call of a parser.

    Attributes:
        table: the table's location, for messages.
        position: the position of its first byte.
        pieces: its parts, in log order.
    """

    table: str
    position: int
    pieces: tuple[Piece, ...]

    def text(self) -> memoryview:
        """The bytes of all pieces; a single piece isn't copied."""
        pieces = self.pieces
        if len(pieces) == 1:
            return _content(pieces[0])
        # Every piece except the last one of a commit ends with a line end, so this only adds empty lines.
        return memoryview(b"\n".join([_content(piece) for piece in pieces]))

    def offsets(self) -> list[int]:
        """The offset of each piece in the text."""
        lengths = [piece.stop - piece.start + 1 for piece in self.pieces[:-1]]
        return list(accumulate(lengths, initial=0))

    def larger_than_memory(self) -> StorageError:
        """Create the error about a slice that doesn't fit into memory; it names the largest piece."""
        largest = max(self.pieces, key=lambda piece: piece.stop - piece.start)
        return larger_than_memory(
            largest.stop - largest.start,
            version=largest.version,
            path=largest.path,
            table=self.table,
        )


def _content(piece: Piece) -> memoryview:
    return memoryview(piece.data)[piece.start : piece.stop]


def cut_slices(
    commits: Iterable[tuple[int, bytes]],
    *,
    table: str,
    paths: Mapping[int, str] = NO_PATHS,
    newest_first: bool = False,
) -> Iterator[Slice]:
    """Cut commits, given as (version, content), into slices of about `SLICE_BYTES`.

    A byte order mark at the start of a commit is skipped. A longer line gives a longer slice.

    Args:
        commits: the commits, in log order.
        table: the table's location, for messages.
        paths: by version, the files that don't have the name of a commit, for messages.
        newest_first: commits and slices, also those of one commit, are in the opposite order. Inside a
            slice all is in log order. Positions ascend in log order as well, so they are negative.

    Raises:
        CorruptLogError: a commit is empty: its writer failed, or hasn't finished.
    """
    done_bytes = pending_bytes = 0
    pending: list[Piece] = []

    def _pending_slice() -> Slice:
        if newest_first:
            return Slice(table, -done_bytes - pending_bytes, tuple(reversed(pending)))
        return Slice(table, done_bytes, tuple(pending))

    for version, data in commits:
        path = path_of(version, paths)
        pieces = _pieces(version, path, data, table)
        for piece in reversed(list(pieces)) if newest_first else pieces:
            size = piece.stop - piece.start + 1
            # A large piece becomes a slice by itself, because joining it with others would copy it.
            if pending and (size >= _ALONE_BYTES or pending_bytes + size > SLICE_BYTES):
                yield _pending_slice()
                done_bytes += pending_bytes
                pending, pending_bytes = [], 0
            pending.append(piece)
            pending_bytes += size
    if pending:
        yield _pending_slice()


def _pieces(version: int, path: str, data: bytes, table: str) -> Iterator[Piece]:
    """Cut a commit into parts of whole lines, of similar size, at most about `SLICE_BYTES`."""
    start = len(_BOM) if data.startswith(_BOM) else 0
    end = len(data)
    if start == end:
        raise empty_commit(version=version, path=path, table=table)
    step = -(-(end - start) // -(-(end - start) // SLICE_BYTES))
    while start < end:
        stop = data.find(b"\n", start + step - 1) + 1 or end
        yield Piece(version, path, data, start, stop)
        start = stop


@dataclass(frozen=True, slots=True)
class Lines:
    """Some lines of a slice, in order.

    Attributes:
        source: the slice.
        text: the bytes of the whole slice.
        numbers: the number of each line in the slice, counted from 0.
        starts: the offset of each line's first byte in the text.
        stops: the offset after each line's last byte, without its line end.
    """

    source: Slice
    text: memoryview
    numbers: Int64Vector
    starts: Int64Vector
    stops: Int64Vector

    def __len__(self) -> int:
        return len(self.numbers)

    def select(self, chosen: BoolVector | slice) -> Lines:
        """The lines that a mask or a slice selects."""
        return Lines(
            self.source, self.text, self.numbers[chosen], self.starts[chosen], self.stops[chosen]
        )

    def pick(self, indexes: Sequence[int]) -> Lines:
        """The lines at some indexes, which ascend."""
        chosen = np.asarray(indexes, np.int64)
        return Lines(
            self.source, self.text, self.numbers[chosen], self.starts[chosen], self.stops[chosen]
        )

    def start_with(self, prefix: bytes) -> BoolVector:
        """Whether each line starts with these bytes and has more."""
        matches = self.stops - self.starts > len(prefix)
        starts = self.starts.compress(matches)
        same = np.ones(len(starts), np.bool_)
        # The bytes are compared as numbers of up to 8 bytes. The last number may overlap with the others.
        width = next(width for width in (8, 4, 2, 1) if width <= len(prefix))
        numbers = np.ndarray(
            (max(len(self.text) - width + 1, 0),), f"<u{width}", self.text, strides=(1,)
        )
        for offset in {*range(0, len(prefix) - width, width), len(prefix) - width}:
            expected = int.from_bytes(prefix[offset : offset + width], "little")
            same &= numbers[starts + offset] == expected
        matches[matches] = same
        return matches

    def end_with(self, byte: int) -> BoolVector:
        """Whether each line ends with a byte; none of them is empty."""
        last = np.frombuffer(self.text, np.uint8)[self.stops - 1]
        return np.equal(last, byte)

    def split(self, count: int) -> Iterator[Lines]:
        """Split the lines into up to ``count`` runs of about equal length."""
        step = -(-len(self) // count)
        for first in range(0, len(self), step):
            yield self.select(slice(first, first + step))

    def join(self) -> memoryview:
        """The text of these lines alone; it isn't copied if all of them are neighbours."""
        breaks = np.flatnonzero(np.diff(self.numbers) != 1)
        firsts = self.starts[np.concatenate(([0], breaks + 1))].tolist()
        lasts = self.stops[np.concatenate((breaks, [len(self) - 1]))].tolist()
        text = self.text
        if len(firsts) == 1:
            return text[firsts[0] : lasts[0]]
        # A loop over runs of neighbours, not over lines. A whole file of adds is one run.
        return memoryview(
            b"\n".join([text[first:last] for first, last in zip(firsts, lasts, strict=True)])
        )

    def contents(self) -> Iterator[bytes]:
        """The bytes of each line."""
        text = self.text
        for start, stop in zip(self.starts.tolist(), self.stops.tolist(), strict=True):
            yield bytes(text[start:stop])

    def versions(self) -> Int64Vector:
        """The version of each line's commit."""
        pieces = self.source.pieces
        if len(pieces) == 1:
            return np.full(len(self), pieces[0].version, np.int64)
        versions = np.fromiter((piece.version for piece in pieces), np.int64, len(pieces))
        offsets = np.asarray(self.source.offsets(), np.int64)
        return versions[np.searchsorted(offsets, self.starts, side="right") - 1]

    def positions(self) -> Int64Vector:
        """The position of each line in the log; see the module."""
        return self.starts + self.source.position

    def corrupt(self, index: int, reason: str) -> CorruptLogError:
        """Create the error about one of these lines, with its location.

        Args:
            index: the index of the line among these.
            reason: what was expected, and what was found.
        """
        start, stop = int(self.starts[index]), int(self.stops[index])
        offsets = self.source.offsets()
        which = bisect_right(offsets, start) - 1
        piece = self.source.pieces[which]
        line = piece.data.count(b"\n", 0, piece.start + start - offsets[which]) + 1
        return corrupt_line(
            self.text[start:stop],
            reason,
            version=piece.version,
            path=piece.path,
            line=line,
            table=self.source.table,
        )


def index_lines(source: Slice) -> Lines:
    """Find all lines of a slice. A line ends with a newline, or a carriage return and a newline."""
    text = source.text()
    data: npt.NDArray[Any] = np.frombuffer(text, np.uint8)
    stops = np.concatenate(
        [
            start + np.flatnonzero(data[start : start + _BLOCK_BYTES] == _NEWLINE)
            for start in range(0, len(data), _BLOCK_BYTES)
        ]
    )
    if data[-1] != _NEWLINE:
        stops = np.append(stops, len(data))
    starts = np.empty_like(stops)
    starts[0] = 0
    starts[1:] = stops[:-1] + 1
    returns = (stops > starts) & (data[stops - 1] == _RETURN)
    return Lines(source, text, np.arange(len(stops)), starts, stops - returns)
