"""Update rows while their files are rewritten, so that each row is read and written once.

1. Find the files with rows that meet the condition; this reads only the columns of the condition.
2. Read all rows of these files, give those that meet the condition their new values, and write all of them
   to new files.

Only where nothing else needs the rows, where the condition always has the same value for a row, and where
Spark can spare the other rows the new values (`updates_while_rewriting`). Otherwise `update` takes the rows
out of their files, and writes them to files of their own.

Spec: PROTOCOL.md, "Add File and Remove File".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812

from airflow_delta.engine.features.schema_walk import all_fields
from airflow_delta.spark.dml.change_files import keeps_change_data
from airflow_delta.spark.dml.expressions import condition_column
from airflow_delta.spark.dml.live_conditions import matching_rows
from airflow_delta.spark.dml.matching import LocatedRows, collect_rows
from airflow_delta.spark.dml.new_values import assign, with_old_values
from airflow_delta.spark.dml.removed_rows import RemovedRows, writes_deletion_vectors
from airflow_delta.spark.reader.catalyst import analyzed_condition, is_fixed
from airflow_delta.spark.reader.char_columns import has_char
from airflow_delta.spark.reader.columns import frame_schema
from airflow_delta.spark.reader.snapshot_reader import (
    LOCATION_LIVE,
    OWN_PREFIX,
    SnapshotReader,
)
from airflow_delta.spark.rewrite.row_counts import check_row_count, rows_that_stay
from airflow_delta.spark.writer.alignment import AlignedRows
from airflow_delta.spark.writer.file_writing import write_aligned

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

    from airflow_delta.engine import DeltaTable
    from airflow_delta.spark.dml.assignments import Assignments
    from airflow_delta.spark.dml.conditions import ChosenFiles
    from airflow_delta.spark.writer.new_files import NewFiles
    from airflow_delta.spark.writer.target import WriteTarget

__all__ = ["RewrittenUpdate", "updates_while_rewriting"]

_CLAUSE = f"{OWN_PREFIX}clause"
_UPDATED, _COPIED = 0, 1


def updates_while_rewriting(
    spark: SparkSession, target: WriteTarget, condition: Column | str, assignments: Assignments
) -> bool:
    """Whether rows can be updated while their files are rewritten.

    Args:
        spark: the session.
        target: the table, which exists.
        condition: true for the rows to update; it was checked (`choose_files`).
        assignments: their new values, which were checked.
    """
    assert target.base is not None
    schema, tracking = target.base.schema, target.base.row_tracking
    if (
        target.partition_by
        or writes_deletion_vectors(target)
        or keeps_change_data(target)
        or (tracking is not None and tracking.enabled)
        # Spark's reader pads these texts, and copied rows stay as they are.
        or any(has_char(field.metadata) for _, field in all_fields(schema))
    ):
        return False
    rows = spark.createDataFrame([], frame_schema(schema))
    # It is evaluated twice: one with the current time could find other rows than it updates.
    found = analyzed_condition(spark, frame_schema(schema), condition).condition()
    return is_fixed(found, spark) and not assignments.use_python(rows)


@dataclass(frozen=True, slots=True)
class RewrittenUpdate:
    """The update of some rows.

    Attributes:
        spark: the session.
        table: the table.
        target: its version, and the transaction.
        condition: true for the rows to update.
        assignments: their new values.
    """

    spark: SparkSession
    table: DeltaTable
    target: WriteTarget
    condition: Column | str
    assignments: Assignments

    def stage(self, chosen: ChosenFiles, new_files: NewFiles) -> RemovedRows:
        """Write the new files, and stage them and the removal of the former ones.

        Args:
            chosen: the files that may have such rows.
            new_files: gets the new files.

        Returns:
            What became of the partial files of ``chosen``. The new files aren't counted there, but in
            ``new_files``, together with those for the whole files of ``chosen``.

        Raises:
            ConstraintViolationError: a new value breaks a rule of the table.
            InvalidTableError: the files have another number of rows than in their statistics.
            StorageError: Spark can't read or write a file.
            PySparkException: Spark's other errors.
        """
        assert self.target.base is not None
        reader = SnapshotReader(self.spark, self.table, self.target.base)
        found = LocatedRows()
        if chosen.partial.num_rows:
            rows = matching_rows(
                reader, chosen.partial, self.condition, partition_by=(), columns=chosen.columns
            )
            found = collect_rows(rows, table=self.target.table)
        touched = chosen.partial.take(pa.array(sorted(found.rows), pa.int64()))
        files = pa.concat_tables([touched, chosen.whole])
        if not files.num_rows:
            return RemovedRows()
        stay = rows_that_stay(self.table, files)
        self._write(reader, files, new_files)
        check_row_count(self.table, files, new_files.num_rows, stay)
        self.target.transaction.remove_files(files)
        self.target.transaction.add_files(new_files.adds)
        return RemovedRows(
            num_rows=found.count,
            num_copied_rows=sum(stay[: touched.num_rows]) - found.count,
            num_removed_files=touched.num_rows,
            num_removed_bytes=pc.sum(touched["size"]).as_py() or 0,
            num_vectors_removed=touched.num_rows - touched["deletionVector"].null_count,
        )

    def _write(self, reader: SnapshotReader, files: pa.Table, new_files: NewFiles) -> None:
        target, assignments = self.target, self.assignments
        assert target.base is not None
        clause = F.when(condition_column(self.condition), _UPDATED).otherwise(_COPIED)
        rows = reader.located_rows(files, with_live=True).withColumn(_CLAUSE, clause)
        new = assign(
            with_old_values(rows, target.base.schema),
            {_UPDATED: assignments},
            target,
            clause=_CLAUSE,
            keep=[_CLAUSE, LOCATION_LIVE],
            old=target.base.schema,
            copies=True,
        )
        given = frozenset(name for name in target.schema.names if assignments.assigns(name))
        # Spark may check rules before it leaves out the deleted rows of a file.
        checked = F.col(LOCATION_LIVE) & (F.col(_CLAUSE) == _UPDATED)
        aligned = AlignedRows(new, given, (), checked=checked)
        # Without a shuffle, so that the rows of sorted files keep their order.
        write_aligned(aligned, target, new_files)
