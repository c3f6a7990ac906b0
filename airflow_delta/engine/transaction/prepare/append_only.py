"""Append-only tables lose no rows.

Spec: PROTOCOL.md, "Append-only Tables". Files may still be rearranged: all of it with
``dataChange=false``, so that what is added as new data isn't taken for the rows of files that go.

Of a restore the property before it counts. Whoever has set it to false may bring back a version that has
true; while it is true nobody may, though Delta Spark does.
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
    # By the property alone, as the reference does: a table that says so means it, whatever its protocol.
    properties = context.properties
    if context.restored_version is not None and context.base is not None:
        properties = context.base.properties
    if not (properties.append_only and actions.removes):
        return actions
    grown = deletion_vector_growth(actions, context)
    # Files that may hold the rows of those that go. Whether one must is up to `logical_files`.
    takes_rows = any(
        not file.data_change and grown.get(context.path_key(file), 0) <= 0 for file in actions.adds
    )
    adds_data = any(file.data_change for file in actions.adds)
    if any(file.data_change for file in actions.removes) or (adds_data and not takes_rows):
        raise context.violation(
            "the table is append-only (delta.appendOnly=true), and the commit removes data: files are "
            "removed with dataChange=true, or none is added with dataChange=false that their rows "
            "could be in; set the property to false first"
        )
    return actions
