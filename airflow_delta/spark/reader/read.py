"""`read_snapshot`: a version of a table as a DataFrame.

The engine says which files the version is made of, and of which of them a condition can be true
(`pruning`); Spark's vectorised parquet reader reads them (`snapshot_reader`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, SparkSession

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.model.schema import StructType
from airflow_delta.spark.reader.columns import checked_columns, quoted
from airflow_delta.spark.reader.metadata_columns import checked_metadata_columns
from airflow_delta.spark.reader.pruning import pruning_expression
from airflow_delta.spark.reader.row_tracking import tracked_rows
from airflow_delta.spark.reader.snapshot_reader import SnapshotReader

if TYPE_CHECKING:
    from airflow_delta.engine.commit.owner import CommitOwner

__all__ = ["read_snapshot"]


def read_snapshot(
    spark: SparkSession,
    uri: str,
    version: int | None = None,
    *,
    timestamp: datetime | str | int | None = None,
    columns: Sequence[str] | None = None,
    predicate: Column | str | None = None,
    with_row_tracking: bool = False,
    metadata_columns: Sequence[str] = (),
    storage_options: Mapping[str, str] | None = None,
    commit_owners: Mapping[str, CommitOwner] | None = None,
    allowed_outside: Sequence[str] = (),
) -> DataFrame:
    """A version of a Delta table as a DataFrame.

    The version is fixed by the call: later commits don't change what the DataFrame gives. Vacuum
    may take its files away, which makes it fail.

    Where the table has column mapping of mode ``id``, the session's
    ``spark.sql.parquet.fieldId.read.enabled`` is set to true, and must stay so until the DataFrame
    has been evaluated.

    Args:
        spark: the session; Spark reads data files with the credentials of its own configuration.
        uri: the table's path or URI.
        version: the version; without version and timestamp it is the newest.
        timestamp: an aware datetime, ISO-8601 with an offset, or epoch milliseconds.
        columns: columns to give, in this order; None for all.
        predicate: which rows to give: a Spark condition over the table's columns and the others that
            are asked for. Files that hold none of them, say partition values and statistics, aren't
            looked at; see `pruning`.
        with_row_tracking: also give each row's ``_row_id`` and ``_row_commit_version``; the table must
            have row tracking enabled.
        metadata_columns: also give these, in this order: any of ``_file_path``, ``_file_size``,
            ``_file_modification_time``, ``_row_index`` and ``_snapshot_version``; see `metadata_columns`.
        storage_options: credentials and settings with which the engine reads the log.
        commit_owners: commit owners of managed tables by name, beside those that are installed.
        allowed_outside: locations outside of the table below which it may read files; see `DeltaTable`.

    Raises:
        InvalidArgumentError: version and timestamp are both given; there is no such column, or the
            table has one of the name of another that is asked for; it has no row tracking; or Spark
            can't reach the location.
        TableNotFoundError: there is no table.
        VersionNotFoundError: the log can't rebuild the version.
        TimestampOutOfRangeError: no version belongs to the time.
        UnsupportedFeatureError: the table needs a feature that the engine, or a file format or name
            that Spark, can't read.
        OutsidePathError: a file is where the table may not read.
        DeltaError: the log is damaged; see `DeltaTable.snapshot`.
        AnalysisException: the condition makes no sense over the columns, says Spark.
    """
    table = DeltaTable(uri, storage_options, commit_owners, allowed_outside=allowed_outside)
    snapshot = table.snapshot(version=version, timestamp=timestamp)
    chosen = checked_columns(columns, snapshot.schema, uri)
    others = checked_metadata_columns(metadata_columns, table=uri)
    tracked = tracked_rows(snapshot) if with_row_tracking else None
    reader = SnapshotReader(spark, table, snapshot)
    other_schema = reader.other_schema(tracked=tracked, metadata_columns=others)
    _check_apart(other_schema.names, snapshot.schema, uri)
    pruning = None
    if predicate is not None:
        pruning = pruning_expression(spark, reader.table_schema, predicate, others=other_schema)
    rows = reader.rows(pruning=pruning, tracked=tracked, metadata_columns=others)
    if predicate is not None:
        rows = rows.where(predicate)
    if chosen is None:
        return rows
    return rows.select([quoted(name) for name in (*chosen, *other_schema.names)])


def _check_apart(others: Sequence[str], schema: StructType, uri: str) -> None:
    """No column comes twice, as Spark tells names apart: whatever their case."""
    own = {name.lower() for name in schema.names}
    clashing = [name for name in others if name.lower() in own]
    if clashing:
        raise InvalidArgumentError(
            f"the table has columns of its own that are called {', '.join(clashing)}: leave out what "
            "would be called the same",
            table=uri,
        )
