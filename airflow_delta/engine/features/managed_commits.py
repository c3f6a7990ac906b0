"""Managed commits: who owns the commits of a table.

Spec: managed-commits.md, "Managed Commit Enablement". The feature ``managedCommit`` and the property
``delta.managedCommit.commitOwner`` come and go together: a table with one and without the other is
invalid, as nobody could say where its next commit belongs.
"""

from __future__ import annotations

from airflow_delta.engine.errors import InvalidTableError
from airflow_delta.engine.model.properties import TableProperties

__all__ = ["commit_owner", "unseen_commits"]

_FEATURE = "managedCommit"
_SUCCESSOR = "coordinatedCommits-preview"
_PROPERTY = "delta.managedCommit.commitOwner"


def commit_owner(supported: frozenset[str], properties: TableProperties) -> str | None:
    """The name of the table's commit owner; None for a table that the file system manages.

    Args:
        supported: the features that the table supports.
        properties: the table's properties.

    Raises:
        InvalidTableError: the feature is there without the property, or the other way round.
    """
    owner = properties.commit_owner
    if (_FEATURE in supported) == (owner is not None):
        return owner
    found = (
        f"the protocol lists the feature {_FEATURE}, but the property {_PROPERTY} is missing"
        if owner is None
        else f"the property {_PROPERTY} is {owner!r}, but the protocol lacks the feature {_FEATURE}"
    )
    raise InvalidTableError(
        f"{found}; they are only valid together, so one commit must add or remove both",
        table=properties.table,
    )


def unseen_commits(supported: frozenset[str], properties: TableProperties) -> str | None:
    """Why the log directory may lack the newest commits of a table; None where it holds them all.

    A commit owner ratifies commits before they are backfilled to where everybody looks.

    Raises:
        InvalidTableError: as `commit_owner`.
    """
    owner = commit_owner(supported, properties)
    if owner is not None:
        return f"its commit owner {owner!r} may have ratified commits that aren't backfilled yet"
    if _SUCCESSOR in supported:
        return (
            f"it supports {_SUCCESSOR}: its coordinator may know of commits that aren't backfilled"
        )
    return None
