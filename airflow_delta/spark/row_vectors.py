"""Deletion vectors as columns: which rows of its file a vector names, told in Spark's own scan.

A vector is a set of row positions. It is cut into blocks of 4,096 positions, each 64 words of 64 bits;
blocks without a position are null. So it is an array of arrays, a value that stands beside the other facts
of its file in the broadcast table that rows find by their file's number (`file_facts`): a row's bit is two
lookups in arrays and a shift away, in generated code; no hash, and no Python. A dense vector takes a bit
for each row of its file. A sparse one takes half a kilobyte for each position, and is mostly its list of
empty blocks.

The row index is ``_metadata.row_index``, which Spark keeps right whatever row groups it skips.

Spec: PROTOCOL.md, "Deletion Vectors". Reading the vectors is the engine's work.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from airflow_delta.engine.deletion_vectors.roaring import positions

__all__ = ["VECTOR_TYPE", "RowVectors"]

VECTOR_TYPE = T.ArrayType(T.ArrayType(T.LongType()))
"""The type of a vector as a column."""

_WORD_BITS = 6
_BLOCK_BITS = 12
_MOST_BLOCKS_BITS = 22
"""With files of more than 2 ** 34 rows, blocks are larger instead of more."""
_MOST_ROWS = 1 << 44
"""Positions from here on, which no file has in practice, would take memory and find no row."""

_ROWS_AT_A_TIME = 1 << 22


class RowVectors:
    """The vectors of some entries, each of a file.

    Args:
        vectors: the rows that entries name, by the number of the entry; at least one.
    """

    def __init__(self, vectors: Mapping[int, BitMap64]) -> None:
        self._numbers = sorted(vectors)
        self._vectors = [vectors[number] for number in self._numbers]
        last = max((bitmap.max() for bitmap in self._vectors if bitmap), default=0)
        last = min(last, _MOST_ROWS - 1)
        self._block_bits = max(_BLOCK_BITS, last.bit_length() - _MOST_BLOCKS_BITS)

    def column(self, num_entries: int) -> pa.Array:
        """The vectors as a column of `VECTOR_TYPE`, null for entries without one."""
        parts = [self._blocks(vectors) for vectors in self._some_at_a_time()]
        num_blocks, is_filled, words = map(np.concatenate, zip(*parts, strict=True))
        has_vector = np.zeros(num_entries, dtype=np.bool_)
        has_vector[self._numbers] = True
        ends = np.zeros(num_entries, dtype=np.int64)
        ends[self._numbers] = num_blocks
        word_ends = np.cumsum(is_filled) << (self._block_bits - _WORD_BITS)
        inner = pa.ListArray.from_arrays(_offsets(word_ends, is_filled), words)
        return pa.ListArray.from_arrays(_offsets(np.cumsum(ends), has_vector), inner)

    def names(self, vector: Column, row_index: Column) -> Column:
        """Whether a row is one that its entry's vector names; false where there is none.

        Args:
            vector: the column.
            row_index: the row's place in its file, a long.
        """
        block = F.get(vector, F.shiftright(row_index, self._block_bits).cast("int"))
        in_block = row_index.bitwiseAND((1 << self._block_bits) - 1)
        word = F.get(block, F.shiftright(in_block, _WORD_BITS).cast("int"))
        bit = F.getbit(word, row_index.bitwiseAND((1 << _WORD_BITS) - 1).cast("int"))
        # Null where the block is empty, or beyond the last.
        return F.coalesce(bit, F.lit(0).cast("tinyint")) == 1

    def _some_at_a_time(self) -> Iterator[list[BitMap64]]:
        """The vectors, in parts of so many rows that what is computed for each row has room."""
        ends = np.cumsum([len(bitmap) for bitmap in self._vectors])
        starts = np.flatnonzero(np.diff(ends // _ROWS_AT_A_TIME, prepend=-1))
        for start, end in pairwise([*starts.tolist(), len(self._vectors)]):
            yield self._vectors[start:end]

    def _blocks(
        self, vectors: Sequence[BitMap64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
        """How many blocks each vector has, which of them aren't empty, and the words of those."""
        each = [positions(bitmap) for bitmap in vectors]
        vector = np.repeat(np.arange(len(each)), [rows.size for rows in each])
        rows = np.concatenate(each)
        vector, rows = vector[rows < _MOST_ROWS], rows[rows < _MOST_ROWS]

        vector, word, starts = _runs(vector, rows >> _WORD_BITS)
        bits = np.left_shift(np.uint64(1), (rows & (1 << _WORD_BITS) - 1).astype(np.uint64))
        masks = np.bitwise_or.reduceat(bits, starts) if starts.size else bits

        words_bits = self._block_bits - _WORD_BITS
        vector_of_block, block, starts = _runs(vector, word >> words_bits)
        in_place = np.repeat(np.arange(starts.size), np.diff(starts, append=word.size))
        words = np.zeros(starts.size << words_bits, dtype=np.uint64)
        words[(in_place << words_bits) + (word & (1 << words_bits) - 1)] = masks

        num_blocks = np.zeros(len(each), dtype=np.int64)
        np.maximum.at(num_blocks, vector_of_block, block + 1)
        filled = np.zeros(num_blocks.sum(), dtype=np.bool_)
        filled[(np.cumsum(num_blocks) - num_blocks)[vector_of_block] + block] = True
        return num_blocks, filled, words.view(np.int64)


def _runs(
    vector: npt.NDArray[np.int64], place: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Each place of each vector once, as both ascend, and where its first row is."""
    is_first = np.ones(place.size, dtype=np.bool_)
    is_first[1:] = (np.diff(vector) != 0) | (np.diff(place) != 0)
    starts = np.flatnonzero(is_first)
    return vector[starts], place[starts], starts


def _offsets(ends: npt.NDArray[Any], is_valid: npt.NDArray[np.bool_]) -> pa.Array:
    """The offsets of lists, of which some are null."""
    offsets = np.concatenate([[0], ends]).astype(np.int32)
    return pa.array(offsets, mask=np.append(~is_valid, False))
