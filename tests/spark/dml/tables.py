"""What tests of changed rows look at: the rows and files of a table, and what Spark still stores."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_delta.spark import read_snapshot

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

__all__ = ["all_files", "rows_in", "stored_bytes"]


def rows_in(spark: SparkSession, table: Path) -> list[tuple[Any, ...]]:
    """The rows of a table, also those in structs, as tuples, sorted by their texts."""
    found = [_plain(row) for row in read_snapshot(spark, str(table)).collect()]
    return sorted(found, key=str)


def _plain(row: Row | Any) -> Any:
    return tuple(map(_plain, row)) if isinstance(row, tuple) else row


def all_files(table: Path) -> set[str]:
    """The files of a table, except for those of Hadoop's checksums."""
    return {str(path) for path in table.rglob("*") if path.is_file() and path.suffix != ".crc"}


def stored_bytes(spark: SparkSession) -> int:
    """The bytes that the session stores of evaluated rows."""
    context: Any = spark.sparkContext._jsc
    return sum(info.memSize() + info.diskSize() for info in context.sc().getRDDStorageInfo())
