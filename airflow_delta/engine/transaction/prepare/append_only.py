"""Append-only tables lose no rows.

Spec: PROTOCOL.md, "Append-only Tables". Files may still be rearranged.
"""

from __future__ import annotations

from airflow_delta.engine.transaction.context import CommitContext
from airflow_delta.engine.transaction.staged import Actions

__all__ = ["check_append_only"]


def check_append_only(actions: Actions, context: CommitContext) -> Actions:
    """Refuse to remove data from an append-only table.

    Raises:
        ConstraintViolationError: the table is append-only, and data is removed.
        InvalidTableError: the property is neither true nor false.
    """
    # By the property alone, as the reference does: a table that says so means it, whatever its protocol.
    if context.properties.append_only and any(file.data_change for file in actions.removes):
        raise context.violation(
            "the table is append-only (delta.appendOnly=true), and the commit removes data; set the "
            "property to false first"
        )
    return actions
