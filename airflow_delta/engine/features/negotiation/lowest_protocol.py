"""The lowest protocol that says what is needed: versions while they can, lists once they must.

A protocol only grows. Versions before table features stay as they are while they, or higher ones of
their kind, promise all that is needed; the first feature that no such version knows turns the protocol
into lists, which then name everything that the versions promised:

=====================  ==========================  ================================================
before                 needed                      after
=====================  ==========================  ================================================
(1, 2)                 ``changeDataFeed``          (1, 4)
(1, 2)                 ``columnMapping``           (2, 5)
(1, 3)                 ``inCommitTimestamp``       (1, 7) with ``appendOnly``, ``invariants``,
                                                   ``checkConstraints``, ``inCommitTimestamp``
(2, 5)                 ``rowTracking``             (2, 7): reader version 2 still is column mapping
(2, 5)                 ``deletionVectors``         (3, 7), ``columnMapping`` in both lists
=====================  ==========================  ================================================

What higher versions promise beside what is needed binds nobody as long as no metadata makes use of it.

Only when a feature is dropped the protocol shrinks, to the lowest that supports just what is left
(`lowest_protocol`): versions before table features where there are such for exactly that, or else lists.

A version before table features asks for all that it implies; reader version 3 and writer version 7 ask for
nothing but lists.

Spec: PROTOCOL.md, "Table Features for New and Existing Tables", "Supported Features".
"""

from __future__ import annotations

from airflow_delta.engine.features.feature import Kind
from airflow_delta.engine.features.negotiation.protocol_lists import (
    FEATURES_READER_VERSION,
    FEATURES_WRITER_VERSION,
    legacy_features,
    supported_features,
)
from airflow_delta.engine.features.registry import FEATURES
from airflow_delta.engine.model.actions import Protocol

__all__ = ["lowest_protocol", "protocol_of_versions", "protocol_with"]


def protocol_of_versions(reader: int | None, writer: int | None) -> Protocol:
    """The protocol that versions ask for: the lowest with them, and all that they promise.

    Args:
        reader: the least reader version; None for any.
        writer: the least writer version; None for any.
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
    """The lowest protocol that supports features, and no others.

    Args:
        features: names of known features; what they require must be among them.
    """
    for reader in range(1, FEATURES_READER_VERSION):
        for writer in range(1, FEATURES_WRITER_VERSION):
            if legacy_features(reader, writer) == features:
                return Protocol(reader, writer)
    return protocol_with(features, Protocol(1, FEATURES_WRITER_VERSION, None, frozenset()))


def protocol_with(features: frozenset[str], *least: Protocol) -> Protocol:
    """The lowest protocol that supports features, and all that others support.

    Args:
        features: names of known features; what they require must be among them.
        least: the protocols that it must not fall behind, one at least.
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
