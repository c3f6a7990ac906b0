"""Check the rules of managed commits after each commit.

``features/managed_commits.py`` has the rules. They are also checked for commits that don't change the
commit owner, so that nothing is committed to a table that another writer has left in an invalid state.

RFC managed-commits, "Managed Commit Enablement" and "Writer Requirements for Managed Commits".
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
    """Check that a managed table has what it needs, and that the commit doesn't replace its owner.

    Raises:
        InvalidTableError: the table has the feature ``managedCommit`` without the property that names the
            owner, or without in-commit timestamps; it has the property without the feature; the owner
            changes; or in-commit timestamps would be enabled without their feature.
    """
    properties = context.properties
    commit_owner(context.supported, properties)
    former = supported_features(context.base.protocol) if context.base else frozenset[str]()
    check_timestamps(context.supported, properties, before=former)
    if actions.metadata is not None:
        before = context.base.properties if context.base else TableProperties({}, context.table)
        check_ownership(before, properties)
    return actions
