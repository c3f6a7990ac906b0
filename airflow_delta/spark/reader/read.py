"""`read_snapshot`: read a version of a table as a DataFrame.

The engine finds the files of the version, without those for which the condition can't be true (`pruning`).
Spark's vectorised Parquet reader reads them (`snapshot_reader`).
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
from airflow_delta.spark.reader.generated_partitions import generated_partitions
from airflow_delta.spark.reader.metadata_columns import checked_metadata_columns
from airflow_delta.spark.reader.pruning import pruning_expression
from airflow_delta.spark.reader.row_tracking import tracked_rows
from airflow_delta.spark.reader.snapshot_reader import SnapshotReader
from airflow_delta.spark.reader.versions_read import newest_version_options
from airflow_delta.spark.runtime.call_sites import without_call_sites

if TYPE_CHECKING:
    from airflow_delta.engine.commit.owner import CommitOwner

__all__ = ["read_snapshot"]


@without_call_sites()
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
    """Read a version of a Delta table as a DataFrame.

    The call decides on the version: later commits don't change the rows of the DataFrame. If a vacuum
    deletes the files, evaluation fails.

    If the table has column mapping mode ``id``, the session's ``spark.sql.parquet.fieldId.read.enabled`` is
    set to true, and must stay true until the DataFrame has been evaluated.

    Args:
        spark: the session; Spark reads data files with the credentials of its own configuration.
        uri: the table's path or URI.
        version: the version; without version and timestamp it is the newest.
        timestamp: an aware datetime, ISO-8601 with an offset, or epoch milliseconds.
        columns: the columns to read, in this order; None for all.
        predicate: a Spark condition that selects rows, over the table's columns and the other requested
            ones. Files are skipped if partition values or statistics exclude all of their rows; see
            `pruning`.
        with_row_tracking: whether to add each row's ``_row_id`` and ``_row_commit_version``; the table must
            have row tracking enabled.
        metadata_columns: other columns to add, in this order: any of ``_file_path``, ``_file_size``,
            ``_file_modification_time``, ``_row_index`` and ``_snapshot_version``; see `metadata_columns`.
        storage_options: credentials and settings with which the engine reads the log.
        commit_owners: commit owners of managed tables by name, beside those that are installed.
        allowed_outside: locations outside of the table below which it may read files; see `DeltaTable`.

    Raises:
        InvalidArgumentError: version and timestamp are both given; there is no such column, or the
            table has a column with the name of another requested one; it has no row tracking; or Spark
            can't reach the location.
        TableNotFoundError: there is no table.
        VersionNotFoundError: the version can't be rebuilt from the log.
        TimestampOutOfRangeError: no version belongs to the time.
        UnsupportedFeatureError: the engine can't read a feature of the table, or Spark a file format or a
            file name.
        OutsidePathError: a file is at a location that the table isn't allowed to read.
        DeltaError: the log is damaged; see `DeltaTable.snapshot`.
        AnalysisException: Spark can't resolve the condition with these columns.
    """
    table = DeltaTable(uri, storage_options, commit_owners, allowed_outside=allowed_outside)
    snapshot = table.snapshot(version=version, timestamp=timestamp)
    chosen = checked_columns(columns, snapshot.schema, uri)
    others = checked_metadata_columns(metadata_columns, table=uri)
    tracked = tracked_rows(snapshot) if with_row_tracking else None
    is_newest = version is None and timestamp is None
    options = newest_version_options(table, snapshot) if is_newest else None
    reader = SnapshotReader(spark, table, snapshot, options)
    other_schema = reader.other_schema(tracked=tracked, metadata_columns=others)
    _check_apart(other_schema.names, snapshot.schema, uri)
    pruning = None
    if predicate is not None:
        pruning = pruning_expression(
            spark,
            reader.table_schema,
            predicate,
            others=other_schema,
            generated=generated_partitions(spark, snapshot),
        )
    rows = reader.rows(pruning=pruning, tracked=tracked, metadata_columns=others)
    if predicate is not None:
        rows = rows.where(predicate)
    if chosen is None:
        return rows
    return rows.select([quoted(name) for name in (*chosen, *other_schema.names)])


def _check_apart(others: Sequence[str], schema: StructType, uri: str) -> None:
    """Check that no added column has the name of a table's column, ignoring case as Spark does."""
    own = {name.lower() for name in schema.names}
    clashing = [name for name in others if name.lower() in own]
    if clashing:
        raise InvalidArgumentError(
            f"the table has columns with the names {', '.join(clashing)}: don't request the added columns "
            "with these names",
            table=uri,
        )
