"""Deletion vectors as columns: which rows of its file a vector names, told in Spark's own scan.

A vector is a set of row positions. As a value that stands beside the other facts of its file, in the
broadcast table that rows find by their file's number (`file_rows`), it has one of two forms, both arrays
of arrays (`vector_lists`), so that a row's answer is two lookups away, in generated code, without Python:

==========  ===========================================================================================
as bits     for each 4,096 positions 64 words of 64 bits, or null where none is named, or an empty array
            where all are. A dense vector takes a bit for each row of its file; of a sparse one half a
            kilobyte a position
as places   for each 2 ** n positions those that are named; n differs from vector to vector, so that
            two to four are together on average. A position takes some twenty bytes
==========  ===========================================================================================

Bits are as fast wherever the positions are, so they give way only to places that take much less.

What is computed for each position is done for many vectors at once: a table may have hundreds of thousands.
A vector may also name millions of positions in a few bytes, as runs. Such a vector is never expanded: it
is read window by window, and blocks all of whose positions are named are never looked into. So time and
memory follow from the bytes of vectors, not from the number of rows that they state.

The row index is ``_metadata.row_index``, which Spark keeps right whatever row groups it skips.

Spec: PROTOCOL.md, "Deletion Vectors". Reading the vectors is the engine's work.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from airflow_delta.engine.deletion_vectors.roaring import positions
from airflow_delta.spark.reader.vector_lists import Groups, VectorLists, groups_of

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
_MUCH_CHEAPER = 256
"""And if they take so many times less, rows are compared with all places of a group, how many it has."""
_BYTES_OF_LIST, _BYTES_OF_PLACE = 16, 8
"""What Spark needs for a list besides its members, and for its place among others, which null has too."""

_ROWS_AT_A_TIME = 1 << 22
"""Each takes some fifty bytes on the way, besides its vector."""
_MOST_ROWS_IN_RUNS = 1 << 16
"""A vector with more of them is read window by window."""
_WINDOW_BITS = 16
"""A window has the positions of one container of a roaring bitmap, or those of one block."""


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
            if len(some) == 1 and _is_wide(some[0]):
                bits.add(1, *_bits_of_windows(some[0], self._block_bits))
                shifts.append(np.zeros(1, dtype=np.int64))
                _add_places(places, _rows([BitMap64()]), shifts[-1])
                continue
            rows = _rows(some)
            shift, are_places = self._forms(rows)
            bits.add(rows.num_vectors, *_bits(rows.of_vectors(~are_places), self._block_bits))
            _add_places(places, rows.of_vectors(are_places), shift)
            shifts.append(shift)
        self.facts: dict[str, tuple[T.DataType, pa.Array]] = {}
        at = np.array(numbers)
        if bits.has_groups:
            self.facts[_BITS] = _LISTS, bits.column(at, num_entries)
        if places.has_groups:
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
        bit = F.getbit(word, row_index.bitwiseAND((1 << _WORD_BITS) - 1).cast("int"))
        return F.when(F.size(block) == 0, F.lit(True)).otherwise(bit == 1)

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
        in_parts = blocks.vector[blocks.size < 1 << self._block_bits]
        as_bits = _bytes_of_lists(blocks, last >> self._block_bits)
        as_bits += np.bincount(in_parts, minlength=rows.num_vectors) << (self._block_bits - 3)
        are_few = (largest <= _MOST_TOGETHER) & (_CHEAPER * as_places < as_bits)
        # A few neighbours and one that is far away: the nulls between them take megabytes.
        return shift, are_few | (_MUCH_CHEAPER * as_places < as_bits)


def _bits(rows: _Rows, block_bits: int) -> tuple[Groups, _Longs]:
    """The blocks of some vectors, with their words; those have none all of whose rows are named."""
    words = groups_of(rows.vector, rows.row >> _WORD_BITS)
    bit = np.left_shift(np.uint64(1), (rows.row & ((1 << _WORD_BITS) - 1)).astype(np.uint64))
    masks = np.bitwise_or.reduceat(bit, words.start)

    in_block = block_bits - _WORD_BITS
    blocks = groups_of(words.vector, words.group >> in_block)
    has_words = np.add.reduceat(words.size, blocks.start) < 1 << block_bits
    block_of_word = np.repeat(np.arange(blocks.start.size), blocks.size)
    kept = has_words[block_of_word]
    place = (np.cumsum(has_words) - 1)[block_of_word[kept]] << in_block
    members = np.zeros(np.count_nonzero(has_words) << in_block, dtype=np.uint64)
    members[place + (words.group[kept] & ((1 << in_block) - 1))] = masks[kept]
    sizes = has_words.astype(np.int64) << in_block
    return blocks._replace(size=sizes), members.view(np.int64)


def _is_wide(bitmap: BitMap64) -> bool:
    """Whether a vector is to be read window by window."""
    if len(bitmap) <= _MOST_ROWS_IN_RUNS:
        return False
    in_runs = bitmap.get_statistics()["n_values_run_containers"]
    return len(bitmap) > _ROWS_AT_A_TIME or in_runs > _MOST_ROWS_IN_RUNS


def _bits_of_windows(bitmap: BitMap64, block_bits: int) -> tuple[Groups, _Longs]:
    """As `_bits`, of one vector, of which some windows are expanded at a time."""
    window_bits = max(block_bits, _WINDOW_BITS)
    whole: list[int] = []
    parts = [_bits(rows, block_bits) for rows in _rows_of_windows(bitmap, window_bits, whole)]
    blocks_each = np.arange(1 << (window_bits - block_bits), dtype=np.int64)
    first = np.array(whole, dtype=np.int64) << (window_bits - block_bits)
    full = (first[:, np.newaxis] + blocks_each).ravel()
    group = np.concatenate([full, *(groups.group for groups, _ in parts)])
    size = np.concatenate([np.zeros_like(full), *(groups.size for groups, _ in parts)])
    # Full blocks have no members, and the others ascend already.
    order = np.argsort(group, kind="stable")
    members = np.concatenate([np.empty(0, dtype=np.int64), *(words for _, words in parts)])
    nothing = np.zeros_like(group)
    return Groups(nothing, group[order], nothing, size[order]), members


def _rows_of_windows(bitmap: BitMap64, bits: int, whole: list[int]) -> Iterator[_Rows]:
    """The rows of a vector, some windows at a time; windows all of whose rows are named go to ``whole``."""
    some: list[BitMap64] = []
    num_rows = 0
    # A loop over windows: there are no more of them than there are containers in the vector.
    row, last = bitmap.min(), min(bitmap.max(), _MOST_ROWS - 1)
    while row <= last:
        start, end = row >> bits << bits, (row >> bits) + 1 << bits
        found = bitmap.range_cardinality(start, end)
        if found == end - start:
            whole.append(start >> bits)
        else:
            some.append(bitmap & BitMap64(range(start, end)))
            num_rows += found
        if num_rows >= _ROWS_AT_A_TIME:
            yield _rows_of_one(some)
            some, num_rows = [], 0
        row = bitmap.next_set_bit(end) if end <= last else end
    if some:
        yield _rows_of_one(some)


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
    """Vectors in parts of so many rows that what is computed for each row has room; wide ones alone."""
    some: list[BitMap64] = []
    num_rows = 0
    for bitmap in vectors:
        is_wide = _is_wide(bitmap)
        if some and (is_wide or num_rows + len(bitmap) > _ROWS_AT_A_TIME):
            yield some
            some, num_rows = [], 0
        some.append(bitmap)
        num_rows += len(bitmap)
        if is_wide:
            yield some
            some, num_rows = [], 0
    if some:
        yield some


def _rows(vectors: Sequence[BitMap64]) -> _Rows:
    # A loop over vectors, each of which is a set of its own.
    each = [positions(bitmap) for bitmap in vectors]
    row = np.concatenate(each)
    vector = np.repeat(np.arange(len(each)), [rows.size for rows in each])
    kept = row < _MOST_ROWS
    return _Rows(len(each), vector[kept], row[kept])


def _rows_of_one(parts: Sequence[BitMap64]) -> _Rows:
    """The rows of parts of one vector."""
    return _rows(parts)._replace(num_vectors=1, vector=np.zeros(sum(map(len, parts)), np.int64))


def _bytes_of_lists(groups: Groups, last_group: _Longs) -> _Longs:
    """What the lists of each vector take, without their members."""
    num_groups = np.bincount(groups.vector, minlength=last_group.size)
    return num_groups * _BYTES_OF_LIST + (last_group + 1) * _BYTES_OF_PLACE


def _add_places(lists: VectorLists, rows: _Rows, shift: _Longs) -> None:
    lists.add(rows.num_vectors, groups_of(rows.vector, rows.row >> shift[rows.vector]), rows.row)
