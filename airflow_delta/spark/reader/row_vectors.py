"""Deletion vectors as Spark columns, with which Spark's scan finds deleted rows without Python.

A deletion vector is a set of row indexes. It is a column of the broadcast table with a row per file
(`file_rows`), as an array of arrays (`vector_lists`), so that two array lookups find a row. There
are two forms:

============  =========================================================================================
bitmap        for each 4,096 row indexes 64 words of 64 bits; null if none of the rows is deleted, an
              empty array if all are. A dense vector takes a bit per row of its file, a sparse one half
              a kilobyte per deleted row
index lists   for each 2 ** n row indexes a list of the deleted ones; n is chosen per vector, so that a
              list has two to four members on average. A deleted row takes some twenty bytes
============  =========================================================================================

A lookup in a bitmap is always fast, so index lists are used only if they take much less memory.

The arrays are computed for many vectors at once. Time and memory depend on the stored size of the vectors,
not on the number of deleted rows.

Spec: PROTOCOL.md, "Deletion Vectors".
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

from airflow_delta.engine.deletion_vectors.roaring import to_positions
from airflow_delta.spark.reader.vector_lists import Groups, VectorLists, groups_of

__all__ = ["RowVectors"]

_Longs: TypeAlias = npt.NDArray[np.int64]
_Flags: TypeAlias = npt.NDArray[np.bool_]

_LISTS = T.ArrayType(T.ArrayType(T.LongType()))
_BITS, _INDEXES, _SHIFT = "entry_bits", "entry_indexes", "entry_shift"

_WORD_BITS = 6
_BLOCK_BITS = 12
_MOST_BLOCKS_BITS = 22
"""Files of more than 2 ** 34 rows have larger blocks instead of more."""
_MOST_ROWS = 1 << 44
"""Larger row indexes are ignored: no file has them in practice, and they would take memory."""

_TOGETHER = 2
"""The least average number of members of an index list; at most twice as many."""
_MOST_TOGETHER = 128
"""Spark compares a row with all members of its list; for longer lists a bitmap is faster."""
_CHEAPER = 4
"""Index lists are used if they take so many times less memory than a bitmap."""
_MUCH_CHEAPER = 256
"""If they take so many times less, they are used whatever their length."""
_BYTES_OF_LIST, _BYTES_OF_SLOT = 16, 8
"""Spark's memory for a list without its members, and for its slot in the outer array, even if null."""

_ROWS_AT_A_TIME = 1 << 22
"""The rows that are processed at once; each takes some fifty bytes of memory."""
_MOST_ROWS_IN_RUNS = 1 << 16
"""A vector with more rows in runs is read window by window."""
_WINDOW_BITS = 16
"""A window has the row indexes of one container of a roaring bitmap, or those of one block."""


class RowVectors:
    """The deletion vectors of entries, as columns.

    Args:
        vectors: the vectors by the number of the entry; at least one.
        num_entries: the number of entries.

    Attributes:
        facts: the columns for `is_named`: their types, and a value for each entry.
    """

    def __init__(self, vectors: Mapping[int, BitMap64], num_entries: int) -> None:
        numbers = sorted(vectors)
        last = max((bitmap.max() for bitmap in vectors.values() if bitmap), default=0)
        last = min(last, _MOST_ROWS - 1)
        self._block_bits = max(_BLOCK_BITS, last.bit_length() - _MOST_BLOCKS_BITS)
        bits, lists, shifts = VectorLists(), VectorLists(), []
        for some in _some_at_a_time([vectors[number] for number in numbers]):
            if len(some) == 1 and _is_wide(some[0]):
                bits.add(1, *_bits_of_windows(some[0], self._block_bits))
                shifts.append(np.zeros(1, dtype=np.int64))
                _add_lists(lists, _rows([BitMap64()]), shifts[-1])
                continue
            rows = _rows(some)
            shift, are_lists = self._forms(rows)
            bits.add(rows.num_vectors, *_bits(rows.of_vectors(~are_lists), self._block_bits))
            _add_lists(lists, rows.of_vectors(are_lists), shift)
            shifts.append(shift)
        self.facts: dict[str, tuple[T.DataType, pa.Array]] = {}
        at = np.array(numbers)
        if bits.has_groups:
            self.facts[_BITS] = _LISTS, bits.column(at, num_entries)
        if lists.has_groups:
            shift_of_entry = np.zeros(num_entries, dtype=np.int32)
            shift_of_entry[at] = np.concatenate(shifts)
            self.facts[_INDEXES] = _LISTS, lists.column(at, num_entries)
            self.facts[_SHIFT] = T.IntegerType(), pa.array(shift_of_entry)

    def is_named(self, row_index: Column) -> Column:
        """Whether a row is in the vector of its entry; false if the entry has no vector.

        Args:
            row_index: the row's index in its file, a long: ``_metadata.row_index``, which is right even if
                Spark skips row groups.
        """
        answers = []
        if _BITS in self.facts:
            answers.append(self._is_set(row_index))
        if _INDEXES in self.facts:
            # Row indexes far beyond the last one of a vector overflow an int, and have no group.
            group = F.call_function("shiftright", row_index, F.col(_SHIFT)).try_cast("int")
            answers.append(F.array_contains(F.get(F.col(_INDEXES), group), row_index))
        # Null if the vector has the other form or is empty, and beyond its last row index.
        return F.coalesce(*answers, F.lit(False))

    def _is_set(self, row_index: Column) -> Column:
        block = F.get(F.col(_BITS), F.shiftright(row_index, self._block_bits).cast("int"))
        in_block = row_index.bitwiseAND((1 << self._block_bits) - 1)
        word = F.get(block, F.shiftright(in_block, _WORD_BITS).cast("int"))
        bit = F.getbit(word, row_index.bitwiseAND((1 << _WORD_BITS) - 1).cast("int"))
        return F.when(F.size(block) == 0, F.lit(True)).otherwise(bit == 1)

    def _forms(self, rows: _Rows) -> tuple[_Longs, _Flags]:
        """Choose the group size of each vector as a number of bits, and whether it becomes index lists."""
        size, last = rows.sizes_and_last()
        spread = _TOGETHER * (last + 1) / np.maximum(size, 1)
        shift = np.ceil(np.log2(np.maximum(spread, 1))).astype(np.int64)
        groups = groups_of(rows.vector, rows.row >> shift[rows.vector])
        largest = np.zeros(rows.num_vectors, dtype=np.int64)
        np.maximum.at(largest, groups.vector, groups.size)
        as_lists = 8 * size + _bytes_of_lists(groups, last >> shift)

        blocks = groups_of(rows.vector, rows.row >> self._block_bits)
        in_parts = blocks.vector[blocks.size < 1 << self._block_bits]
        as_bits = _bytes_of_lists(blocks, last >> self._block_bits)
        as_bits += np.bincount(in_parts, minlength=rows.num_vectors) << (self._block_bits - 3)
        are_few = (largest <= _MOST_TOGETHER) & (_CHEAPER * as_lists < as_bits)
        # For example a few neighbours and one far away: a bitmap would have megabytes of nulls in between.
        return shift, are_few | (_MUCH_CHEAPER * as_lists < as_bits)


