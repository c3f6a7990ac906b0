"""The rows of data files, each with the number of its file, and what is known of the file joined to them.

What files don't hold stands in a broadcast table with a row per file: typed partition values, which rows
are deleted, and whatever else is the same for all rows of a file. A row finds it by the number of its
file, which ``_metadata.file_modification_time`` tells: Spark takes that from the list of files that it is
given, and it is the one fact of a file that we are free in. Numbers that follow one another need no hash:
Spark looks them up in an array, which is many times faster than a join on a long path.

The columns, none of which can be one of the table's:

=================  ====================================================================================
``stored_<name>``  what the files hold, by the name that they have for it
``number``         of the file, from 0, a long
``row_index``      the row's place in the file, from 0, deleted rows included; of parquet only
``file``           the file's URI, encoded, with the scheme of Spark's connector
``file_size``      in bytes, says the log
=================  ====================================================================================

Stored columns stand beside one another rather than in a struct, which Spark would build for every row.
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

__all__ = ["FILE_NUMBER", "ROW_PLACE", "Facts", "file_rows", "stored_column", "with_facts"]

Facts: TypeAlias = Mapping[str, tuple[T.DataType, "pa.Array | pa.ChunkedArray"]]
"""Columns of what is known of files, by name: their types, and a value for each entry."""

FILE_NUMBER = "number"
ROW_PLACE = "row_index"

_ENTRY_FILE = "entry_file"


def stored_column(name: str) -> Column:
    """A column of `file_rows` that the files hold."""
    return F.col(quoted(_stored(name)))


def file_rows(
    spark: SparkSession,
    uris: pa.Array,
    *,
    sizes: pa.Array | pa.ChunkedArray,
    schema: T.StructType,
    table: str,
    file_format: FileFormat = PARQUET,
) -> DataFrame:
    """The rows of files, with the columns that the module tells of.

    Args:
        spark: the session.
        uris: where the files are; see `scan_files`. The place in here is a file's number.
        sizes: in bytes.
        schema: the columns to read, by the names that the files have for them.
        table: the table's location, for messages.
        file_format: how the files are encoded.

    Raises:
        InvalidTableError: see `scan_files`.
        UnsupportedFeatureError: see `scan_files`.
    """
    scan = scan_files(
        spark,
        uris,
        sizes=sizes,
        modified_ms=pa.array(np.arange(len(uris))),
        schema=schema,
        table=table,
        file_format=file_format.provider,
        options=file_format.options,
    )
    # Not the column `_metadata`: the table may have one of that name.
    metadata = scan.metadataColumn("_metadata")
    columns = [
        *(scan[quoted(name)].alias(_stored(name)) for name in schema.names),
        _number(metadata, len(uris)).alias(FILE_NUMBER),
        metadata["file_path"].alias("file"),
        metadata["file_size"].alias("file_size"),
    ]
    if file_format == PARQUET:
        columns.append(metadata["row_index"].alias(ROW_PLACE))
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
    """The rows of files, once for each entry of their file, with what is known of the entry.

    Args:
        spark: the session.
        rows: those of `file_rows`.
        numbers: of which file an entry is, a long. Rows of files without an entry are left out.
        facts: a column each.
        vectors: which rows entries name, by the number of the entry.
        selects: whether an entry with a vector stands for the rows that it names, a column of the facts;
            None where all stand for the others. An entry without one names no row.
    """
    facts = {_ENTRY_FILE: (T.LongType(), numbers), **facts}
    found = RowVectors(vectors, len(numbers)) if vectors else None
    if found:
        facts = {**facts, **found.facts}
    types = T.StructType([T.StructField(name, type_) for name, (type_, _) in facts.items()])
    known = pa.table({name: values for name, (_, values) in facts.items()})
    entries = driver_frame(spark, known, types)
    joined = rows.join(F.broadcast(entries), F.col(FILE_NUMBER) == F.col(_ENTRY_FILE))
    if found:
        named = found.is_named(F.col(ROW_PLACE))
        joined = joined.where(~named if selects is None else named == selects)
    return joined


def _number(metadata: Column, num_files: int) -> Column:
    """The number of a row's file. A time that isn't from our list stops the query: no row may get lost."""
    number = F.unix_millis(metadata["file_modification_time"])
    message = F.concat(F.lit("not in the list of files: "), metadata["file_path"])
    strange = F.raise_error(message).cast("long")
    known = F.when((number >= 0) & (number < num_files), number).otherwise(strange)
    # Never null, though it isn't anyway: else Spark infers a filter for the join, and computes all twice.
    return F.coalesce(known, F.lit(-1))


def _stored(name: str) -> str:
    return f"stored_{name}"
