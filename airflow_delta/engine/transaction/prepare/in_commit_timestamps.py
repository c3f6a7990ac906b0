"""Record in the table properties where in-commit timestamps begin.

The commit that turns them on sets two properties, to its own version and timestamp. So each attempt sets
them anew.

RFC in-commit-timestamps.
"""

from __future__ import annotations

from dataclasses import replace

from airflow_delta.engine.features.in_commit_timestamps import record_enablement
from airflow_delta.engine.transaction.context import CommitContext
from airflow_delta.engine.transaction.staged import Actions

__all__ = ["record_timestamps"]


def record_timestamps(actions: Actions, context: CommitContext) -> Actions:
    """Set the enablement properties, keep or remove them; see `record_enablement`.

    Raises:
        InvalidTableError: a property can't be read.
    """
    base = context.base
    metadata = record_enablement(
        context.protocol,
        context.metadata,
        before=(base.protocol, base.metadata) if base else None,
        version=context.version,
        timestamp_ms=context.timestamp_ms,
        table=context.table,
    )
    return actions if metadata is context.metadata else replace(actions, metadata=metadata)
