"""Refuse deletion vectors in a table that may not have them.

The feature allows deletion vectors in the table. The property ``delta.enableDeletionVectors`` allows
writers to make new ones. Without the property a live file may still be committed again with its deletion
vector, for example with other statistics.

PROTOCOL.md, "Deletion Vectors" and "Writer Requirement for Deletion Vectors".
"""

from __future__ import annotations

from airflow_delta.engine.transaction.context import CommitContext
from airflow_delta.engine.transaction.prepare.live_files import are_live
from airflow_delta.engine.transaction.prepare.statistics import record_counts
from airflow_delta.engine.transaction.staged import Actions

__all__ = ["check_deletion_vectors"]


def check_deletion_vectors(actions: Actions, context: CommitContext) -> Actions:
    """Check that each file with a deletion vector may have it, and has ``numRecords`` in its statistics.

    Raises:
        ConstraintViolationError: the table can't have deletion vectors, or no new ones; or the statistics
            of a file lack ``numRecords``.
        CorruptLogError: the table's live files can't be read.
        StorageError: the store failed.
    """
    masked = [file for file in actions.adds if file.deletion_vector]
    if not masked:
        return actions
    lacking = None
    if "deletionVectors" not in context.supported:
        lacking = "the feature deletionVectors"
    elif not context.properties.deletion_vectors_enabled and not all(are_live(masked, context)):
        lacking = "delta.enableDeletionVectors=true"
    if lacking:
        raise context.violation(
            f"the file {masked[0].path!r} has a deletion vector, and the table lacks {lacking}"
        )
    record_counts(masked, context, why="it has a deletion vector")
    return actions
