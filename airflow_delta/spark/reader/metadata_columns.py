"""Metadata columns: the file and the version that a row comes from.

==============================  =========  ========================================================
column                          type       value
==============================  =========  ========================================================
``_file_path``                  string     the file's URI, encoded, with the scheme of Spark's connector
``_file_size``                  long       the file's size in bytes according to the log
``_file_modification_time``     timestamp  the file's modification time according to the log
``_row_index``                  long       the row's index in the file from 0, counting deleted rows
``_snapshot_version``           long       the version that was read
==============================  =========  ========================================================

Most come from Spark's own ``_metadata`` of the scan; Spark computes only those that are used. The
modification time is joined to the rows, because `file_rows` uses Spark's for the number of the
file.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.spark.reader.file_rows import FILE_ROW_INDEX, Facts

__all__ = [
    "ROW_INDEX",
    "checked_metadata_columns",
    "metadata_column",
    "metadata_facts",
    "metadata_schema",
]

ROW_INDEX = "_row_index"
"""The column that only Parquet files have."""

_MODIFIED = "_file_modification_time"
_MODIFIED_FACT = "modified"

_COLUMNS: Mapping[str, tuple[T.DataType, Callable[[int], Column]]] = {
    "_file_path": (T.StringType(), lambda _: F.col("file")),
    "_file_size": (T.LongType(), lambda _: F.col("file_size")),
    _MODIFIED: (T.TimestampType(), lambda _: F.col(_MODIFIED_FACT)),
    ROW_INDEX: (T.LongType(), lambda _: F.col(FILE_ROW_INDEX)),
    "_snapshot_version": (T.LongType(), lambda version: F.lit(version).cast("long")),
}


def checked_metadata_columns(names: Sequence[str], *, table: str) -> tuple[str, ...]:
    """Check the requested columns, and return each once.

    Raises:
        InvalidArgumentError: there is no such column, or it isn't a list of names.
    """
    if isinstance(names, str):
        raise InvalidArgumentError(
            f"metadata_columns={names!r}: expected a list of names", table=table
        )
    unknown = [name for name in names if name not in _COLUMNS]
    if unknown:
        raise InvalidArgumentError(
            f"unknown metadata_columns {unknown}: expected any of {', '.join(_COLUMNS)}",
            table=table,
        )
    return tuple(dict.fromkeys(names))


def metadata_schema(names: Iterable[str]) -> T.StructType:
    """The names and types of metadata columns."""
    return T.StructType([T.StructField(name, _COLUMNS[name][0]) for name in names])


def metadata_facts(names: Collection[str], adds: pa.Table) -> Facts:
    """The per-file values that the metadata columns need.

    Args:
        names: the requested columns.
        adds: the files, with ``modificationTime``.
    """
    if _MODIFIED not in names:
        return {}
    times = adds["modificationTime"].cast(pa.timestamp("ms", "UTC"))
    return {_MODIFIED_FACT: (T.TimestampType(), times)}


def metadata_column(name: str, *, version: int) -> Column:
    """A metadata column for rows of `file_rows` that have `metadata_facts`.

    Args:
        name: a checked name.
        version: the version that is read.
    """
    return _COLUMNS[name][1](version).alias(name)
