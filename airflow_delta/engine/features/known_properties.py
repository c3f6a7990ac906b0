"""The known ``delta.*`` properties, and which of them users may set.

Names that begin with ``delta.`` belong to the protocol and its implementations. The engine refuses unknown
ones, as the reference implementations do: a typo would silently have no effect. All other names are free
for users. The case of names, and of values that are one of a few words, doesn't matter to users.

PROTOCOL.md, "Change Metadata", and the section of each feature. The other properties are those of the
reference implementation and of its vendor's platform, which a table may use.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from types import MappingProxyType

from airflow_delta.engine.errors import InvalidArgumentError, InvalidTableError
from airflow_delta.engine.features.column_mapping import MAX_COLUMN_ID
from airflow_delta.engine.features.in_commit_timestamps import ENABLEMENT_PROPERTIES
from airflow_delta.engine.features.row_tracking import (
    MATERIALIZED_ROW_COMMIT_VERSION_COLUMN,
    MATERIALIZED_ROW_ID_COLUMN,
)
from airflow_delta.engine.model.properties import (
    CHOICES,
    CODECS,
    CONSTRAINT_PREFIX,
    TableProperties,
)

__all__ = [
    "FEATURE_PREFIX",
    "KNOWN",
    "PROTOCOL_PROPERTIES",
    "READER_VERSION",
    "WRITER_VERSION",
    "canonical_name",
    "canonical_value",
    "check_removable",
    "check_settable",
    "check_values",
]

FEATURE_PREFIX = "delta.feature."
"""The prefix of properties that request a feature. They aren't stored."""

READER_VERSION = "delta.minReaderVersion"
"""The property that requests a reader version. It isn't stored."""

WRITER_VERSION = "delta.minWriterVersion"
"""The property that requests a writer version. It isn't stored."""

PROTOCOL_PROPERTIES = frozenset({READER_VERSION, WRITER_VERSION, "delta.ignoreProtocolDefaults"})
"""The properties about the protocol or its defaults. They aren't stored."""

_PREFIX = "delta."

# Properties that are ``true`` or ``false``, whether or not `TableProperties` reads them.
_FLAGS = (
    "appendOnly",
    "autoOptimize.optimizeWrite",
    "castIcebergTimeType",
    "checkpoint.writeStatsAsJson",
    "checkpoint.writeStatsAsStruct",
    "compatibility.symlinkFormatManifest.enabled",
    "enableChangeDataFeed",
    "enableDeletionVectors",
    "enableExpiredLogCleanup",
    "enableFullRetentionRollback",
    "enableIcebergCompatV1",
    "enableIcebergCompatV2",
    "enableIcebergCompatV3",
    "enableInCommitTimestamps",
    "enableRowTracking",
    "enableTypeWidening",
    "enableVariantShredding",
    "ignoreIcebergBucketPartition",
    "randomizeFilePrefixes",
    "rowTrackingSuspended",
    "tuneFileSizesForRewrites",
)

# Other properties that `TableProperties` reads, beside `CHOICES`.
_TYPED = (
    "checkpointInterval",
    "dataSkippingNumIndexedCols",
    "dataSkippingStatsColumns",
    "dataSkippingStringPrefixLength",
    "deletedFileRetentionDuration",
    "dropFeatureTruncateHistory.retentionDuration",
    "logRetentionDuration",
    "managedCommit.commitOwner",
    "managedCommit.commitOwnerConf",
    "parquet.compression.codec",
    "setTransactionRetentionDuration",
    "targetFileSize",
)

# Properties for other implementations, whose values aren't checked.
_TEXTS = (
    "autoOptimize",
    "autoOptimize.autoCompact",
    "checkpointRetentionDuration",
    "parquet.format.version",
    "randomPrefixLength",
    "sampleRetentionDuration",
)

_BY_COMMITS = "commits set it themselves, so omit it"
_NOT_DONE = "it requires something that the engine's commits don't do"

# Properties that users may neither set nor unset.
_RECORDS: Mapping[str, str] = {
    MAX_COLUMN_ID: _BY_COMMITS,
    MATERIALIZED_ROW_ID_COLUMN: _BY_COMMITS,
    MATERIALIZED_ROW_COMMIT_VERSION_COLUMN: _BY_COMMITS,
    **dict.fromkeys(
        ENABLEMENT_PROPERTIES,
        "it says where in a table's history in-commit timestamps begin, and the commit that turns them "
        "on sets it; set delta.enableInCommitTimestamps alone, and omit it",
    ),
    "delta.requireCheckpointProtectionBeforeVersion": _BY_COMMITS,
}

