"""Files that stay in a table with another deletion vector.

A commit that removes a file and adds it again with another vector changes which of its rows are in the
table, and no row's values: where the vector has grown rows were deleted, where it has shrunk they came
back. That it holds all rows of the former vector as well can't be seen here; its writer makes sure of it
(PROTOCOL.md, "Deletion Vectors").
"""

from __future__ import annotations

from collections.abc import Mapping

from airflow_delta.engine.model.file_actions import AddFile, RemoveFile
from airflow_delta.engine.transaction.context import CommitContext
from airflow_delta.engine.transaction.staged import Actions

__all__ = ["deleted_rows", "deletion_vector_growth"]


def deletion_vector_growth(actions: Actions, context: CommitContext) -> Mapping[str, int]:
    """By how many rows the vectors of files that are removed and added again have grown.

    Returns:
        The numbers by `CommitContext.path_key`; less than zero where a vector has shrunk.

    Raises:
        ConstraintViolationError: the path of a file is no well-formed URI.
    """
    # Loops over the files of one commit: they came as objects, from one writer.
    former = {context.path_key(file): deleted_rows(file) for file in actions.removes}
    if not former:
        return {}
    keys = ((context.path_key(file), file) for file in actions.adds)
    return {key: deleted_rows(file) - former[key] for key, file in keys if key in former}


def deleted_rows(file: AddFile | RemoveFile) -> int:
    """How many rows of a file its deletion vector hides."""
    return file.deletion_vector.cardinality if file.deletion_vector else 0
