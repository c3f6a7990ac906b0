"""Convert Arrow tables of the driver to DataFrames, whatever their size.

Spark sends such a table to executors as tasks, one per core by default. The message of a task is
limited to 128 MiB (``spark.rpc.message.maxSize``); a larger one fails the query on a cluster. So a
large table becomes the union of smaller DataFrames, each with tasks of its own.
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
"""Spark's rows may need several times the memory of Arrow's columns, especially with short lists."""


def driver_frame(spark: SparkSession, table: pa.Table, types: T.StructType) -> DataFrame:
    """Create a DataFrame with the rows of a table.

    Args:
        spark: the session.
        table: the rows.
        types: the types of the columns. Spark's inference treats times without zone as times of the
            session's zone.
    """
    mebibytes = spark.conf.get(_MESSAGE_SIZE, None) or _MESSAGE_MIB
    most_bytes = (int(mebibytes) << 20) // _ROOM
    parts = [spark.createDataFrame(part, types) for part in _parts(table, most_bytes)]
    return reduce(DataFrame.union, parts)


def _parts(table: pa.Table, most_bytes: int) -> Iterator[pa.Table]:
    """Split the table into parts of at most so many bytes, but of at least one row."""
    # A value takes at least eight bytes in Spark's rows.
    size = table.nbytes + 8 * table.num_rows * table.num_columns
    if table.num_rows < 2 or size <= most_bytes:
        yield table
        return
    middle = table.num_rows // 2
    yield from _parts(table.slice(0, middle), most_bytes)
    yield from _parts(table.slice(middle), most_bytes)
