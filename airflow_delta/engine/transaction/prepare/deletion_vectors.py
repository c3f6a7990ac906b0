"""Files come with a deletion vector only where the table has them.

Spec: PROTOCOL.md, "Deletion Vectors" and "Writer Requirement for Deletion Vectors". The feature lets a
table have vectors, the property ``delta.enableDeletionVectors`` lets writers make new ones. A file that
is in the table with its vector may be committed again, with other statistics say, without the property.
"""

from __future__ import annotations

from airflow_delta.engine.transaction.context import CommitContext
from airflow_delta.engine.transaction.prepare.live_files import are_live
from airflow_delta.engine.transaction.prepare.statistics import record_counts
from airflow_delta.engine.transaction.staged import Actions

__all__ = ["check_deletion_vectors"]


def check_deletion_vectors(actions: Actions, context: CommitContext) -> Actions:
    """Each file with a deletion vector may have it, and tells ``numRecords``.

    Raises:
        ConstraintViolationError: the table has no deletion vectors, or no new ones; or a file's
            statistics don't tell how many records it has.
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