def _bits(rows: _Rows, block_bits: int) -> tuple[Groups, _Longs]:
    """The bitmap blocks of some vectors with their words; a block that is fully deleted has no words."""
    words = groups_of(rows.vector, rows.row >> _WORD_BITS)
    bit = np.left_shift(np.uint64(1), (rows.row & ((1 << _WORD_BITS) - 1)).astype(np.uint64))
    masks = np.bitwise_or.reduceat(bit, words.start)

    in_block = block_bits - _WORD_BITS
    blocks = groups_of(words.vector, words.group >> in_block)
    has_words = np.add.reduceat(words.size, blocks.start) < 1 << block_bits
    block_of_word = np.repeat(np.arange(blocks.start.size), blocks.size)
    kept = has_words[block_of_word]
    offset = (np.cumsum(has_words) - 1)[block_of_word[kept]] << in_block
    members = np.zeros(np.count_nonzero(has_words) << in_block, dtype=np.uint64)
    members[offset + (words.group[kept] & ((1 << in_block) - 1))] = masks[kept]
    sizes = has_words.astype(np.int64) << in_block
    return blocks._replace(size=sizes), members.view(np.int64)


def _is_wide(bitmap: BitMap64) -> bool:
    """Whether a vector must be read window by window: runs of a few bytes may be millions of rows."""
    if len(bitmap) <= _MOST_ROWS_IN_RUNS:
        return False
    in_runs = bitmap.get_statistics()["n_values_run_containers"]
    return len(bitmap) > _ROWS_AT_A_TIME or in_runs > _MOST_ROWS_IN_RUNS


def _bits_of_windows(bitmap: BitMap64, block_bits: int) -> tuple[Groups, _Longs]:
    """Like `_bits`, for one vector; expands only some windows at a time."""
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
    """Yield the rows of a vector, some windows at a time; append fully deleted windows to ``whole``."""
    some: list[BitMap64] = []
    num_rows = 0
    # At most as many iterations as the vector has containers.
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
    """The row indexes in some vectors, ascending, each with the number of its vector."""

    num_vectors: int
    vector: _Longs
    row: _Longs

    def of_vectors(self, chosen: _Flags) -> _Rows:
        """Keep the rows of the chosen vectors; the others become empty."""
        kept = chosen[self.vector]
        return self._replace(vector=self.vector[kept], row=self.row[kept])

    def sizes_and_last(self) -> tuple[_Longs, _Longs]:
        """The number of rows in each vector, and its last row index, or 0."""
        size = np.bincount(self.vector, minlength=self.num_vectors)
        last = np.zeros(self.num_vectors, dtype=np.int64)
        last[size > 0] = self.row[np.cumsum(size)[size > 0] - 1]
        return size, last


def _some_at_a_time(vectors: Sequence[BitMap64]) -> Iterator[Sequence[BitMap64]]:
    """Split the vectors into batches with a limited number of rows; each wide one is a batch."""
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
    # A Python loop over vectors, because each is an object.
    each = [to_positions(bitmap) for bitmap in vectors]
    row = np.concatenate(each)
    vector = np.repeat(np.arange(len(each)), [rows.size for rows in each])
    kept = row < _MOST_ROWS
    return _Rows(len(each), vector[kept], row[kept])


def _rows_of_one(parts: Sequence[BitMap64]) -> _Rows:
    """The rows of one vector that is given in parts."""
    return _rows(parts)._replace(num_vectors=1, vector=np.zeros(sum(map(len, parts)), np.int64))


def _bytes_of_lists(groups: Groups, last_group: _Longs) -> _Longs:
    """The memory of each vector's lists, without their members."""
    num_groups = np.bincount(groups.vector, minlength=last_group.size)
    return num_groups * _BYTES_OF_LIST + (last_group + 1) * _BYTES_OF_SLOT


def _add_lists(lists: VectorLists, rows: _Rows, shift: _Longs) -> None:
    lists.add(rows.num_vectors, groups_of(rows.vector, rows.row >> shift[rows.vector]), rows.row)
