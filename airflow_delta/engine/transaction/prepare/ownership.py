"""Who makes the commits of a table changes hands by the commits that say so, and by no others.

Spec: managed-commits.md, "Managed Commit Enablement" and "Writer Requirements for Managed Commits". The
rules are in ``features/managed_commits.py``. They hold after every commit: a commit to a table that another
writer has left in between is refused, since nobody could say where it belongs.
"""

from __future__ import annotations

from airflow_delta.engine.features.managed_commits import (
    check_ownership,
    check_timestamps,
    commit_owner,
)
from airflow_delta.engine.features.protocol import supported_features
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.transaction.context import CommitContext
from airflow_delta.engine.transaction.staged import Actions

__all__ = ["check_managed"]


def check_managed(actions: Actions, context: CommitContext) -> Actions:
    """A table with a commit owner has all that it needs, and keeps the owner or goes without one.

    Raises:
        InvalidTableError: it has the feature ``managedCommit`` without the property that names the owner,
            or without in-commit timestamps; or the property without the feature; or the owner changes; or
            in-commit timestamps would be left without their feature.
    """
    properties = context.properties
    commit_owner(context.supported, properties)
    former = supported_features(context.base.protocol) if context.base else frozenset[str]()
    check_timestamps(context.supported, properties, before=former)
    if actions.metadata is not None:
        before = context.base.properties if context.base else TableProperties({}, context.table)
        check_ownership(before, properties)
    return actions
