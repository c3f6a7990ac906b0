"""Remove rows from data files: by deletion vectors, or by rewriting the files without them.

=========================================  ============================================================
the file                                   becomes
=========================================  ============================================================
has no other row                           a ``remove``
is in a table with deletion vectors        a ``remove`` and an ``add`` with a larger deletion vector
is in another table                        a ``remove``; the other rows go to new files, without partition
                                           columns together with those of other files
=========================================  ============================================================

Spec: PROTOCOL.md, "Deletion Vectors", "Per-file Statistics" (``tightBounds``), "Row Tracking"; edge
case G3.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from airflow_delta.engine.data_files.footer_statistics import json_text
from airflow_delta.engine.deletion_vectors.write import write_deletion_vectors
from airflow_delta.engine.errors import InvalidTableError
from airflow_delta.spark.reader.data_files import read_footer
from airflow_delta.spark.reader.snapshot_reader import SnapshotReader
from airflow_delta.spark.rewrite.files import FileRewriter
from airflow_delta.spark.rewrite.row_counts import rows_that_stay
from airflow_delta.spark.writer.log_actions import live_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_delta.engine import AddFile, DeltaTable
    from airflow_delta.spark.writer.new_files import NewFiles
    from airflow_delta.spark.writer.target import WriteTarget

__all__ = ["RemovedRows", "remove_rows", "writes_deletion_vectors"]


@dataclass(frozen=True, slots=True)
class RemovedRows:
    """The result of removing rows from files.

    Attributes:
        num_rows: the number of removed rows.
        num_copied_rows: the number of rows that were written anew.
        num_removed_files: the number of files that are no longer in the table.
        num_removed_bytes: their total size.
        num_added_files: the number of new files.
        num_added_bytes: their total size.
        num_vectors_added: the number of files that have a deletion vector now.
        num_vectors_removed: the number of files that had one.
        num_vectors_updated: the number of files that had one and have another one now.
    """

    num_rows: int = 0
    num_copied_rows: int = 0
    num_removed_files: int = 0
    num_removed_bytes: int = 0
    num_added_files: int = 0
    num_added_bytes: int = 0
    num_vectors_added: int = 0
    num_vectors_removed: int = 0
    num_vectors_updated: int = 0


def writes_deletion_vectors(target: WriteTarget) -> bool:
    """Whether rows of a table are deleted by deletion vectors."""
    return "deletionVectors" in target.supported and target.properties.deletion_vectors_enabled


def remove_rows(
    spark: SparkSession,
    table: DeltaTable,
    target: WriteTarget,
    files: pa.Table,
    rows: Mapping[int, BitMap64],
    new_files: NewFiles,
) -> RemovedRows:
    """Stage the removal of rows from files, and write the deletion vectors or new files for it.

    Args:
        spark: the session.
        table: the table.
        target: the table's version, and the transaction.
        files: live files, with all columns of ``add``.
        rows: the indexes of live rows, by the index of the file in ``files``; no bitmap is empty.
        new_files: gets the new files and deletion vectors, to be deleted unless the commit is made.

    Raises:
        InvalidTableError: a file has fewer rows than its statistics say.
        DeltaError: a file or deletion vector can't be read or written.
        PySparkException: Spark's own errors.
    """
    assert target.base is not None
    indexes = sorted(rows)
    touched = files.take(pa.array(indexes, pa.int64()))
    reader = SnapshotReader(spark, table, target.base)
    former = reader.vectors(touched)
    merged = {
        number: former.get(number, BitMap64()) | rows[index] for number, index in enumerate(indexes)
    }
    stay = rows_that_stay(table, touched, deleted=merged)
    is_whole = pa.array([num_rows <= 0 for num_rows in stay], pa.bool_())
    whole, kept = touched.filter(is_whole), pc.indices_nonzero(pc.invert(is_whole))
    target.transaction.remove_files(touched)
    others = touched.take(kept)
    deleted = {n: merged[number] for n, number in enumerate(kept.to_pylist())}
    result = RemovedRows(
        num_rows=sum(len(found) for found in rows.values()),
        num_removed_files=whole.num_rows,
        num_removed_bytes=pc.sum(whole["size"]).as_py() or 0,
        num_vectors_removed=len(former),
    )
    if not others.num_rows:
        return result
    if writes_deletion_vectors(target):
        had = sum(number in former for number in kept.to_pylist())
        _add_with_vectors(table, target, others, deleted, new_files)
        return replace(result, num_vectors_added=others.num_rows, num_vectors_updated=had)
    added = [
        replace(file, data_change=True)
        for file in _rewritten(
            FileRewriter(spark, table, target.base), target, others, deleted, new_files
        )
    ]
    target.transaction.add_files(added)
    return replace(
        result,
        num_copied_rows=sum(stay[number] for number in kept.to_pylist()),
        num_removed_files=touched.num_rows,
        num_removed_bytes=pc.sum(touched["size"]).as_py() or 0,
        num_added_files=len(added),
        num_added_bytes=sum(file.size for file in added),
    )


def _rewritten(
    rewriter: FileRewriter,
    target: WriteTarget,
    files: pa.Table,
    deleted: Mapping[int, BitMap64],
    new_files: NewFiles,
) -> list[AddFile]:
    """Write files without some rows; see `FileRewriter`."""
    directory = new_files.new_directory()
    if not target.partition_by:
        return rewriter.rewrite_together(files, deleted=deleted, directory=directory)
    rewritten = rewriter.rewrite(files, deleted=deleted, directory=directory)
    return [successor for file in rewritten for successor in file.successors]


def _add_with_vectors(
    table: DeltaTable,
    target: WriteTarget,
    files: pa.Table,
    deleted: Mapping[int, BitMap64],
    new_files: NewFiles,
) -> None:
    adds = list(live_files(files))
    vectors, paths = write_deletion_vectors(
        table.storage, [deleted[number] for number in range(len(adds))]
    )
    new_files.register(paths)
    # A Python loop over the files of one commit: a transaction takes actions one by one.
    target.transaction.add_files(
        [
            replace(
                add,
                deletion_vector=vector,
                data_change=True,
                stats=_wide_statistics(table, add),
            )
            for add, vector in zip(adds, vectors, strict=True)
        ]
    )


def _wide_statistics(table: DeltaTable, add: AddFile) -> str:
    """The statistics of a file that gets a deletion vector: its bounds need not be those of live rows."""
    try:
        stats = json.loads(add.stats or "{}", parse_float=Decimal)
    except ValueError as error:
        raise InvalidTableError(
            f"the statistics of the file {add.path!r} are no JSON: repair them by "
            "DeltaTable.repair_statistics",
            table=table.uri,
            path=add.path,
        ) from error
    if stats.get("numRecords") is None:
        # Deletion vectors need it. The footer's bounds aren't used: another writer may have written the
        # columns in another order.
        stats["numRecords"] = int(read_footer(table, add.path, add.size).num_rows)
    if add.deletion_vector is not None and stats.get("tightBounds", True):
        live = stats["numRecords"] - add.deletion_vector.cardinality
        stats["nullCount"] = _physical_nulls(stats.get("nullCount", {}), live, stats["numRecords"])
    return json_text({**stats, "tightBounds": False})


def _physical_nulls(counts: Any, live: int, rows: int) -> Any:
    """Null counts of live rows as those of all rows: of a column without another value, all are null."""
    if isinstance(counts, dict):
        return {name: _physical_nulls(value, live, rows) for name, value in counts.items()}
    return rows if counts == live else counts
