"""The source of a merge: evaluated once, and stored by Spark until the merge is done.

The merge reads the source several times: for the range of its keys, for matches, and for the rows to be
inserted. A source that returned other rows each time, such as a query of a table that changes, would
insert rows that were matched. So its rows are stored on the executors. If an executor is lost, the merge
fails, and changes nothing.

Stored rows that were read from the table of the merge itself are those of one version. They must not decide
about another one, so such a merge isn't repeated after a lost race (`MergeSource.check_newest`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from airflow_delta.engine.errors import CommitConflictError, InvalidArgumentError
from airflow_delta.engine.model.schema import StructType
from airflow_delta.spark.dml.row_store import RowStore, stored_size
from airflow_delta.spark.reader.snapshot_reader import OWN_PREFIX
from airflow_delta.spark.reader.versions_read import newest_versions_read
from airflow_delta.spark.writer.rows_schema import check_distinct_names, new_table_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_delta.engine import DeltaTable, OptimisticTransaction

__all__ = ["SOURCE_ROW", "MergeSource", "store_source"]

SOURCE_ROW = f"{OWN_PREFIX}source_row"
"""The column of the stored source with a number for each row."""

_MOST_BROADCAST = 64 << 20
"""A source of up to so many bytes is sent to all executors, so that the table needn't be shuffled."""


@dataclass(frozen=True, slots=True)
class MergeSource:
    """The stored rows of a source.

    Attributes:
        spark: the session.
        rows: the rows, with the column `SOURCE_ROW`.
        given: the source as the user has given it.
        size_in_bytes: how much room they take in Spark's memory and on its disks.
        versions: the versions of the merge's own table that they were read from as its newest.
    """

    spark: SparkSession
    rows: DataFrame
    given: DataFrame
    size_in_bytes: int
    versions: frozenset[int] = frozenset()

    @property
    def schema(self) -> StructType:
        """The schema of the source, all nullable, for a table that gets its columns.

        Raises:
            InvalidTableError: a column's type is none of the protocol's.
        """
        return new_table_schema(self.given)

    def check_newest(self, transaction: OptimisticTransaction) -> None:
        """Check that the rows are as if they had been read by the transaction, and record the read.

        Args:
            transaction: the transaction of the merge.

        Raises:
            CommitConflictError: they were read from another version of the table. Facts: version.
        """
        if not self.versions:
            return
        base = transaction.base
        if stale := sorted(self.versions - {base.version}):
            raise CommitConflictError(
                f"the source was read from version {stale[0]} of the table itself, and the newest version "
                f"is {base.version}: read the source again, or, if the rows of version {stale[0]} are "
                "meant, give read_snapshot that version",
                table=base.table,
                version=base.version,
            )
        # Its filters are unknown here: a commit that changes any row may change the source.
        transaction.read_table()

    def for_join(self) -> DataFrame:
        """The rows as the smaller side of a join: sent to all executors if that is cheap."""
        threshold = str(self.spark.conf.get("spark.sql.autoBroadcastJoinThreshold"))
        is_sent = self.size_in_bytes <= _MOST_BROADCAST and not threshold.startswith("-")
        return F.broadcast(self.rows) if is_sent else self.rows


def store_source(
    spark: SparkSession, source: DataFrame | Any, store: RowStore, table: DeltaTable
) -> MergeSource:
    """Evaluate a source, and store its rows.

    Args:
        spark: the session.
        source: the source of a merge.
        store: stores the rows.
        table: the table of the merge.

    Raises:
        InvalidArgumentError: it is no DataFrame, or a stream, or has a column whose name begins with
            `OWN_PREFIX`.
        ConstraintViolationError: names of its columns differ in case alone.
        StorageError: Spark can't read a file of it.
        PySparkException: Spark's other errors.
    """
    if not isinstance(source, DataFrame):
        raise InvalidArgumentError(
            f"source: expected a DataFrame of Spark, found {type(source).__name__}", table=table.uri
        )
    if source.isStreaming:
        raise InvalidArgumentError(
            "the source is a stream: merge its batches by foreachBatch of its writer, each with a txn of "
            "its own",
            table=table.uri,
        )
    if taken := [name for name in source.columns if name.lower().startswith(OWN_PREFIX)]:
        raise InvalidArgumentError(
            f"the source has the columns {taken}, and names that begin with {OWN_PREFIX} are needed for "
            "the merge: rename them",
            table=table.uri,
        )
    check_distinct_names(source)
    numbered = source.withColumn(SOURCE_ROW, F.monotonically_increasing_id())
    rows = store.store(numbered)
    versions = newest_versions_read(source, table)
    return MergeSource(spark, rows, source, stored_size(rows), versions)
