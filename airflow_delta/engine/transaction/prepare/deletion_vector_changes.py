"""Compare the deletion vectors of files that a commit removes and adds again.

Such a commit changes which rows of the file are in the table, but no row's values: if the deletion vector
has grown, rows were deleted; if it has shrunk, rows came back. Only the sizes are compared. The writer must
make sure that a larger deletion vector contains all rows of the old one (PROTOCOL.md, "Deletion Vectors").
"""

from __future__ import annotations

from collections.abc import Mapping

from airflow_delta.engine.model.file_actions import AddFile, RemoveFile
from airflow_delta.engine.transaction.context import CommitContext
from airflow_delta.engine.transaction.staged import Actions

__all__ = ["deleted_rows", "deletion_vector_growth"]


def deletion_vector_growth(actions: Actions, context: CommitContext) -> Mapping[str, int]:
    """By how many rows the deletion vectors of files that are removed and added again have grown.

    Returns:
        The numbers by `CommitContext.path_key`; negative if a deletion vector has shrunk.

    Raises:
        ConstraintViolationError: the path of a file is no well-formed URI.
    """
    # Loops over the files of one commit: they came as objects, from one writer.
    before = {context.path_key(file): deleted_rows(file) for file in actions.removes}
    if not before:
        return {}
    keys = ((context.path_key(file), file) for file in actions.adds)
    return {key: deleted_rows(file) - before[key] for key, file in keys if key in before}


def deleted_rows(file: AddFile | RemoveFile) -> int:
    """The number of rows that a file's deletion vector deletes."""
    return file.deletion_vector.cardinality if file.deletion_vector else 0
