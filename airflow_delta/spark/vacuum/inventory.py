"""Read an inventory with Spark, instead of a listing; see the engine's ``maintenance/vacuum``.

The inventory of a bucket with a billion objects is many files, which Spark reads in parallel.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.maintenance.vacuum.inventory import (
    COLUMNS,
    check_times,
    select_inventory_files,
)
from airflow_delta.spark.runtime.executor_errors import errors_for_driver

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import Column, DataFrame

__all__ = ["inventory_batches"]

_BATCH = 1 << 16
_SCHEMA = pa.schema(
    [
        ("path", pa.string()),
        ("length", pa.int64()),
        ("isDir", pa.bool_()),
        ("modificationTime", pa.int64()),
    ]
)


def inventory_batches(inventory: DataFrame, *, root: str, now_ms: int) -> RDD[bytes]:
    """Read the files of an inventory that are below the root of a table, in batches like a listing.

    A file that the inventory has twice is there twice.

    Args:
        inventory: rows with at least the columns `COLUMNS`.
        root: the table's location.
        now_ms: the current time, in epoch ms.

    Raises:
        InvalidArgumentError: a column is missing or has the wrong type; or see `check_times`.
    """
    columns = [_typed(inventory, name, root) for name in COLUMNS]

    def convert(rows: Iterable[T.Row]) -> Iterator[bytes]:
        """Convert the rows of one partition to batches of files."""
        with errors_for_driver():
            found = iter(rows)
            # A Python loop over files: PySpark passes the rows of a DataFrame one by one.
            while some := [tuple(row) for row in islice(found, _BATCH)]:
                columns = [
                    pa.array(values, field.type)
                    for values, field in zip(zip(*some, strict=True), _SCHEMA, strict=True)
                ]
                files = select_inventory_files(pa.table(columns, schema=_SCHEMA), root=root)
                check_times(files, table=root, now_ms=now_ms)
                for batch in files.combine_chunks().to_batches():
                    yield batch.serialize().to_pybytes()

    return inventory.select(columns).rdd.mapPartitions(convert)


def _typed(inventory: DataFrame, name: str, table: str) -> Column:
    """Cast a column to the type that the engine needs; times become epoch milliseconds."""
    fields = {field.name: field.dataType for field in inventory.schema}
    if name not in fields:
        raise InvalidArgumentError(
            f"the inventory lacks the column {name}: expected {', '.join(COLUMNS)}, found "
            f"{', '.join(fields) or 'none'}",
            table=table,
        )
    column, type_ = inventory[name], fields[name]
    integral = isinstance(type_, T.IntegralType)
    match name:
        case "path" if isinstance(type_, T.StringType):
            return column
        case "isDir" if isinstance(type_, T.BooleanType):
            return column
        case "length" if integral:
            return column.cast("long").alias(name)
        case "modificationTime" if integral:
            return column.cast("long").alias(name)
        case "modificationTime" if isinstance(type_, T.TimestampType):
            return F.unix_millis(column).alias(name)
        case "modificationTime" if isinstance(type_, T.TimestampNTZType):
            # Interpreted as UTC, whatever the session's zone.
            epoch = F.lit("1970-01-01 00:00:00").cast("timestamp_ntz")
            return F.timestamp_diff("MILLISECOND", epoch, column).alias(name)
    raise InvalidArgumentError(
        f"the column {name} of the inventory has the type {type_.simpleString()}, which can't be "
        "converted",
        table=table,
    )
