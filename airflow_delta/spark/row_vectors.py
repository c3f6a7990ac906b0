"""Deletion vectors as columns: which rows of its file a vector names, told in Spark's own scan.

A vector is a set of row positions. As a value that stands beside the other facts of its file, in the
broadcast table that rows find by their file's number (`file_rows`), it has one of two forms, both arrays
of arrays (`vector_lists`), so that a row's answer is two lookups away, in generated code, without Python:

==========  ===========================================================================================
as bits     for each 4,096 positions 64 words of 64 bits, or null where none is named. A dense vector
            takes a bit for each row of its file; of a sparse one half a kilobyte a position
as places   for each 2 ** n positions those that are named; n differs from vector to vector, so that
            two to four are together on average. A position takes some twenty bytes
==========  ===========================================================================================

Bits are as fast wherever the positions are, so they give way only to places that take much less.

What is computed for each position is done for many vectors at once: a table may have hundreds of thousands.

The row index is ``_metadata.row_index``, which Spark keeps right whatever row groups it skips.

Spec: PROTOCOL.md, "Deletion Vectors". Reading the vectors is the engine's work.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from airflow_delta.engine.deletion_vectors.roaring import positions
from airflow_delta.spark.vector_lists import Groups, VectorLists, groups_of

__all__ = ["RowVectors"]

_Longs: TypeAlias = npt.NDArray[np.int64]
_Flags: TypeAlias = npt.NDArray[np.bool_]

_LISTS = T.ArrayType(T.ArrayType(T.LongType()))
_BITS, _PLACES, _SHIFT = "entry_bits", "entry_places", "entry_shift"

_WORD_BITS = 6
_BLOCK_BITS = 12
_MOST_BLOCKS_BITS = 22
"""With files of more than 2 ** 34 rows, blocks are larger instead of more."""
_MOST_ROWS = 1 << 44
"""Positions from here on, which no file has in practice, would take memory and find no row."""

_TOGETHER = 2
"""So many places share a group on average, or up to twice as many."""
_MOST_TOGETHER = 128
"""A row is compared with all places of its group: rows among more than these are told faster by bits."""
_CHEAPER = 4
"""So many times less than bits places have to take."""
_BYTES_OF_LIST, _BYTES_OF_PLACE = 16, 8
"""What Spark needs for a list besides its members, and for its place among others, which null has too."""

_ROWS_AT_A_TIME = 1 << 22
"""Each takes some fifty bytes on the way, besides its vector."""


class RowVectors:
    """The vectors of some entries, each of a file.

    Args:
        vectors: the rows that entries name, by the number of the entry; at least one.
        num_entries: how many entries there are.

    Attributes:
        facts: columns for `is_named`: their types, and their values for each entry.
    """

    def __init__(self, vectors: Mapping[int, BitMap64], num_entries: int) -> None:
        numbers = sorted(vectors)
        last = max((bitmap.max() for bitmap in vectors.values() if bitmap), default=0)
        last = min(last, _MOST_ROWS - 1)
        self._block_bits = max(_BLOCK_BITS, last.bit_length() - _MOST_BLOCKS_BITS)
        bits, places, shifts = VectorLists(), VectorLists(), []
        for some in _some_at_a_time([vectors[number] for number in numbers]):
            rows = _rows(some)
            shift, are_places = self._forms(rows)
            self._add_bits(bits, rows.of_vectors(~are_places))
            _add_places(places, rows.of_vectors(are_places), shift)
            shifts.append(shift)
        self.facts: dict[str, tuple[T.DataType, pa.Array]] = {}
        at = np.array(numbers)
        if bits.has_members:
            self.facts[_BITS] = _LISTS, bits.column(at, num_entries)
        if places.has_members:
            shift_of_entry = np.zeros(num_entries, dtype=np.int32)
            shift_of_entry[at] = np.concatenate(shifts)
            self.facts[_PLACES] = _LISTS, places.column(at, num_entries)
            self.facts[_SHIFT] = T.IntegerType(), pa.array(shift_of_entry)

    def is_named(self, row_index: Column) -> Column:
        """Whether a row is one that its entry's vector names; false where there is none.

        Args:
            row_index: the row's place in its file, a long.
        """
        answers = []
        if _BITS in self.facts:
            answers.append(self._is_set(row_index))
        if _PLACES in self.facts:
            # Rows far behind a vector of few small ones have no group.
            group = F.call_function("shiftright", row_index, F.col(_SHIFT)).try_cast("int")
            answers.append(F.array_contains(F.get(F.col(_PLACES), group), row_index))
        # Null where the vector has the other form, where it names none, and beyond its last.
        return F.coalesce(*answers, F.lit(False))

    def _is_set(self, row_index: Column) -> Column:
        block = F.get(F.col(_BITS), F.shiftright(row_index, self._block_bits).cast("int"))
        in_block = row_index.bitwiseAND((1 << self._block_bits) - 1)
        word = F.get(block, F.shiftright(in_block, _WORD_BITS).cast("int"))
        return F.getbit(word, row_index.bitwiseAND((1 << _WORD_BITS) - 1).cast("int")) == 1

    def _forms(self, rows: _Rows) -> tuple[_Longs, _Flags]:
        """By how many bits rows are shifted to be in groups of places; and which vectors are places."""
        size, last = rows.sizes_and_last()
        spread = _TOGETHER * (last + 1) / np.maximum(size, 1)
        shift = np.ceil(np.log2(np.maximum(spread, 1))).astype(np.int64)
        groups = groups_of(rows.vector, rows.row >> shift[rows.vector])
        largest = np.zeros(rows.num_vectors, dtype=np.int64)
        np.maximum.at(largest, groups.vector, groups.size)
        as_places = 8 * size + _bytes_of_lists(groups, last >> shift)

        blocks = groups_of(rows.vector, rows.row >> self._block_bits)
        block_bytes = 1 << (self._block_bits - 3)
        as_bits = _bytes_of_lists(blocks, last >> self._block_bits, block_bytes)
        return shift, (largest <= _MOST_TOGETHER) & (_CHEAPER * as_places < as_bits)

    def _add_bits(self, lists: VectorLists, rows: _Rows) -> None:
        words = groups_of(rows.vector, rows.row >> _WORD_BITS)
        bit = np.left_shift(np.uint64(1), (rows.row & ((1 << _WORD_BITS) - 1)).astype(np.uint64))
        masks = np.bitwise_or.reduceat(bit, words.start)

        in_block = self._block_bits - _WORD_BITS
        blocks = groups_of(words.vector, words.group >> in_block)
        block_of_word = np.repeat(np.arange(blocks.start.size), blocks.size)
        members = np.zeros(blocks.start.size << in_block, dtype=np.uint64)
        members[(block_of_word << in_block) + (words.group & ((1 << in_block) - 1))] = masks
        sizes = np.full_like(blocks.size, 1 << in_block)
        lists.add(rows.num_vectors, blocks._replace(size=sizes), members.view(np.int64))


class _Rows(NamedTuple):
    """The rows that some vectors name, ascending, each with the number of its vector."""

    num_vectors: int
    vector: _Longs
    row: _Longs

    def of_vectors(self, chosen: _Flags) -> _Rows:
        """Those of some of the vectors; the others name none."""
        kept = chosen[self.vector]
        return self._replace(vector=self.vector[kept], row=self.row[kept])

    def sizes_and_last(self) -> tuple[_Longs, _Longs]:
        """How many rows each vector names, and the last of them, or 0."""
        size = np.bincount(self.vector, minlength=self.num_vectors)
        last = np.zeros(self.num_vectors, dtype=np.int64)
        last[size > 0] = self.row[np.cumsum(size)[size > 0] - 1]
        return size, last


def _some_at_a_time(vectors: Sequence[BitMap64]) -> Iterator[Sequence[BitMap64]]:
    """Vectors in parts of so many rows that what is computed for each row has room."""
    ends = np.cumsum([len(bitmap) for bitmap in vectors])
    starts = np.flatnonzero(np.diff(ends // _ROWS_AT_A_TIME, prepend=-1))
    for start, end in pairwise([*starts.tolist(), len(vectors)]):
        yield vectors[start:end]


def _rows(vectors: Sequence[BitMap64]) -> _Rows:
    # A loop over vectors, each of which is a set of its own.
    each = [positions(bitmap) for bitmap in vectors]
    row = np.concatenate(each)
    vector = np.repeat(np.arange(len(each)), [rows.size for rows in each])
    kept = row < _MOST_ROWS
    return _Rows(len(each), vector[kept], row[kept])


def _bytes_of_lists(groups: Groups, last_group: _Longs, bytes_each: int = 0) -> _Longs:
    """What the lists of each vector take."""
    num_groups = np.bincount(groups.vector, minlength=last_group.size)
    return num_groups * (_BYTES_OF_LIST + bytes_each) + (last_group + 1) * _BYTES_OF_PLACE


def _add_places(lists: VectorLists, rows: _Rows, shift: _Longs) -> None:
    lists.add(rows.num_vectors, groups_of(rows.vector, rows.row >> shift[rows.vector]), rows.row)
