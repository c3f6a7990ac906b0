"""Delete the rows for which a condition is true, as a part of a commit.

1. Choose the files by partition values and statistics (`conditions`). A file whose rows all meet the
   condition is removed without reading it.
2. Read the other files once, and collect the locations of the rows (`matching`).
3. Take the rows out of the files (`removed_rows`).
4. Write change data files, if the feed needs them: if a file is rewritten, its other rows aren't new, and
   the log alone doesn't show that.

Spec: PROTOCOL.md, "Add File and Remove File", "Deletion Vectors", "Change Data Files".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.statistics.parse import num_records
from airflow_delta.spark.dml.change_files import changed, keeps_change_data, stage_changes
from airflow_delta.spark.dml.conditions import ChosenFiles, choose_files
from airflow_delta.spark.dml.live_conditions import matching_rows
from airflow_delta.spark.dml.matching import collect_rows
from airflow_delta.spark.dml.removed_rows import (
    RemovedRows,
    remove_rows,
    writes_deletion_vectors,
)
from airflow_delta.spark.reader.snapshot_reader import SnapshotReader
from airflow_delta.spark.writer.target import target_of

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

    from airflow_delta.engine import DeltaTable
    from airflow_delta.spark.writer.new_files import NewFiles
    from airflow_delta.spark.writer.target import WriteTarget

__all__ = ["Deletion", "live_rows", "stage_deletion"]


@dataclass(frozen=True, slots=True)
class Deletion:
    """The rows that a commit deletes.

    Attributes:
        num_whole_files: the number of files that were removed without reading them.
        num_whole_bytes: their total size.
        num_whole_rows: the number of their rows; None if their statistics don't say it.
        removed: the removal of rows from other files.
        num_change_files: the number of change data files.
    """

    num_whole_files: int = 0
    num_whole_bytes: int = 0
    num_whole_rows: int | None = 0
    removed: RemovedRows = field(default_factory=RemovedRows)
    num_change_files: int = 0

    @property
    def num_removed_files(self) -> int:
        """The number of files that are no longer in the table."""
        return self.num_whole_files + self.removed.num_removed_files

    @property
    def num_removed_bytes(self) -> int:
        """Their total size."""
        return self.num_whole_bytes + self.removed.num_removed_bytes

    @property
    def num_rows(self) -> int | None:
        """The number of deleted rows; None if it isn't known of some files."""
        if self.num_whole_rows is None:
            return None
        return self.num_whole_rows + self.removed.num_rows

    @property
    def changes_table(self) -> bool:
        """Whether there is anything to be committed."""
        return bool(self.num_whole_files or self.removed.num_rows)


def stage_deletion(
    spark: SparkSession,
    table: DeltaTable,
    target: WriteTarget,
    condition: Column | str | None,
    new_files: NewFiles,
) -> Deletion:
    """Stage the deletion of the rows for which a condition is true.

    Args:
        spark: the session.
        table: the table.
        target: its version, and the transaction.
        condition: the condition; None: all rows.
        new_files: gets the files that are written, to be deleted unless the commit is made.

    Raises:
        InvalidArgumentError: Spark can't resolve the condition, or it isn't the same for a row each time.
        UnsupportedFeatureError: the table's files aren't Parquet.
        DeltaError: a file can't be read or written.
        PySparkException: Spark's other errors.
    """
    assert target.base is not None
    chosen = choose_files(spark, target, condition)
    copies = not writes_deletion_vectors(target)
    if copies and chosen.partial.num_rows and keeps_change_data(target):
        # With change data files, the rows of whole files must be in one as well.
        files = pa.concat_tables([chosen.whole, chosen.partial])
        chosen = ChosenFiles(chosen.whole.slice(0, 0), files, chosen.columns)
    whole = chosen.whole
    target.transaction.remove_files(whole)
    found = Deletion(
        num_whole_files=whole.num_rows,
        num_whole_bytes=pc.sum(whole["size"]).as_py() or 0,
        num_whole_rows=live_rows(whole),
    )
    if not chosen.partial.num_rows:
        return found
    reader = SnapshotReader(spark, table, target.base)
    # Without a condition there are no partial files.
    assert condition is not None
    matches = matching_rows(
        reader,
        chosen.partial,
        condition,
        partition_by=target.partition_by,
        columns=chosen.columns,
    )
    rows = collect_rows(matches, table=target.table).rows
    if not rows:
        return found
    removed = remove_rows(spark, table, target, chosen.partial, rows, new_files)
    changes = 0
    if keeps_change_data(target) and removed.num_added_files:
        # By their locations: a condition that depends on the time may have another result now.
        deleted = reader.located_rows(chosen.partial, only=rows)
        # They have the columns from before the commit, which may add some.
        before = target_of(target.transaction)
        changes = stage_changes([changed(deleted, "delete", before)], before, new_files)
    return Deletion(
        found.num_whole_files, found.num_whole_bytes, found.num_whole_rows, removed, changes
    )


def live_rows(files: pa.Table) -> int | None:
    """The rows of files that aren't deleted; None if statistics don't say it."""
    if not files.num_rows:
        return 0
    counts = num_records(files["stats"])
    if counts.null_count:
        return None
    deleted = pc.sum(pc.struct_field(files["deletionVector"], "cardinality")).as_py() or 0
    return int(pc.sum(counts).as_py()) - int(deleted)
