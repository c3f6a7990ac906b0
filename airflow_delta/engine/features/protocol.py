"""What a table's protocol allows: which features it supports, and whether we may read or write it.

==============  ==================================================================================
version         what it says
==============  ==================================================================================
reader 1        nothing beyond the base protocol
reader 2        ``columnMapping``
reader 3        what ``readerFeatures`` lists
writer 1 to 6   the features of the registry up to that version (``writer_version``)
writer 7        what ``writerFeatures`` lists
==============  ==================================================================================

Reading is judged leniently: a contradiction that leaves no doubt about how to read is passed over,
as in the reference implementations. Writing is judged by the letter, because a writer that guesses
damages the table for everybody.

Spec: PROTOCOL.md, "Protocol Evolution", "Table Features", "Reader Version Requirements" and "Writer
Version Requirements".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from airflow_delta.engine.errors import InvalidTableError, UnsupportedFeatureError
from airflow_delta.engine.features.feature import Feature, Kind, Support
from airflow_delta.engine.features.managed_commits import commit_owner
from airflow_delta.engine.features.registry import FEATURES
from airflow_delta.engine.features.type_widening import unsupported_type_changes
from airflow_delta.engine.model.actions import Metadata, Protocol
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.model.schema import StructType
from airflow_delta.engine.model.schema_json import parse_schema

__all__ = [
    "FEATURES_READER_VERSION",
    "FEATURES_WRITER_VERSION",
    "FeatureStatus",
    "Operation",
    "check_readable",
    "check_writable",
    "describe_features",
    "legacy_features",
    "supported_features",
]

FEATURES_READER_VERSION = 3
"""The reader version whose protocol lists reader features; the newest there is."""

FEATURES_WRITER_VERSION = 7
"""The writer version whose protocol lists writer features; the newest there is."""

_UNKNOWN = "this version of the engine doesn't know it"


class Operation(Enum):
    """What a writer is about to do to a table.

    ``APPEND`` is any commit; ``CHECKPOINT`` is writing what just re-tells the log: checkpoints,
    compacted commits, version checksums.
    """

    APPEND = "append"
    CHECKPOINT = "checkpoint"


@dataclass(frozen=True, slots=True)
class FeatureStatus:
    """What one feature means for one table.

    Attributes:
        name: the feature's name.
        supported: whether the table's protocol lists or implies it.
        active: whether the table uses it as well; counted as true where nobody can tell.
        can_read: whether the engine reads a table in this state, as far as this feature goes.
        can_write: whether it commits to such a table.
        note: what the engine does with the feature.
    """

    name: str
    supported: bool
    active: bool
    can_read: bool
    can_write: bool
    note: str


def legacy_features(reader_version: int, writer_version: int) -> frozenset[str]:
    """The features that a pair of versions before table features implies."""
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
    return writer | _reader_side(protocol)


def check_readable(protocol: Protocol, metadata: Metadata | None = None, *, table: str) -> None:
    """Make sure that the engine can read a table correctly.

    Args:
        protocol: the table's protocol.
        metadata: the table's metadata, for the checks that need it.
        table: the table's location, for messages.

    Raises:
        InvalidTableError: versions and feature lists don't fit together.
        UnsupportedFeatureError: the table needs a newer reader version, a reader feature that the
            engine lacks, or a change of a column's type that it can't follow.
    """
    _check_versions(protocol, table)
    if protocol.min_reader_version > FEATURES_READER_VERSION:
        raise UnsupportedFeatureError(
            f"the table needs reader version {protocol.min_reader_version}, the engine has "
            f"{FEATURES_READER_VERSION}; use a newer release of it",
            table=table,
            features=(),
        )
    _check_lists(protocol, table)
    binding = _reader_side(protocol) | _listed_for_writers_only(protocol)
    refused = [
        (name, FEATURES[name].note if name in FEATURES else _UNKNOWN)
        for name in sorted(binding)
        if name not in FEATURES or FEATURES[name].read is not Support.YES
    ]
    _refuse(refused, "read", table)
    if metadata is not None and binding & {"typeWidening", "typeWidening-preview"}:
        _, schema = _facts(metadata, table)
        changes = unsupported_type_changes(schema, table=table)
        _refuse([("typeWidening", f"the type of {change}") for change in changes], "read", table)


def check_writable(
    protocol: Protocol, metadata: Metadata, *, table: str, operation: Operation
) -> None:
    """Make sure that the engine can do all that the table asks of a writer.

    Raises:
        InvalidTableError: protocol, feature lists and metadata contradict each other.
        UnsupportedFeatureError: as `check_readable`; or the table needs a newer writer version, or
            a writer feature that the engine lacks for this operation.
    """
    check_readable(protocol, metadata, table=table)
    if protocol.min_writer_version > FEATURES_WRITER_VERSION:
        raise UnsupportedFeatureError(
            f"the table needs writer version {protocol.min_writer_version}, the engine has "
            f"{FEATURES_WRITER_VERSION}; use a newer release of it",
            table=table,
            features=(),
        )
    supported = supported_features(protocol)
    properties, schema = _facts(metadata, table)
    refused = []
    for name in sorted(supported):
        if name not in FEATURES:
            refused.append((name, _UNKNOWN))
        elif not _can_write(FEATURES[name], operation, properties, schema):
            refused.append((name, FEATURES[name].note))
    _refuse(refused, f"write ({operation.value})", table)
    _check_writer_rules(protocol, supported, table)
    commit_owner(supported, properties)


def describe_features(
    protocol: Protocol, metadata: Metadata, *, table: str
) -> tuple[FeatureStatus, ...]:
    """Every known feature in the order of the registry, then the unknown ones that are listed.

    Raises:
        InvalidTableError: the schema or a property that decides is malformed.
    """
    supported = supported_features(protocol)
    properties, schema = _facts(metadata, table)
    known = [
        FeatureStatus(
            name=name,
            supported=name in supported,
            active=name in supported and _is_active(feature, properties, schema),
            can_read=feature.read is Support.YES,
            can_write=_can_write(feature, Operation.APPEND, properties, schema),
            note=feature.note,
        )
        for name, feature in FEATURES.items()
    ]
    unknown = [
        FeatureStatus(
            name=name,
            supported=True,
            active=True,
            can_read=name not in _reader_side(protocol),
            can_write=False,
            note=_UNKNOWN,
        )
        for name in sorted(supported - FEATURES.keys())
    ]
    return (*known, *unknown)


def _facts(metadata: Metadata, table: str) -> tuple[TableProperties, StructType]:
    return TableProperties(metadata.configuration, table), parse_schema(
        metadata.schema_string, table
    )


def _reader_side(protocol: Protocol) -> frozenset[str]:
    """The features that the protocol states for readers."""
    if protocol.min_reader_version == FEATURES["columnMapping"].reader_version:
        return frozenset({"columnMapping"})
    return protocol.reader_features or frozenset()


def _listed_for_writers_only(protocol: Protocol) -> frozenset[str]:
    """Reader-writer features that only ``writerFeatures`` lists.

    They should be in both lists, but some writers left them out of the readers' one while they
    made use of them. Honouring them is the only way to read such a table rightly.
    """
    listed = protocol.writer_features or frozenset()
    return frozenset(
        name
        for name in listed - _reader_side(protocol)
        if name in FEATURES and FEATURES[name].kind is Kind.READER_WRITER
    )


def _is_active(feature: Feature, properties: TableProperties, schema: StructType) -> bool:
    return feature.active is None or feature.active(properties, schema)


def _can_write(
    feature: Feature, operation: Operation, properties: TableProperties, schema: StructType
) -> bool:
    support = feature.append if operation is Operation.APPEND else feature.checkpoint
    if support is Support.WHILE_INACTIVE:
        return not _is_active(feature, properties, schema)
    return support is Support.YES


def _refuse(refused: Iterable[tuple[str, str]], verb: str, table: str) -> None:
    refused = tuple(refused)
    if refused:
        reasons = "; ".join(f"{name} ({note})" for name, note in refused)
        raise UnsupportedFeatureError(
            f"the engine can't {verb} the table because of its features {reasons}; use an engine "
            "that supports them, or have them dropped from the table",
            table=table,
            features=tuple(name for name, _ in refused),
        )


def _check_versions(protocol: Protocol, table: str) -> None:
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


def _check_lists(protocol: Protocol, table: str) -> None:
    """Each feature list belongs to its version, and readers' features bind writers as well."""
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
        # An empty list below the version says nothing; formats without null write it so.
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


def _check_writer_rules(protocol: Protocol, supported: frozenset[str], table: str) -> None:
    """What only a writer insists on: both lists for reader-writer features, and dependencies."""
    stray = _listed_for_writers_only(protocol)
    if stray:
        raise InvalidTableError(
            f"the protocol lists {sorted(stray)} in writerFeatures, but reader version "
            f"{protocol.min_reader_version} doesn't state them for readers: expected reader-writer "
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
