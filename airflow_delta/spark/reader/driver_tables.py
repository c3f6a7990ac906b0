"""Tables of the driver as DataFrames, whatever their size.

Spark hands such a table to tasks, cut into as many parts as there are cores by default, and the message
that brings a task to an executor may have 128 MiB (``spark.rpc.message.maxSize``): on a cluster a larger
task fails the query. So a large table is put together from smaller ones, each of which makes tasks of
its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T  # noqa: N812

__all__ = ["driver_frame"]

_MESSAGE_SIZE = "spark.rpc.message.maxSize"
_MESSAGE_MIB = 128
_ROOM = 8
"""Spark's rows may take several times what Arrow's columns take, where lists are short."""


def driver_frame(spark: SparkSession, table: pa.Table, types: T.StructType) -> DataFrame:
    """A DataFrame of the rows of a table.

    Args:
        spark: the session.
        table: the rows.
        types: of the columns. By itself Spark takes a time without zone for one of the session's.
    """
    mebibytes = spark.conf.get(_MESSAGE_SIZE, None) or _MESSAGE_MIB
    most_bytes = (int(mebibytes) << 20) // _ROOM
    parts = [spark.createDataFrame(part, types) for part in _parts(table, most_bytes)]
    return reduce(DataFrame.union, parts)


def _parts(table: pa.Table, most_bytes: int) -> Iterator[pa.Table]:
    """The table in parts of so many bytes, or of one row, where that takes more."""
    # Each value takes eight bytes at least in Spark's rows, whatever it takes here.
    size = table.nbytes + 8 * table.num_rows * table.num_columns
    if table.num_rows < 2 or size <= most_bytes:
        yield table
        return
    middle = table.num_rows // 2
    yield from _parts(table.slice(0, middle), most_bytes)
    yield from _parts(table.slice(middle), most_bytes)
