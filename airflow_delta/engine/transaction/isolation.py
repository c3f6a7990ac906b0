"""The isolation level of a commit: which concurrently added files it must not have missed.

The table sets the level by ``delta.isolationLevel``. A commit that only rearranges files, such as a
compaction of small files, runs at the lowest level::

    level                concurrently added files that are a conflict if they match what was read
    Serializable         all
    WriteSerializable    all but blind appends; those too if the commit changes the metadata
    SnapshotIsolation    none, unless the commit changes the metadata

With ``WriteSerializable`` a commit may count as made before a blind append that has an earlier version:
readers may see a state that the commits in the order of their versions wouldn't give. Concurrently
*removed* files are a conflict at every level. If a table sets ``SnapshotIsolation``, two commits may each
miss the files that the other adds; Delta Spark accepts only ``Serializable`` as the property's value.
"""

from __future__ import annotations

from enum import Enum

from airflow_delta.engine.features.row_tracking import DOMAIN as ROW_TRACKING_DOMAIN
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.transaction.staged import Actions

__all__ = ["IsolationLevel", "appends_matter", "isolation_level"]


class IsolationLevel(Enum):
    """The levels, by their names in ``commitInfo`` and in the table property."""

    SERIALIZABLE = "Serializable"
    WRITE_SERIALIZABLE = "WriteSerializable"
    SNAPSHOT_ISOLATION = "SnapshotIsolation"


def isolation_level(actions: Actions, properties: TableProperties) -> IsolationLevel:
    """The isolation level of a commit.

    Args:
        actions: its actions.
        properties: the properties of the table.

    Raises:
        InvalidTableError: ``delta.isolationLevel`` has an unknown value.
    """
    # The high water mark of row ids is merged, whatever the level.
    others = actions.domains.keys() - {ROW_TRACKING_DOMAIN}
    only_files = not (actions.protocol or actions.metadata or actions.transactions or others)
    if only_files and not actions.changes_data:
        return IsolationLevel.SNAPSHOT_ISOLATION
    return IsolationLevel(properties.isolation_level)


def appends_matter(level: IsolationLevel, *, blind: bool, metadata_changed: bool) -> bool:
    """Whether files that a concurrent commit added may conflict with a commit.

    Args:
        level: the level of the commit.
        blind: whether the concurrent commit is a blind append.
        metadata_changed: whether the commit itself changes the metadata.
    """
    match level:
        case IsolationLevel.SERIALIZABLE:
            return True
        case IsolationLevel.WRITE_SERIALIZABLE:
            return metadata_changed or not blind
        case IsolationLevel.SNAPSHOT_ISOLATION:
            # New metadata, such as a constraint, must hold for all rows, also for the added ones.
            return metadata_changed
