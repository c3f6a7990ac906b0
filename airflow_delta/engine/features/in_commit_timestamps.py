"""In-commit timestamps: commit times that don't change when a table is copied.

If the table supports the feature ``inCommitTimestamp`` and ``delta.enableInCommitTimestamps`` is true, each
commit begins with a ``commitInfo`` that contains its timestamp, and timestamps ascend strictly. If the
table turned them on after version 0, two properties say from which version on:

==================================================  ==============================================
versions                                            timestamp
==================================================  ==============================================
below ``delta.inCommitTimestampEnablementVersion``  the commit file's modification time
from there on                                       ``commitInfo.inCommitTimestamp``
==================================================  ==============================================

A table that turns them off must remove both properties. Modification times then count for all versions.

RFC in-commit-timestamps.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum

from airflow_delta.engine.features.protocol import supported_features
from airflow_delta.engine.model.actions import Metadata, Protocol
from airflow_delta.engine.model.properties import TableProperties

__all__ = [
    "ENABLEMENT_PROPERTIES",
    "TimestampSource",
    "is_enabled",
    "next_in_commit_timestamp",
    "record_enablement",
    "timestamp_source",
    "versions_to_search",
]

_FEATURE = "inCommitTimestamp"

ENABLEMENT_PROPERTIES = (
    "delta.inCommitTimestampEnablementVersion",
    "delta.inCommitTimestampEnablementTimestamp",
)
"""The properties that say from which version on there are in-commit timestamps. Only the commit that turns
them on may set them, and only in an existing table."""


class TimestampSource(Enum):
    """Where the timestamp of a commit is."""

    COMMIT_INFO = "commitInfo.inCommitTimestamp"
    MODIFICATION_TIME = "modification time of the commit file"


def is_enabled(protocol: Protocol, metadata: Metadata, *, table: str) -> bool:
    """Whether the commits of a table must have an in-commit timestamp.

    Raises:
        InvalidTableError: the property is neither true nor false.
    """
    return (
        _FEATURE in supported_features(protocol)
        and TableProperties(metadata.configuration, table).in_commit_timestamps_enabled
    )


def next_in_commit_timestamp(now_ms: int, previous_ms: int) -> int:
    """The timestamp of a commit.

    Args:
        now_ms: the time at which the commit is attempted, in epoch milliseconds.
        previous_ms: the in-commit timestamp of the commit before it; if it has none, its modification time.
    """
    return max(now_ms, previous_ms + 1)


def record_enablement(
    protocol: Protocol,
    metadata: Metadata,
    *,
    before: tuple[Protocol, Metadata] | None,
    version: int,
    timestamp_ms: int,
    table: str,
) -> Metadata:
    """Set or remove the enablement properties in the metadata of a commit.

    ==================  ==================  ====================================================
    before              after               the properties
    ==================  ==================  ====================================================
    no table            on or off           are missing
    off                 on                  are version and timestamp of this commit
    on                  on                  stay as they are, or stay missing
    on                  off                 are missing
    off                 off                 stay as they are; they mean nothing
    ==================  ==================  ====================================================

    Args:
        protocol: the protocol after the commit.
        metadata: the metadata after the commit, before this change.
        before: protocol and metadata before the commit; None for a new table.
        version: the version that the commit makes.
        timestamp_ms: its in-commit timestamp, if it has one.
        table: the table's location, for messages.

    Returns:
        The metadata; the same object if nothing changes.

    Raises:
        InvalidTableError: a property can't be read.
    """
    enabled = is_enabled(protocol, metadata, table=table)
    was_enabled = before is not None and is_enabled(*before, table=table)
    if before is not None and not (enabled or was_enabled):
        return metadata
    recorded: dict[str, str] = {}
    if before is not None and enabled:
        here = dict(zip(ENABLEMENT_PROPERTIES, (str(version), str(timestamp_ms)), strict=True))
        recorded = _enablement_of(before[1]) if was_enabled else here
    if _enablement_of(metadata) == recorded:
        return metadata
    others = {k: v for k, v in metadata.configuration.items() if k not in ENABLEMENT_PROPERTIES}
    return replace(metadata, configuration={**others, **recorded})


def _enablement_of(metadata: Metadata) -> dict[str, str]:
    found = metadata.configuration
    return {name: found[name] for name in ENABLEMENT_PROPERTIES if name in found}


def timestamp_source(
    version: int, protocol: Protocol, metadata: Metadata, *, table: str
) -> TimestampSource:
    """Decide where the timestamp of a version is found, by the newest protocol and metadata.

    Raises:
        InvalidTableError: an enablement property is malformed, or one of the two is missing.
    """
    first = _first_version(protocol, metadata, table)
    if first is None or version < first:
        return TimestampSource.MODIFICATION_TIME
    return TimestampSource.COMMIT_INFO


def versions_to_search(
    timestamp_ms: int, protocol: Protocol, metadata: Metadata, *, latest: int, table: str
) -> range:
    """The range of versions in which to search for a timestamp.

    All timestamps of the range have the same source. The range may begin with versions that the log no
    longer has.

    Raises:
        InvalidTableError: as `timestamp_source`.
    """
    first = _first_version(protocol, metadata, table)
    if first is None:
        return range(latest + 1)
    enablement = TableProperties(metadata.configuration, table).in_commit_timestamp_enablement
    if enablement is None or timestamp_ms >= enablement[1]:
        return range(first, latest + 1)
    return range(first)


def _first_version(protocol: Protocol, metadata: Metadata, table: str) -> int | None:
    """The first version with an in-commit timestamp; None if they are off."""
    if not is_enabled(protocol, metadata, table=table):
        return None
    enablement = TableProperties(metadata.configuration, table).in_commit_timestamp_enablement
    return 0 if enablement is None else enablement[0]
