"""The metadata of columns are what readers take them for.

Spec: PROTOCOL.md, "Column Metadata". What they take them for is in ``features/field_metadata.py``. All
that makes new metadata goes through this stage: the creation of a table, its alterations, and a
``metaData`` action as a caller made it.
"""

from __future__ import annotations

from airflow_delta.engine.features.field_metadata import unreadable_entries
from airflow_delta.engine.transaction.context import CommitContext
from airflow_delta.engine.transaction.prepare.table_columns import schema_after
from airflow_delta.engine.transaction.staged import Actions

__all__ = ["check_field_metadata"]


def check_field_metadata(actions: Actions, context: CommitContext) -> Actions:
    """No column gets an entry in its metadata that readers would fail at.

    One that is there may stay: of several each can be put right by a commit of its own.

    Raises:
        ConstraintViolationError: one gets such an entry.
        InvalidTableError: a schema can't be read.
    """
    if actions.metadata is None:
        return actions
    known = unreadable_entries(context.base.schema) if context.base else ()
    for problem in unreadable_entries(schema_after(context)):
        if problem not in known:
            raise context.violation(problem)
    return actions
