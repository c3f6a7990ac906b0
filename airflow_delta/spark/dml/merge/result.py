"""The result of a merge, and the metrics of its commit."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_delta.row_changes.clauses import MATCHED, NOT_MATCHED_BY_SOURCE

if TYPE_CHECKING:
    from airflow_delta.spark.dml.merge.staged import Staged
    from airflow_delta.spark.writer.new_files import NewFiles

__all__ = ["MergeResult", "merge_metrics"]


@dataclass(frozen=True, slots=True)
class MergeResult:
    """The result of a merge.

    Attributes:
        version: the version of the table after the merge.
        num_inserted_rows: the number of rows that were inserted.
        num_updated_rows: the number of rows that were updated.
        num_deleted_rows: the number of rows that were deleted.
        num_copied_rows: the number of other rows that were written anew.
        num_removed_files: the number of files that are no longer in the table.
        num_added_files: the number of new files.
        num_deletion_vectors: the number of files that have got a deletion vector, or a larger one.
        written: False if this call committed nothing: an earlier call had committed this transaction
            identifier, or no clause applied to any row.
        repeated: True if an earlier call had committed this transaction identifier.
    """

    version: int
    num_inserted_rows: int = 0
    num_updated_rows: int = 0
    num_deleted_rows: int = 0
    num_copied_rows: int = 0
    num_removed_files: int = 0
    num_added_files: int = 0
    num_deletion_vectors: int = 0
    written: bool = True
    repeated: bool = False


def merge_metrics(staged: Staged, new_files: NewFiles, started: float) -> dict[str, int]:
    """The ``operationMetrics`` of a merge, by Delta Spark's names.

    Args:
        staged: what the merge has staged.
        new_files: its new files.
        started: when it began, by ``time.monotonic``.
    """
    removed = staged.removed
    updated, deleted = staged.count("update"), staged.count("delete")
    return {
        "numSourceRows": staged.num_source_rows,
        "numTargetRowsInserted": staged.num_inserted,
        "numTargetRowsUpdated": updated,
        "numTargetRowsMatchedUpdated": staged.count("update", MATCHED),
        "numTargetRowsNotMatchedBySourceUpdated": staged.count("update", NOT_MATCHED_BY_SOURCE),
        "numTargetRowsDeleted": deleted,
        "numTargetRowsMatchedDeleted": staged.count("delete", MATCHED),
        "numTargetRowsNotMatchedBySourceDeleted": staged.count("delete", NOT_MATCHED_BY_SOURCE),
        "numTargetRowsCopied": removed.num_copied_rows,
        "numOutputRows": staged.num_inserted + updated + removed.num_copied_rows,
        "numTargetFilesAdded": len(new_files.adds) + removed.num_added_files,
        "numTargetFilesRemoved": removed.num_removed_files,
        "numTargetBytesAdded": new_files.size_in_bytes + removed.num_added_bytes,
        "numTargetBytesRemoved": removed.num_removed_bytes,
        "numTargetChangeFilesAdded": staged.num_change_files,
        "numTargetDeletionVectorsAdded": removed.num_vectors_added,
        "numTargetDeletionVectorsRemoved": removed.num_vectors_removed,
        "numTargetDeletionVectorsUpdated": removed.num_vectors_updated,
        "executionTimeMs": round((time.monotonic() - started) * 1000),
    }
