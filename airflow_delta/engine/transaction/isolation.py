"""How much of what others commit meanwhile a commit must not have missed.

The table says it by ``delta.isolationLevel``; a commit that changes neither rows nor anything but files,
such as a compaction of small files, gets by with the least (edge cases E7)::

    level                files added meanwhile that matter, where they match what was read
    Serializable         all
    WriteSerializable    all but blind appends; those too if the commit changes the metadata
    SnapshotIsolation    none, unless the commit changes the metadata

``WriteSerializable`` lets a commit take its place before a blind append that was there first: readers may
see a state that the commits in their order wouldn't have given. Files *removed* meanwhile matter on any
level. As a table's level ``SnapshotIsolation`` lets two commits each miss what the other one adds; Delta
Spark takes no other property than ``Serializable``.
"""

from __future__ import annotations

from enum import Enum

from airflow_delta.engine.features.row_tracking import DOMAIN as ROW_TRACKING_DOMAIN
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.transaction.staged import Actions

__all__ = ["IsolationLevel", "appends_matter", "isolation_level"]


class IsolationLevel(Enum):
    """The levels, under the names that ``commitInfo`` and the table property use."""

    SERIALIZABLE = "Serializable"
    WRITE_SERIALIZABLE = "WriteSerializable"
    SNAPSHOT_ISOLATION = "SnapshotIsolation"


def isolation_level(actions: Actions, properties: TableProperties) -> IsolationLevel:
    """The level that a commit runs at.

    Args:
        actions: what it commits.
        properties: the table's.

    Raises:
        InvalidTableError: ``delta.isolationLevel`` is no level.
    """
    # The high water mark of row ids is merged, whatever the level.
    others = actions.domains.keys() - {ROW_TRACKING_DOMAIN}
    only_files = not (actions.protocol or actions.metadata or actions.transactions or others)
    if only_files and not actions.changes_data:
        return IsolationLevel.SNAPSHOT_ISOLATION
    return IsolationLevel(properties.isolation_level)


def appends_matter(level: IsolationLevel, *, blind: bool, metadata_changed: bool) -> bool:
    """Whether files that a winner added may get in the way of a commit.

    Args:
        level: the level of the commit.
        blind: whether the winner is a blind append.
        metadata_changed: whether the commit itself changes the metadata.
    """
    match level:
        case IsolationLevel.SERIALIZABLE:
            return True
        case IsolationLevel.WRITE_SERIALIZABLE:
            return metadata_changed or not blind
        case IsolationLevel.SNAPSHOT_ISOLATION:
            # What a change of the metadata says of the rows, it must say of all of them.
            return metadata_changed
