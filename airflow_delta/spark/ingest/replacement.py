"""Find the rows that an overwrite replaces, and stage their removal.

=============================  ====================================================================
the overwrite                  removes
=============================  ====================================================================
static                         all files
dynamic                        the files of the partitions of which there are new files
by condition                   the files whose rows all meet the condition; of files with some such
                               rows these rows (`airflow_delta.spark.dml.deletion`)
=============================  ====================================================================

The transaction records what was read. So it is a conflict if others add rows to the replaced part of the
table, or remove rows from it.

Spec: PROTOCOL.md, "Add File and Remove File", "Partition Value Serialization".
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.errors import DeltaWarning
from airflow_delta.engine.features.column_mapping import partition_fields
from airflow_delta.engine.model.partition_values import parse_partition_value
from airflow_delta.engine.model.schema import DOUBLE, FLOAT, StructField
from airflow_delta.spark.dml.change_files import stage_changes, written
from airflow_delta.spark.dml.conditions import check_condition
from airflow_delta.spark.dml.deletion import stage_deletion

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_delta.spark.writer.new_files import NewFiles
    from airflow_delta.spark.writer.request import WriteRequest
    from airflow_delta.spark.writer.target import WriteTarget

__all__ = ["Replaced", "check_replacement", "stage_replacement"]

_MOST_PARTITIONS = 200
"""The most partitions that are recorded as read one by one; for more, the whole table is."""


@dataclass(frozen=True, slots=True)
class Replaced:
    """The number and size of the files that an overwrite removes.

    Attributes:
        num_files: the number of files.
        num_bytes: their total size.
        changes_table: whether it removes any rows.
        more_metrics: the ``operationMetrics`` of an overwrite by condition.
    """

    num_files: int = 0
    num_bytes: int = 0
    changes_table: bool = False
    more_metrics: Mapping[str, int] | None = None

    def metrics(self, request: WriteRequest) -> dict[str, int]:
        """The ``operationMetrics`` of an overwrite that aren't those of the written rows alone."""
        if request.mode != "overwrite":
            return {}
        return {
            "numRemovedFiles": self.num_files,
            "numRemovedBytes": self.num_bytes,
            **(self.more_metrics or {}),
        }


def check_replacement(spark: SparkSession, request: WriteRequest, target: WriteTarget) -> None:
    """Check the condition of an overwrite, before anything is written.

    Args:
        spark: the session.
        request: what to do.
        target: the table.

    Raises:
        InvalidArgumentError: Spark can't resolve the condition with the columns of the table, or it isn't
            the same for a row each time, or has a subquery.
    """
    if request.replace_where is not None and target.base is not None:
        check_condition(spark, target, request.replace_where)


def stage_replacement(
    spark: SparkSession, request: WriteRequest, target: WriteTarget, files: NewFiles
) -> Replaced:
    """Stage the removal of what the new files replace.

    Args:
        spark: the session.
        request: what to do.
        target: the table.
        files: the new files; gets those that are written anew, without replaced rows.

    Raises:
        DeltaError: the table's files can't be read.
        PySparkException: Spark's own errors.
    """
    if request.mode != "overwrite" or target.base is None:
        return Replaced()
    if request.replaces_all:
        return _remove(target, target.base.files())
    if request.replace_where is not None:
        return _replace_where(spark, request, target, files)
    return _remove(target, _files_of_partitions(target, files))


def _replace_where(
    spark: SparkSession, request: WriteRequest, target: WriteTarget, files: NewFiles
) -> Replaced:
    deletion = stage_deletion(spark, request.table, target, request.replace_where, files)
    changes = deletion.num_change_files
    if changes and files.adds:
        inserted = written(spark, files.directory, "insert", target, files)
        changes += stage_changes([inserted], target, files)
    removed = deletion.removed
    return Replaced(
        deletion.num_removed_files,
        deletion.num_removed_bytes,
        changes_table=deletion.changes_table,
        more_metrics={
            # The output of the commit is, for Delta Spark, also what is written anew.
            "numFiles": len(files.adds) + removed.num_added_files,
            "numOutputRows": files.num_rows + removed.num_copied_rows,
            "numOutputBytes": files.size_in_bytes + removed.num_added_bytes,
            "numAddedChangeFiles": changes,
            "numCopiedRows": removed.num_copied_rows,
            **({} if deletion.num_rows is None else {"numDeletedRows": deletion.num_rows}),
        },
    )


def _remove(target: WriteTarget, rows: pa.Table) -> Replaced:
    target.transaction.remove_files(rows)
    return Replaced(
        rows.num_rows, pc.sum(rows["size"]).as_py() or 0, changes_table=rows.num_rows > 0
    )


def _files_of_partitions(target: WriteTarget, files: NewFiles) -> pa.Table:
    """The live files in the partitions of new files; of a table without partitions, all."""
    base, transaction = target.base, target.transaction
    assert base is not None
    fields = partition_fields(target.schema, target.partition_by, target.mode)
    wanted = {_key(add.partition_values, fields) for add in files.adds}
    if not fields:
        warnings.warn(
            DeltaWarning(
                f"{target.table}: the table has no partitions, so that "
                "partition_overwrite='dynamic' replaces all rows"
            ),
            stacklevel=2,
        )
        return transaction.read_table().files()
    inexact = any(field.data_type in (FLOAT, DOUBLE) for field in fields.values())
    if inexact or len(wanted) > _MOST_PARTITIONS:
        # A NaN equals no value in a predicate, though it is one partition.
        live = transaction.read_table().files()
    elif wanted:
        live = transaction.read_files(_is_in(wanted, fields))
    else:
        return base.files().slice(0, 0)
    # A Python loop over the distinct texts of partition values, which are as many as partitions.
    values = live["partitionValues"].combine_chunks()
    texts = pa.array([str(row) for row in values.to_pylist()], pa.string()).dictionary_encode()
    first = {text: row for row, text in reversed([*enumerate(texts.to_pylist())])}
    kept = [
        _key(dict(values[first[text]].as_py()), fields) in wanted
        for text in texts.dictionary.to_pylist()
    ]
    return live.filter(pa.array(kept, pa.bool_()).take(texts.indices))


def _key(values: Mapping[str, str | None], fields: Mapping[str, StructField]) -> tuple[Any, ...]:
    """Partition values as typed values, which are equal whatever their texts; NaN equals itself."""
    typed = (parse_partition_value(values.get(name), f.data_type) for name, f in fields.items())
    return tuple("NaN" if value != value else value for value in typed)


def _is_in(wanted: set[tuple[Any, ...]], fields: Mapping[str, StructField]) -> pc.Expression:
    """A predicate for the rows of partitions."""
    partitions = []
    for key in wanted:
        equal = [
            pc.field(field.name).is_null() if value is None else pc.field(field.name) == value
            for field, value in zip(fields.values(), key, strict=True)
        ]
        both = equal[0]
        for other in equal[1:]:
            both &= other
        partitions.append(both)
    anyone = partitions[0]
    for other in partitions[1:]:
        anyone |= other
    return anyone
