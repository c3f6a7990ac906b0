"""The rows that entries of a change plan stand for, by their deletion vectors, in Spark's own scan.

An entry of a plan leaves out the rows of a vector, or takes only those of one (see
`airflow_delta.engine.changes.file_changes`). Either way it is a set of row positions, cut into words
of 64. The words that aren't empty travel as one broadcast table; a row finds its word by its entry's
number and its row index, and its bit by arithmetic. Both numbers are int32, which Spark joins as one
long: a lookup and a shift per row, in generated code. A vector of few rows costs a word for each, and
a dense one a bit for each.

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

__all__ = ["SELECTS", "rows_by_vectors"]

SELECTS = "selects"
"""The column that says what the vector of a row's entry means: take its rows, or leave them out."""

_WORD_BITS = 6
_WORD_SCHEMA = pa.schema(
    [("vector_entry", pa.int32()), ("vector_place", pa.int32()), ("vector_word", pa.int64())]
)


def rows_by_vectors(
    spark: SparkSession, rows: DataFrame, vectors: Mapping[int, npt.NDArray[np.int64]]
) -> DataFrame:
    """The rows that the vectors of their entries let through.

    Args:
        spark: the session.
        rows: has the columns ``entry``, an int32, ``row_index``, an int64, and `SELECTS`.
        vectors: the positions of each entry's vector, ascending; an entry that isn't there has none.
    """
    words = spark.createDataFrame(_words(vectors))
    place = F.shiftright("row_index", _WORD_BITS).cast("int")
    found = rows.join(
        F.broadcast(words),
        (F.col("entry") == F.col("vector_entry")) & (place == F.col("vector_place")),
        "left",
    )
    bit = F.getbit("vector_word", F.col("row_index").bitwiseAND((1 << _WORD_BITS) - 1).cast("int"))
    # Null where the row's word is empty.
    named = F.coalesce(bit, F.lit(0).cast("tinyint")) == 1
    return found.where(named == F.col(SELECTS))


def _words(vectors: Mapping[int, npt.NDArray[np.int64]]) -> pa.Table:
    """The words of all vectors that aren't empty. A loop over vectors; each is an array."""
    parts = []
    for entry, positions in vectors.items():
        if not positions.size:
            continue
        places, starts = np.unique(positions >> _WORD_BITS, return_index=True)
        bits = np.uint64(1) << (positions & ((1 << _WORD_BITS) - 1)).astype(np.uint64)
        words = np.bitwise_or.reduceat(bits, starts).view(np.int64)
        entries = np.full(places.size, entry, dtype=np.int32)
        columns = (entries, places.astype(np.int32), words)
        parts.append(pa.table([pa.array(column) for column in columns], schema=_WORD_SCHEMA))
    return pa.concat_tables([_WORD_SCHEMA.empty_table(), *parts])
