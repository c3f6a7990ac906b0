"""Move the high water marks of identity columns to include the values that a commit adds.

The writer of the rows reports the furthest value of each column
(`OptimisticTransaction.use_identity_values`). The statistics of the added files count too, because the mark
must be "the largest (smallest) value in the column". Otherwise a value that the writer forgot to report
could be generated a second time. The marks are part of the schema. So the commit changes the table's
metadata, and conflicts with concurrent changes of them.

PROTOCOL.md, "Identity Columns".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.arrow.python_arrays import array_of
from airflow_delta.engine.arrow.statistics.parse import parse_stats
from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.features.identity import (
    FEATURE,
    IdentityColumn,
    advance_marks,
    identity_columns,
)
from airflow_delta.engine.model.schema_json import schema_to_json
from airflow_delta.engine.transaction.context import CommitContext
from airflow_delta.engine.transaction.prepare.table_columns import (
    physical_schema_after,
    schema_after,
)
from airflow_delta.engine.transaction.staged import Actions

__all__ = ["advance_identity_marks"]


def advance_identity_marks(actions: Actions, context: CommitContext) -> Actions:
    """Write the new high water marks into the metadata.

    Raises:
        ConstraintViolationError: the values belong to no identity column, the table lacks the feature, or a
            mark would be no 64-bit integer.
        InvalidTableError: an identity column can't be read.
    """
    if FEATURE not in context.supported:
        if actions.identity_marks:
            raise context.violation(
                f"it has values of the identity columns {sorted(actions.identity_marks)}, and the "
                f"table lacks the feature {FEATURE}"
            )
        return actions
    schema = schema_after(context)
    marks = _furthest(actions, identity_columns(schema), context)
    if not marks:
        return actions
    try:
        advanced = advance_marks(schema, marks)
    except InvalidArgumentError as error:
        raise context.violation(error.message) from error
    except OverflowError as error:
        raise context.violation(
            f"the identity columns {marks} have no values left: the next one would be no 64-bit integer"
        ) from error
    if advanced is schema:
        return actions
    metadata = replace(context.metadata, schema_string=schema_to_json(advanced))
    return replace(actions, metadata=metadata, identity_marks=MappingProxyType(marks))


def _furthest(
    actions: Actions, columns: Sequence[IdentityColumn], context: CommitContext
) -> dict[str, int]:
    """The furthest value of each column that gets new values, by the writer's report and by statistics."""
    marks = dict(actions.identity_marks)
    # Rearranged and restored files contain no new values. Those of a clone are in the marks of its
    # metadata.
    texts = [file.stats for file in actions.adds if file.data_change and file.stats is not None]
    if (
        not columns
        or not texts
        or context.restored_version is not None
        or context.cloned_version is not None
    ):
        return marks
    stats = pa.chunked_array([array_of(texts, pa.string())])
    names = dict(
        zip(schema_after(context).names, physical_schema_after(context).names, strict=True)
    )
    for column in columns:
        ascending = column.step > 0
        kind, name = "maxValues" if ascending else "minValues", names[column.name]
        fields = pa.struct([(kind, pa.struct([(name, pa.int64())]))])
        values = pc.struct_field(pc.struct_field(parse_stats(stats, fields), kind), name)
        found = (pc.max(values) if ascending else pc.min(values)).as_py()
        if found is not None:
            known = marks.get(column.name, found)
            marks[column.name] = max(known, found) if ascending else min(known, found)
    return marks
