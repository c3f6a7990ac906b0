"""`delete`: delete the rows of a table for which a condition is true, as one commit; see `deletion`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_delta.engine import DeltaTable
from airflow_delta.spark.dml.commit import begin_change, begin_once, commit_change, redone
from airflow_delta.spark.dml.conditions import predicate_text
from airflow_delta.spark.dml.deletion import Deletion, stage_deletion
from airflow_delta.spark.dml.expressions import check_condition_type
from airflow_delta.spark.writer.new_files import NewFiles

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

    from airflow_delta.engine.commit.owner import CommitOwner
    from airflow_delta.spark.writer.target import WriteTarget

__all__ = ["DeleteResult", "delete"]


@dataclass(frozen=True, slots=True)
class DeleteResult:
    """The result of a deletion.

    Attributes:
        version: the version of the table without the rows.
        num_deleted_rows: the number of rows that were deleted; None if whole files were removed whose
            statistics don't say how many rows they have.
        num_copied_rows: the number of rows that were written anew.
        num_removed_files: the number of files that are no longer in the table.
        num_added_files: the number of new files.
        num_deletion_vectors: the number of files that have got a deletion vector, or a larger one.
        written: False if this call committed nothing: an earlier call had committed this transaction
            identifier, or no row met the condition.
        repeated: True if an earlier call had committed this transaction identifier.
    """

    version: int
    num_deleted_rows: int | None = 0
    num_copied_rows: int = 0
    num_removed_files: int = 0
    num_added_files: int = 0
    num_deletion_vectors: int = 0
    written: bool = True
    repeated: bool = False


def delete(
    spark: SparkSession,
    uri: str,
    condition: Column | str | None = None,
    *,
    txn: tuple[str, int] | None = None,
    user_metadata: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    commit_owners: Mapping[str, CommitOwner] | None = None,
    allowed_outside: Sequence[str] = (),
) -> DeleteResult:
    """Delete the rows of a Delta table for which a condition is true, as one commit.

    If partition values or statistics show that all rows of a file meet the condition, the file is removed
    without reading it. In other files, rows are deleted by deletion vectors if
    ``delta.enableDeletionVectors`` is true; otherwise these files are rewritten. A row for which the
    condition is null stays. If another writer changes the same rows at the same time, the deletion is
    repeated on the newest version.

    Args:
        spark: the session; Spark reads and writes data files with the credentials of its own configuration.
        uri: the table's path or URI.
        condition: a condition on the table's columns, the same for a row each time it is evaluated, and
            without subqueries. None deletes all rows.
        txn: application id and version: if they are committed already, the call does nothing and returns
            that commit's version. So a retry can't delete twice.
        user_metadata: a text for ``commitInfo.userMetadata``.
        storage_options: credentials and settings with which the engine commits.
        commit_owners: commit owners of managed tables by name, beside those that are installed.
        allowed_outside: locations outside of the table below which it may read files; see `DeltaTable`.

    Raises:
        InvalidArgumentError: the condition can't be resolved or isn't allowed.
        ConstraintViolationError: the table is append-only.
        UnsupportedFeatureError: the table needs a writer feature that isn't supported here.
        CommitConflictError: other writers made conflicting changes, several times.
        CommitOutcomeUnknownError: the store failed; the commit may have been made.
        DeltaError: the table or its files can't be read or written.
        PySparkException: Spark's other errors.
    """
    table = DeltaTable(uri, storage_options, commit_owners, allowed_outside=allowed_outside)
    check_condition_type("condition", condition, table=table.uri)
    return redone(lambda: _delete(spark, table, condition, txn, user_metadata))


def _delete(
    spark: SparkSession,
    table: DeltaTable,
    condition: Column | str | None,
    txn: tuple[str, int] | None,
    user_metadata: str | None,
) -> DeleteResult:
    """One attempt."""
    started = time.monotonic()

    def _begin() -> WriteTarget:
        predicate = [] if condition is None else [predicate_text(spark, table, condition)]
        return begin_change(
            table, "DELETE", {"predicate": predicate}, user_metadata=user_metadata, removes=True
        )

    target = begin_once(_begin, table, txn)
    if isinstance(target, int):
        return DeleteResult(target, written=False, repeated=True)
    with NewFiles(table) as new_files:
        deletion = stage_deletion(spark, table, target, condition, new_files)
        if not deletion.changes_table and txn is None:
            return DeleteResult(target.version, written=False)
        version = commit_change(target, new_files, txn, _metrics(deletion, started))
    removed = deletion.removed
    return DeleteResult(
        version,
        deletion.num_rows,
        removed.num_copied_rows,
        deletion.num_removed_files,
        removed.num_added_files,
        removed.num_vectors_added,
    )


def _metrics(deletion: Deletion, started: float) -> dict[str, int]:
    """The ``operationMetrics`` of the commit, by Delta Spark's names."""
    removed = deletion.removed
    rows = {} if deletion.num_rows is None else {"numDeletedRows": deletion.num_rows}
    return {
        "numAddedFiles": removed.num_added_files,
        "numRemovedFiles": deletion.num_removed_files,
        "numAddedBytes": removed.num_added_bytes,
        "numRemovedBytes": deletion.num_removed_bytes,
        "numDeletionVectorsAdded": removed.num_vectors_added,
        "numDeletionVectorsRemoved": removed.num_vectors_removed,
        "numDeletionVectorsUpdated": removed.num_vectors_updated,
        "numAddedChangeFiles": deletion.num_change_files,
        "numCopiedRows": removed.num_copied_rows,
        "executionTimeMs": round((time.monotonic() - started) * 1000),
        **rows,
    }
