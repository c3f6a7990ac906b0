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

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from airflow_delta.engine.changes.row_selection import selected_rows
from airflow_delta.engine.deletion_vectors.read import OpenUri, read_deletion_vector
from airflow_delta.engine.deletion_vectors.roaring import positions
from airflow_delta.engine.model.dv_descriptor import DeletionVectorDescriptor
from airflow_delta.engine.storage.base import Storage

__all__ = ["VECTOR_TYPE", "RowVectors", "VectorSource"]

VECTOR_TYPE = T.ArrayType(T.ArrayType(T.LongType()))
"""The type of a vector as a column."""

_WORD_BITS = 6
_BLOCK_BITS = 12
_MOST_BLOCKS_BITS = 22
"""With files of more than 2 ** 34 rows, blocks are larger instead of more."""
_MOST_ROWS = 1 << 44
"""Positions from here on, which no file has in practice, would take memory and find no row."""

_AT_A_TIME = 16


@dataclass(frozen=True, slots=True)
class VectorSource:
    """Where the vectors of a table are read from.

    Attributes:
        storage: the table's.
        table: its location, for messages.
        open_uri: opens the storage of vectors that lie elsewhere.
    """

    storage: Storage
    table: str
    open_uri: OpenUri

    def read(
        self, deleted: pa.ChunkedArray, selected: pa.ChunkedArray | None = None
    ) -> dict[int, BitMap64]:
        """The rows that entries name, by the number of the entry; those without vectors aren't there.

        Args:
            deleted: the entries' deletion vectors, as in the log, or null.
            selected: their selection vectors, if they may have some: where not null, an entry names its
                rows less those that are deleted (see ``engine.changes.file_changes``).

        Raises:
            DeletionVectorError: a vector can't be read as it is described.
            StorageError: the store failed otherwise.
        """
        has_vector = deleted.is_valid()
        if selected is not None:
            has_vector = pc.or_(has_vector, selected.is_valid())
        numbers = pc.indices_nonzero(has_vector)
        columns = [deleted.take(numbers).to_pylist()]
        columns += [] if selected is None else [selected.take(numbers).to_pylist()]
        # Vector by vector: each is read by itself. Remote stores let one wait, so from them some at a time;
        # from a file system threads would mostly wait for one another, and take three times as long.
        if not self.storage.capabilities.remote:
            return dict(zip(numbers.to_pylist(), map(self._named, *columns), strict=True))
        with ThreadPoolExecutor(_AT_A_TIME) as pool:
            return dict(zip(numbers.to_pylist(), pool.map(self._named, *columns), strict=True))

    def _named(
        self, deleted: dict[str, Any] | None, selected: dict[str, Any] | None = None
    ) -> BitMap64:
        if selected is not None:
            read = partial(selected_rows, selected, deleted, self.storage)
        else:
            descriptor = DeletionVectorDescriptor.from_json(deleted, "deletionVector")
            read = partial(read_deletion_vector, descriptor, self.storage)
        return read(table=self.table, open_uri=self.open_uri)


class RowVectors:
    """The vectors of some entries, each of a file.

    Args:
        vectors: the rows that entries name, by the number of the entry.
    """

    def __init__(self, vectors: Mapping[int, BitMap64]) -> None:
        self._vectors = vectors
        last = max((bitmap.max() for bitmap in vectors.values() if bitmap), default=0)
        last = min(last, _MOST_ROWS - 1)
        self._block_bits = max(_BLOCK_BITS, last.bit_length() - _MOST_BLOCKS_BITS)

    def column(self, num_entries: int) -> pa.Array:
        """The vectors as a column of `VECTOR_TYPE`, null for entries without one."""
        ends = np.zeros(num_entries + 1, dtype=np.int32)
        filled, words = [np.zeros(0, dtype=np.bool_)], [np.zeros(0, dtype=np.int64)]
        # A loop over vectors, each of which is an array of its own.
        for number, bitmap in self._vectors.items():
            blocks, masks = self._blocks(positions(bitmap))
            ends[number + 1] = blocks.size
            filled.append(blocks)
            words.append(masks)
        is_filled = np.concatenate(filled)
        starts = np.concatenate([[0], np.cumsum(is_filled)]) << (self._block_bits - _WORD_BITS)
        inner = pa.ListArray.from_arrays(_offsets(starts, is_filled), np.concatenate(words))
        has_vector = np.zeros(num_entries, dtype=np.bool_)
        has_vector[list(self._vectors)] = True
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

    def _blocks(
        self, rows: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
        """Of one vector, which of its blocks aren't empty, and the words of those."""
        block_rows, rows = 1 << self._block_bits, rows[rows < _MOST_ROWS]
        numbers, of_row = np.unique(rows >> self._block_bits, return_inverse=True)
        filled = np.zeros(numbers[-1] + 1 if numbers.size else 0, dtype=np.bool_)
        filled[numbers] = True
        bits = np.zeros(numbers.size * block_rows, dtype=np.bool_)
        bits[of_row * block_rows + (rows & (block_rows - 1))] = True
        return filled, np.packbits(bits, bitorder="little").view(np.dtype("<i8"))


def _offsets(starts: npt.NDArray[Any], is_valid: npt.NDArray[np.bool_]) -> pa.Array:
    """The offsets of lists, of which some are null."""
    return pa.array(starts.astype(np.int32), mask=np.append(~is_valid, False))
