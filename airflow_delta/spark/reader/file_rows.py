"""Read the rows of data files, and join them with per-file values.

A broadcast table with a row per file has what the files don't contain: partition values, deletion
vectors and other values that are the same for all rows of a file. Rows are joined to it by the
number of their file: Spark looks up contiguous numbers in an array, many times faster than it joins
on a long path.

The columns have names that no column of the table can have:

=================  ====================================================================================
``stored_<name>``  a column of the file, with its physical name
``number``         the number of the file, from 0, a long
``row_index``      the index of the row in the file, from 0, counting deleted rows; only for Parquet
``file``           the file's URI, encoded, with the scheme of Spark's connector
``file_size``      the file's size in bytes according to the log
``is_live``        true; only after the join
=================  ====================================================================================

Spark filters the rows of files as early as it can. So it evaluates a condition on stored columns also for
rows that the join or a deletion vector leaves out. It can't do so if the condition needs ``is_live``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from airflow_delta.spark.reader.columns import quoted
from airflow_delta.spark.reader.driver_tables import driver_frame
from airflow_delta.spark.reader.file_list import scan_files
from airflow_delta.spark.reader.other_formats import PARQUET, FileFormat
from airflow_delta.spark.reader.row_vectors import RowVectors

__all__ = [
    "FILE_NUMBER",
    "FILE_ROW_INDEX",
    "IS_LIVE",
    "Facts",
    "file_rows",
    "stored_column",
    "with_facts",
]

Facts: TypeAlias = Mapping[str, tuple[T.DataType, "pa.Array | pa.ChunkedArray"]]
"""Columns of the broadcast table, by name: the type, and a value for each entry."""

FILE_NUMBER = "number"
FILE_ROW_INDEX = "row_index"
IS_LIVE = "is_live"

_ENTRY_FILE = "entry_file"
_IS_ENTRY = "is_entry"


def stored_column(name: str) -> Column:
    """The column of `file_rows` for a column of the files."""
    return F.col(quoted(_stored(name)))


def file_rows(
    spark: SparkSession,
    uris: pa.Array,
    *,
    sizes: pa.Array | pa.ChunkedArray,
    schema: T.StructType,
    table: str,
    file_format: FileFormat = PARQUET,
    options: Mapping[str, str] | None = None,
    read_in: SparkSession | None = None,
) -> DataFrame:
    """Read the rows of files, with the columns in the module's docstring.

    Args:
        spark: the session.
        uris: the URIs of the files; see `scan_files`. A file's number is its index in this array.
        sizes: their sizes in bytes.
        schema: the columns to read, by their physical names.
        table: the table's location, for messages.
        file_format: the format of the files.
        options: further options of Spark's reader.
        read_in: the session whose settings apply to reading; None for ``spark``.

    Raises:
        InvalidTableError: see `scan_files`.
        UnsupportedFeatureError: see `scan_files`.
    """
    scan = scan_files(
        spark,
        uris,
        sizes=sizes,
        # Spark offers no number of a file. So it is the file's modification time in the list of files.
        modified_ms=pa.array(np.arange(len(uris))),
        schema=schema,
        table=table,
        file_format=file_format.provider,
        options={**(options or {}), **file_format.options},
        read_in=read_in,
    )
    # Not the column `_metadata`: the table may have one of that name.
    metadata = scan.metadataColumn("_metadata")
    columns = [
        # Not in a struct, which Spark would build for every row.
        # By F.col: the session may take quoted names in DataFrame[...] for regular expressions.
        *(F.col(quoted(name)).alias(_stored(name)) for name in schema.names),
        _number(metadata, len(uris)).alias(FILE_NUMBER),
        metadata["file_path"].alias("file"),
        metadata["file_size"].alias("file_size"),
    ]
    if file_format == PARQUET:
        columns.append(metadata["row_index"].alias(FILE_ROW_INDEX))
    return scan.select(columns)


def with_facts(
    spark: SparkSession,
    rows: DataFrame,
    numbers: pa.Array,
    facts: Facts,
    *,
    vectors: Mapping[int, BitMap64] | None = None,
    selects: Column | None = None,
) -> DataFrame:
    """Join the rows of files with entries, of which a file may have several.

    Args:
        spark: the session.
        rows: the rows, from `file_rows`.
        numbers: the file number of each entry, a long. Rows of files without an entry are left out.
        facts: the columns of the entries.
        vectors: deletion vectors by the number of the entry.
        selects: a column of the facts: whether the entry selects the rows in its vector, instead of the
            others. None: all entries select the others. An entry without a vector has an empty one.
    """
    facts = {
        _ENTRY_FILE: (T.LongType(), numbers),
        # The condition of the join can't say that: from its equality Spark infers filters of the files.
        _IS_ENTRY: (T.BooleanType(), pa.repeat(pa.scalar(True), len(numbers))),
        **facts,
    }
    found = RowVectors(vectors, len(numbers)) if vectors else None
    if found:
        facts = {**facts, **found.facts}
    types = T.StructType([T.StructField(name, type_) for name, (type_, _) in facts.items()])
    known = pa.table({name: values for name, (_, values) in facts.items()})
    entries = driver_frame(spark, known, types)
    has_entry = F.col(FILE_NUMBER) == F.col(_ENTRY_FILE)
    joined = rows.join(F.broadcast(entries), has_entry)
    if not found:
        return joined.withColumn(IS_LIVE, F.col(_IS_ENTRY))
    named = found.is_named(F.col(FILE_ROW_INDEX))
    is_live = ~named if selects is None else named == selects
    return joined.withColumn(IS_LIVE, is_live).where(F.col(IS_LIVE))


def _number(metadata: Column, num_files: int) -> Column:
    """The number of a row's file; a time that isn't in our list fails the query, so no row is lost."""
    number = F.unix_millis(metadata["file_modification_time"])
    message = F.concat(F.lit("not in the list of files: "), metadata["file_path"])
    unknown = F.raise_error(message).cast("long")
    known = F.when((number >= 0) & (number < num_files), number).otherwise(unknown)
    # Makes the column non-nullable for Spark: otherwise it infers a filter for the join, and computes the
    # column twice.
    return F.coalesce(known, F.lit(-1))


def _stored(name: str) -> str:
    return f"stored_{name}"
