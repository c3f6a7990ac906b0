"""Filter the rows of the table before they are joined with the source, by the keys that the source has.

A merge usually changes few of the rows that it reads. To look up each of them in a hash table of the source
takes longer than to read it, if the hash table is larger than a processor's caches. If the source is too
large to be sent to the executors, all rows of the table would even be shuffled.

So a bit array is sent to the executors first, a Bloom filter with one hash function: each row of the source
sets the bit whose number is the hash of its keys. A row of the table whose bit isn't set has no match. Of
the rows without a match, a few in a hundred pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from airflow_delta.spark.reader.driver_tables import driver_frame
from airflow_delta.spark.reader.snapshot_reader import OWN_PREFIX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_delta.spark.dml.merge.condition import MergeCondition
    from airflow_delta.spark.dml.merge.source import MergeSource

__all__ = ["is_filter_useful", "rows_with_keys"]

_LEAST_TABLE_BYTES = 64 << 20
"""Joining files of fewer bytes takes less time than making the filter."""

_MOST_KEYS = 4 << 20
"""The hashes of so many rows are collected, eight bytes for each."""

_BITS_FOR_KEY = 32
_LEAST_BITS, _MOST_BITS = 1 << 16, 1 << 26

_BITS = f"{OWN_PREFIX}key_bits"


def is_filter_useful(table_bytes: int, num_keys: int) -> bool:
    """Whether the filter takes less time than it saves.

    Args:
        table_bytes: the size of the files whose rows are joined.
        num_keys: the number of rows of the source that can match.
    """
    return table_bytes >= _LEAST_TABLE_BYTES and num_keys <= _MOST_KEYS


def rows_with_keys(
    rows: DataFrame, source: MergeSource, condition: MergeCondition, num_keys: int
) -> DataFrame:
    """Leave out most rows of the table that have no match.

    Args:
        rows: rows of the table.
        source: the source.
        condition: the condition of the merge, resolved for these rows.
        num_keys: the number of rows of the source that can match.

    Returns:
        The rows; all of them if the condition has no key that is a column of the table.

    Raises:
        PySparkException: Spark's errors.
    """
    # An expression could fail in rows that don't match.
    keys = [key for key in condition.keys if key.is_column]
    if not keys:
        return rows
    num_bits = _MOST_BITS
    while num_bits > _LEAST_BITS and num_bits // 2 >= _BITS_FOR_KEY * num_keys:
        num_bits //= 2
    matchable = source.rows.where(condition.of_source)
    for key in keys:
        if not key.is_null_safe:
            matchable = matchable.where(key.other.isNotNull())
    numbers = matchable.select(_bit_number([key.other for key in keys], num_bits).alias("bit"))
    is_set = np.zeros(num_bits, dtype=bool)
    is_set[numbers.toArrow()["bit"].to_numpy()] = True
    words = np.packbits(is_set, bitorder="little").view("<i8")
    types = T.StructType([T.StructField(_BITS, T.ArrayType(T.LongType()))])
    sent = driver_frame(source.spark, pa.table({_BITS: pa.array([words])}), types)
    number = _bit_number([key.own for key in keys], num_bits)
    word = F.get(F.col(_BITS), F.shiftright(number, 6))
    bit = F.getbit(word, number.bitwiseAND(F.lit(63)).cast("int"))
    return rows.crossJoin(F.broadcast(sent)).where(bit == 1).drop(_BITS)


def _bit_number(keys: Sequence[Column], num_bits: int) -> Column:
    return F.xxhash64(*keys).bitwiseAND(F.lit(num_bits - 1))