# Properties that users may unset, but not set.
_UNWANTED: Mapping[str, str] = {
    "delta.enableChangeDataCapture": "it is an old name; use delta.enableChangeDataFeed",
    "delta.enableMaterializePartitionColumnsFeature": (
        "request the feature itself, with delta.feature.materializePartitionColumns"
    ),
    "delta.writePartitionColumnsToParquet": (
        "request the feature, with delta.feature.materializePartitionColumns"
    ),
    "delta.universalFormat.enabledFormats": _NOT_DONE,
    "delta.universalFormat.iceberg.atomicConversion.supported": _NOT_DONE,
    "delta.redirectReaderWriter-preview": _NOT_DONE,
    "delta.redirectWriterOnly-preview": _NOT_DONE,
    "delta.coordinatedCommits.commitCoordinator-preview": _NOT_DONE,
    "delta.coordinatedCommits.commitCoordinatorConf-preview": _NOT_DONE,
    "delta.coordinatedCommits.tableConf-preview": _NOT_DONE,
}

KNOWN: Mapping[str, str] = MappingProxyType(
    {
        name.lower(): name
        for name in (
            *(_PREFIX + name for name in (*_TYPED, *_FLAGS, *_TEXTS)),
            *CHOICES,
            *PROTOCOL_PROPERTIES,
            *_RECORDS,
            *_UNWANTED,
        )
    }
)
"""Every known name without a variable part, by the name in lower case."""

_WORDS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys((_PREFIX + name for name in _FLAGS), ("true", "false")),
    **CHOICES,
    "delta.parquet.compression.codec": CODECS,
}


def canonical_name(key: str, *, table: str) -> str:
    """A property's name as it is stored.

    Users' own names stay as they are, and so do the names of constraints and features after their prefix.

    Raises:
        InvalidArgumentError: the name begins with ``delta.`` and is unknown.
    """
    lower = key.lower()
    if not lower.startswith(_PREFIX):
        return key
    for prefix in (CONSTRAINT_PREFIX, FEATURE_PREFIX):
        if lower.startswith(prefix) and len(key) > len(prefix):
            return prefix + key[len(prefix) :]
    if lower not in KNOWN:
        close = [KNOWN[name] for name in difflib.get_close_matches(lower, KNOWN, n=3)]
        hint = f"do you mean {' or '.join(close)}?" if close else "is it a later one?"
        raise InvalidArgumentError(
            f"there is no table property {key!r} ({hint}); your own names must not begin with "
            f"{_PREFIX!r}",
            table=table,
            property=key,
        )
    return KNOWN[lower]


def canonical_value(name: str, value: str) -> str:
    """A property's value as it is stored: in the protocol's case, if it is one of a few words.

    Some implementations ignore ``TRUE``, and would delete from an append-only table.

    Args:
        name: the property's name, as it is stored.
        value: its value. An invalid one is returned as it is; `check_values` refuses it.
    """
    words = _WORDS.get(name, ())
    return next((word for word in words if word.lower() == value.lower()), value)


def check_settable(name: str, *, table: str) -> None:
    """Check that users may set a property.

    Args:
        name: its name, as it is stored.
        table: the table's location, for messages.

    Raises:
        InvalidArgumentError: only commits may set it, or it would have no effect.
    """
    check_removable(name, table=table)
    if name in _UNWANTED:
        raise _refused(name, "set", _UNWANTED[name], table)


def check_removable(name: str, *, table: str) -> None:
    """Check that users may remove a property; as `check_settable`.

    Raises:
        InvalidArgumentError: only commits may set it.
    """
    if name in _RECORDS:
        raise _refused(name, "set or unset", _RECORDS[name], table)


def _refused(name: str, verb: str, reason: str, table: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"the table property {name} can't be {verb}: {reason}", table=table, property=name
    )


def check_values(properties: TableProperties) -> None:
    """Check the values of properties that a user sets. A bad one would otherwise fail later operations.

    Raises:
        InvalidArgumentError: a property has an invalid value, or an isolation level that no table should
            have.
    """
    try:
        _read_all(properties)
    except InvalidTableError as error:
        # For readers of a table an invalid property is a fault of the table, here it is one of the
        # argument.
        raise InvalidArgumentError(error.message, table=error.table, **error.facts) from error
    if properties.isolation_level == "SnapshotIsolation":
        raise _refused(
            "delta.isolationLevel",
            "set to SnapshotIsolation",
            "two commits could each miss what the other one adds; choose Serializable or "
            "WriteSerializable",
            properties.table,
        )


def _read_all(properties: TableProperties) -> None:
    for name, attribute in vars(TableProperties).items():
        if isinstance(attribute, property):
            getattr(properties, name)
    for name in _FLAGS:
        properties.flag(_PREFIX + name)
