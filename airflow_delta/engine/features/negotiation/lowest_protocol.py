"""Compute the lowest protocol that supports some features.

A protocol keeps legacy versions as long as these, or higher ones, imply all needed features. The first
feature that no legacy version implies turns the protocol into lists, which then contain all features that
the versions implied:

=====================  ==========================  ================================================
before                 needed                      after
=====================  ==========================  ================================================
(1, 2)                 ``changeDataFeed``          (1, 4)
(1, 2)                 ``columnMapping``           (2, 5)
(1, 3)                 ``inCommitTimestamp``       (1, 7) with ``appendOnly``, ``invariants``,
                                                   ``checkConstraints``, ``inCommitTimestamp``
(2, 5)                 ``rowTracking``             (2, 7): reader version 2 still implies column mapping
(2, 5)                 ``deletionVectors``         (3, 7), ``columnMapping`` in both lists
=====================  ==========================  ================================================

Higher versions may imply more than is needed. That has no effect while no metadata use it.

PROTOCOL.md, "Table Features for New and Existing Tables", "Supported Features".
"""

from __future__ import annotations

from airflow_delta.engine.features.feature import Kind
from airflow_delta.engine.features.protocol_lists import (
    FEATURES_READER_VERSION,
    FEATURES_WRITER_VERSION,
    legacy_features,
    supported_features,
)
from airflow_delta.engine.features.registry import FEATURES
from airflow_delta.engine.model.actions import Protocol

__all__ = ["lowest_protocol", "protocol_of_versions", "protocol_with"]


def protocol_of_versions(reader: int | None, writer: int | None) -> Protocol:
    """The protocol for requested versions, with all features that they imply.

    Reader version 3 and writer version 7 imply no features, only lists.

    Args:
        reader: the requested reader version; None if none is requested.
        writer: the requested writer version; None if none is requested.
    """
    reader, writer = reader or 1, writer or 1
    if reader < FEATURES_READER_VERSION and writer < FEATURES_WRITER_VERSION:
        return Protocol(reader, writer)
    promised = legacy_features(reader, writer if writer < FEATURES_WRITER_VERSION else 0)
    if reader < FEATURES_READER_VERSION:
        return Protocol(reader, FEATURES_WRITER_VERSION, None, promised)
    for_readers = frozenset(n for n in promised if FEATURES[n].kind is Kind.READER_WRITER)
    return Protocol(reader, FEATURES_WRITER_VERSION, for_readers, promised)


def lowest_protocol(features: frozenset[str]) -> Protocol:
    """The lowest protocol that supports exactly some features, for tables that drop a feature.

    It has legacy versions, if there are versions that imply exactly these features, else lists.

    Args:
        features: names of known features, including those that they require.
    """
    for reader in range(1, FEATURES_READER_VERSION):
        for writer in range(1, FEATURES_WRITER_VERSION):
            if legacy_features(reader, writer) == features:
                return Protocol(reader, writer)
    return protocol_with(features, Protocol(1, FEATURES_WRITER_VERSION, None, frozenset()))


def protocol_with(features: frozenset[str], *least: Protocol) -> Protocol:
    """The lowest protocol that supports some features, and all features of other protocols.

    Args:
        features: names of known features, including those that they require.
        least: the other protocols, at least one. The versions can't be lower than theirs.
    """
    listed = features.union(*map(supported_features, least))
    rows = [FEATURES[name] for name in listed if name in FEATURES]
    reader = max(
        *(protocol.min_reader_version for protocol in least),
        *(row.reader_version or 1 for row in rows),
        1,
    )
    writer = max(
        *(protocol.min_writer_version for protocol in least),
        *(row.writer_version or 1 for row in rows),
        1,
    )
    legacy = all(FEATURES[name].is_legacy for name in features)
    if legacy and reader < FEATURES_READER_VERSION and writer < FEATURES_WRITER_VERSION:
        return Protocol(reader, writer)
    for_readers = frozenset(
        name for name in listed if name in FEATURES and FEATURES[name].kind is Kind.READER_WRITER
    )
    if reader < FEATURES_READER_VERSION and for_readers <= {"columnMapping"}:
        return Protocol(reader, FEATURES_WRITER_VERSION, None, listed)
    return Protocol(
        FEATURES_READER_VERSION,
        FEATURES_WRITER_VERSION,
        for_readers.union(*(protocol.reader_features or () for protocol in least)),
        listed,
    )
