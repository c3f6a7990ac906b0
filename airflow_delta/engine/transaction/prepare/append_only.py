"""Refuse to remove rows from an append-only table.

A commit may still rearrange files with ``dataChange=false``. It needs an added file with
``dataChange=false`` too, because files that are added as new data can't contain the rows of the removed
ones.

PROTOCOL.md, "Append-only Tables".
"""

from __future__ import annotations

from airflow_delta.engine.transaction.context import CommitContext
from airflow_delta.engine.transaction.prepare.deletion_vector_changes import deletion_vector_growth
from airflow_delta.engine.transaction.staged import Actions

__all__ = ["check_append_only"]


def check_append_only(actions: Actions, context: CommitContext) -> Actions:
    """Refuse to remove data from an append-only table.

    Raises:
        ConstraintViolationError: the table is append-only, and data is removed.
        InvalidTableError: the property is neither true nor false.
    """
    # The property counts even if the protocol lacks the feature, as in the reference implementation.
    properties = context.properties
    if context.restored_version is not None and context.base is not None:
        # The property before the restore counts. If it is false, a version in which it is true may be
        # restored. If it is true, no version may be restored. (Delta Spark restores one all the same.)
        properties = context.base.properties
    if not (properties.append_only and actions.removes):
        return actions
    growth = deletion_vector_growth(actions, context)
    # Whether an added file may contain the rows of removed ones. `logical_files` decides whether one must.
    takes_rows = any(
        not file.data_change and growth.get(context.path_key(file), 0) <= 0 for file in actions.adds
    )
    adds_data = any(file.data_change for file in actions.adds)
    if any(file.data_change for file in actions.removes) or (adds_data and not takes_rows):
        raise context.violation(
            "the table is append-only (delta.appendOnly=true), but the commit removes data: it removes "
            "files with dataChange=true, or adds no file with dataChange=false that could contain their "
            "rows; set the property to false first"
        )
    return actions
