"""Refuse column metadata that readers can't read.

``features/field_metadata.py`` knows which entries readers expect, and of which types. All new metadata pass
this stage: those of new tables, of alterations, and of ``metaData`` actions that a caller made.

PROTOCOL.md, "Column Metadata".
"""

from __future__ import annotations

from airflow_delta.engine.features.field_metadata import unreadable_entries
from airflow_delta.engine.transaction.context import CommitContext
from airflow_delta.engine.transaction.prepare.table_columns import schema_after
from airflow_delta.engine.transaction.staged import Actions

__all__ = ["check_field_metadata"]


def check_field_metadata(actions: Actions, context: CommitContext) -> Actions:
    """Refuse new entries in column metadata that readers would fail to read.

    Existing bad entries may stay, so that each of several can be corrected by a commit of its own.

    Raises:
        ConstraintViolationError: a column gets such an entry.
        InvalidTableError: a schema can't be read.
    """
    if actions.metadata is None:
        return actions
    known = unreadable_entries(context.base.schema) if context.base else ()
    for problem in unreadable_entries(schema_after(context)):
        if problem not in known:
            raise context.violation(problem)
    return actions
