"""The names of ``delta.*`` properties: which there are, and which a user may set.

Everything that begins with ``delta.`` belongs to the protocol and its implementations. A name that
none of them knows is a slip of the pen, which would turn nothing on and say nothing; the reference
implementations refuse it, and so does the engine. Their names are found in any case, and stored in the
one of the table below. So are their values, where those are a few words: some implementations would take
``TRUE`` for nothing at all, and delete from an append-only table. All other keys are users' own.

Spec: PROTOCOL.md, "Change Metadata", and the section of each feature; the rest are properties of the
reference implementation and of its vendor's platform, which a table may come to use.
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
from airflow_delta.engine.model.properties import CHOICES, CONSTRAINT_PREFIX, TableProperties

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
"""What the names of properties begin with that ask for a feature; they aren't stored."""

READER_VERSION = "delta.minReaderVersion"
"""The property that asks for a reader version; it isn't stored."""

WRITER_VERSION = "delta.minWriterVersion"
"""The property that asks for a writer version; it isn't stored."""

PROTOCOL_PROPERTIES = frozenset({READER_VERSION, WRITER_VERSION, "delta.ignoreProtocolDefaults"})
"""The properties that speak about the protocol, or its defaults, and aren't stored."""

_PREFIX = "delta."

# ``true`` or ``false``, whether or not `TableProperties` reads them.
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

# What else `TableProperties` reads, beside `CHOICES`.
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

# Kept for others, and not looked into.
_TEXTS = (
    "autoOptimize",
    "autoOptimize.autoCompact",
    "checkpointRetentionDuration",
    "parquet.format.version",
    "randomPrefixLength",
    "sampleRetentionDuration",
)

_BY_COMMITS = "it is written by the commits that it is about, so leave it out"
_NOT_DONE = "it promises what the engine's commits don't do"

# Not for users at all.
_RECORDS: Mapping[str, str] = {
    MAX_COLUMN_ID: _BY_COMMITS,
    MATERIALIZED_ROW_ID_COLUMN: _BY_COMMITS,
    MATERIALIZED_ROW_COMMIT_VERSION_COLUMN: _BY_COMMITS,
    **dict.fromkeys(
        ENABLEMENT_PROPERTIES,
        "it tells where in a table's history in-commit timestamps begin, and is written by the commit "
        "that turns them on; set delta.enableInCommitTimestamps alone, and leave it out",
    ),
    "delta.requireCheckpointProtectionBeforeVersion": _BY_COMMITS,
}

# Not to be set; whoever finds one may take it away.
_UNWANTED: Mapping[str, str] = {
    "delta.enableChangeDataCapture": "it is an old name; use delta.enableChangeDataFeed",
    "delta.enableMaterializePartitionColumnsFeature": (
        "ask for the feature itself, with delta.feature.materializePartitionColumns"
    ),
    "delta.writePartitionColumnsToParquet": (
        "ask for the feature, with delta.feature.materializePartitionColumns"
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
"""Every name without a variable part, as it is stored, by the name in lower case."""

_WORDS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys((_PREFIX + name for name in _FLAGS), ("true", "false")),
    **CHOICES,
}


def canonical_name(key: str, *, table: str) -> str:
    """A property's name as it is stored.

    Names of users' own properties are theirs, also in their case, and so are the names of constraints
    and features behind their prefix.

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
            f"there is no table property {key!r} ({hint}); names of your own must not begin with "
            f"{_PREFIX!r}",
            table=table,
            property=key,
        )
    return KNOWN[lower]


def canonical_value(name: str, value: str) -> str:
    """A property's value as it is stored: of a few words in the protocol's case, others as given.

    Args:
        name: the property's name, as it is stored.
        value: its value; one that it can't have stays, for `check_values` to refuse.
    """
    words = _WORDS.get(name, ())
    return next((word for word in words if word.lower() == value.lower()), value)


def check_settable(name: str, *, table: str) -> None:
    """Make sure that a property is for users to set.

    Args:
        name: its name, as it is stored.
        table: the table's location, for messages.

    Raises:
        InvalidArgumentError: only commits may write it, or nothing comes of it.
    """
    check_removable(name, table=table)
    if name in _UNWANTED:
        raise _refused(name, "set", _UNWANTED[name], table)


def check_removable(name: str, *, table: str) -> None:
    """Make sure that a property is for users to take away; as `check_settable`.

    Raises:
        InvalidArgumentError: only commits may write it.
    """
    if name in _RECORDS:
        raise _refused(name, "set or unset", _RECORDS[name], table)


def _refused(name: str, verb: str, reason: str, table: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"the table property {name} can't be {verb}: {reason}", table=table, property=name
    )


def check_values(properties: TableProperties) -> None:
    """Judge properties that a user sets: later each would be an error of an operation that asks for it.

    Raises:
        InvalidArgumentError: a property holds a value that it can't have, or the isolation level is
            none that a table should have.
    """
    try:
        _read_all(properties)
    except InvalidTableError as error:
        # To the reader of a table its properties are wrong, to who sets them the argument.
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
