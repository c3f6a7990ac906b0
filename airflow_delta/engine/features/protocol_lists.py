"""Interpret versions and feature lists of a protocol, and check that they don't contradict each other.

==============  ==================================================================================
version         the table's features
==============  ==================================================================================
reader 1        nothing beyond the base protocol
reader 2        ``columnMapping``
reader 3        what ``readerFeatures`` lists
writer 1 to 6   the features of the registry up to that version (``writer_version``)
writer 7        what ``writerFeatures`` lists
==============  ==================================================================================

`features.protocol` decides what the engine can do with the features.

PROTOCOL.md, "Protocol Evolution", "Table Features", "Reader Version Requirements" and "Writer Version
Requirements".
"""

from __future__ import annotations

from airflow_delta.engine.errors import InvalidTableError
from airflow_delta.engine.features.feature import Kind
from airflow_delta.engine.features.registry import FEATURES
from airflow_delta.engine.model.actions import Protocol

__all__ = [
    "FEATURES_READER_VERSION",
    "FEATURES_WRITER_VERSION",
    "check_lists",
    "check_versions",
    "check_writer_lists",
    "features_for_readers",
    "legacy_features",
    "misplaced_reader_features",
    "supported_features",
]

FEATURES_READER_VERSION = 3
"""The reader version with lists of features; the newest one."""

FEATURES_WRITER_VERSION = 7
"""The writer version with lists of features; the newest one."""


def legacy_features(reader_version: int, writer_version: int) -> frozenset[str]:
    """The features that a pair of legacy versions implies."""
    return frozenset(
        feature.name
        for feature in FEATURES.values()
        if feature.writer_version is not None
        and feature.writer_version <= writer_version
        and (feature.reader_version or 1) <= reader_version
    )


def supported_features(protocol: Protocol) -> frozenset[str]:
    """All features that a table supports, listed or implied."""
    if protocol.min_writer_version < FEATURES_WRITER_VERSION:
        writer = legacy_features(protocol.min_reader_version, protocol.min_writer_version)
    else:
        writer = protocol.writer_features or frozenset()
    return writer | features_for_readers(protocol)


def features_for_readers(protocol: Protocol) -> frozenset[str]:
    """The features that the protocol lists or implies for readers."""
    if protocol.min_reader_version == FEATURES["columnMapping"].reader_version:
        return frozenset({"columnMapping"})
    return protocol.reader_features or frozenset()


def misplaced_reader_features(protocol: Protocol) -> frozenset[str]:
    """Reader-writer features that only ``writerFeatures`` lists.

    They should be in both lists. But some writers omitted them from ``readerFeatures`` while they used
    them. Such a table can only be read correctly if readers follow them too.
    """
    listed = protocol.writer_features or frozenset()
    return frozenset(
        name
        for name in listed - features_for_readers(protocol)
        if name in FEATURES and FEATURES[name].kind is Kind.READER_WRITER
    )


def check_versions(protocol: Protocol, table: str) -> None:
    """Check that the reader and the writer version are possible, also together.

    Raises:
        InvalidTableError: they aren't.
    """
    reader, writer = protocol.min_reader_version, protocol.min_writer_version
    if reader < 1 or writer < 1:
        raise InvalidTableError(
            f"the protocol has reader version {reader} and writer version {writer}: expected at "
            "least 1 for both",
            table=table,
        )
    if reader == FEATURES_READER_VERSION and writer < FEATURES_WRITER_VERSION:
        raise InvalidTableError(
            f"the protocol has reader version {reader} with writer version {writer}: expected "
            f"writer version {FEATURES_WRITER_VERSION}",
            table=table,
        )


def check_lists(protocol: Protocol, table: str) -> None:
    """Check that each list is there if its version needs it, and that reader features are in both lists.

    Raises:
        InvalidTableError: a list is missing or superfluous, or a reader feature isn't in
            ``writerFeatures``.
    """
    for version, features, holder, field in (
        (
            protocol.min_reader_version,
            protocol.reader_features,
            FEATURES_READER_VERSION,
            "readerFeatures",
        ),
        (
            protocol.min_writer_version,
            protocol.writer_features,
            FEATURES_WRITER_VERSION,
            "writerFeatures",
        ),
    ):
        # An empty list at a lower version means none: formats without null write it so.
        if (version < holder and features) or (version == holder and features is None):
            found = f"lists {sorted(features)}" if features else "is missing"
            raise InvalidTableError(
                f"the protocol's {field} {found} at version {version}: expected the list at "
                f"version {holder}, and only there",
                table=table,
            )
    stray = (protocol.reader_features or frozenset()) - (protocol.writer_features or frozenset())
    if stray:
        raise InvalidTableError(
            f"the protocol lists {sorted(stray)} in readerFeatures but not in writerFeatures: "
            "expected reader features in both",
            table=table,
        )


def check_writer_lists(protocol: Protocol, supported: frozenset[str], table: str) -> None:
    """Check that features are in the right lists, together with those that they require, as writers must.

    Raises:
        InvalidTableError: a feature is in the wrong list, or a required feature is missing.
    """
    stray = misplaced_reader_features(protocol)
    if stray:
        raise InvalidTableError(
            f"the protocol lists {sorted(stray)} in writerFeatures, but reader version "
            f"{protocol.min_reader_version} doesn't imply them for readers: expected reader-writer "
            "features for both; repair the protocol first",
            table=table,
        )
    misplaced = [
        name
        for name in sorted(protocol.reader_features or ())
        if name in FEATURES and FEATURES[name].kind is Kind.WRITER
    ]
    if misplaced:
        raise InvalidTableError(
            f"the protocol lists {misplaced} in readerFeatures: expected writer features in "
            "writerFeatures only; repair the protocol first",
            table=table,
        )
    for name in sorted(supported):
        missing = FEATURES[name].requires - supported
        if missing:
            raise InvalidTableError(
                f"the protocol has the feature {name} without {sorted(missing)}, which it "
                "requires; add them to the protocol first",
                table=table,
            )
