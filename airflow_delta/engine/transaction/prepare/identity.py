"""The high water marks of identity columns move along with the values that a commit brings.

Spec: PROTOCOL.md, "Identity Columns". The writer of the rows tells the furthest value of each column;
the marks are part of the schema, so that the commit changes the table's metadata, and one that is made
at the same time conflicts with it.
"""

from __future__ import annotations

from dataclasses import replace

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.features.identity import advance_marks
from airflow_delta.engine.model.schema_json import schema_to_json
from airflow_delta.engine.transaction.context import CommitContext
from airflow_delta.engine.transaction.prepare.table_columns import schema_after
from airflow_delta.engine.transaction.staged import Actions

__all__ = ["advance_identity_marks"]

_FEATURE = "identityColumns"


def advance_identity_marks(actions: Actions, context: CommitContext) -> Actions:
    """Write the new high water marks into the metadata.

    Raises:
        ConstraintViolationError: the values belong to no identity column, the table has none, or a
            mark would be no 64-bit integer.
        InvalidTableError: an identity column can't be read.
    """
    if not actions.identity_marks:
        return actions
    if _FEATURE not in context.supported:
        raise context.violation(
            f"it has values of the identity columns {sorted(actions.identity_marks)}, and the table "
            f"lacks the feature {_FEATURE}"
        )
    schema = schema_after(context)
    try:
        advanced = advance_marks(schema, actions.identity_marks)
    except InvalidArgumentError as error:
        raise context.violation(error.message) from error
    except OverflowError as error:
        raise context.violation(
            f"the identity columns {dict(actions.identity_marks)} have no values left: the next one "
            "would be no 64-bit integer"
        ) from error
    if advanced is schema:
        return actions
    metadata = replace(context.metadata, schema_string=schema_to_json(advanced))
    return replace(actions, metadata=metadata)
