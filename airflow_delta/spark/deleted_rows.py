"""Leave out the rows that deletion vectors delete, in Spark's own scan.

A vector is cut into chunks of 65,536 positions, each a bit mask of 1,024 words. The chunks of all
files travel as one broadcast table; a row finds its chunk by its file's number and its row index,
and its bit by arithmetic. A hash lookup and a shift per row, in generated code; Python sees no row.

The row index is ``_metadata.row_index``, which Spark keeps right whatever row groups it skips.

Spec: PROTOCOL.md, "Deletion Vectors". Reading the vectors is the engine's work.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

__all__ = ["without_deleted_rows"]

CHUNK_BITS = 16
"""A chunk is as many positions as a container of a roaring bitmap."""

_CHUNK_ROWS = 1 << CHUNK_BITS
_WORD_BITS = 6
_CHUNK_SCHEMA = pa.schema(
    [("dv_file", pa.int64()), ("dv_chunk", pa.int64()), ("dv_words", pa.list_(pa.int64()))]
)


def without_deleted_rows(
    spark: SparkSession, rows: DataFrame, deleted: Mapping[int, npt.NDArray[np.int64]]
) -> DataFrame:
    """The rows that no deletion vector names.

    Args:
        spark: the session.
        rows: has the columns ``number``, of the file, and ``row_index``, in the file; both int64.
        deleted: the deleted positions of each file by its number, ascending.
    """
    chunks = spark.createDataFrame(_chunks(deleted))
    found = rows.join(
        F.broadcast(chunks),
        (F.col("number") == F.col("dv_file"))
        & (F.shiftright("row_index", CHUNK_BITS) == F.col("dv_chunk")),
        "left",
    )
    in_chunk = F.col("row_index").bitwiseAND(_CHUNK_ROWS - 1)
    word = F.get("dv_words", F.shiftright(in_chunk, _WORD_BITS).cast("int"))
    bit = F.getbit(word, in_chunk.bitwiseAND((1 << _WORD_BITS) - 1).cast("int"))
    # Null where the row's chunk has no deleted row at all.
    return found.where(F.coalesce(bit, F.lit(0).cast("tinyint")) == 0)


def _chunks(deleted: Mapping[int, npt.NDArray[np.int64]]) -> pa.Table:
    files: list[int] = []
    chunks: list[int] = []
    words: list[npt.NDArray[np.int64]] = []
    for number, positions in deleted.items():
        numbers, starts = np.unique(positions >> CHUNK_BITS, return_index=True)
        # Split at 0, too, so that a vector of no positions has no part: the first part is empty.
        for chunk, part in zip(numbers, np.split(positions, starts)[1:], strict=True):
            files.append(number)
            chunks.append(int(chunk))
            words.append(_mask(part & (_CHUNK_ROWS - 1)))
    return pa.table([files, chunks, words], schema=_CHUNK_SCHEMA)


def _mask(positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    bits = np.zeros(_CHUNK_ROWS, dtype=np.bool_)
    bits[positions] = True
    return np.packbits(bits, bitorder="little").view(np.dtype("<i8"))
