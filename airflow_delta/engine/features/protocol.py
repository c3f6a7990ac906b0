"""Decide whether the engine may read or write a table, by its protocol.

Reading is lenient, as in the reference implementations: it ignores a contradiction that leaves no doubt
about how to read the table. Writing is strict, because a writer that guesses may damage the table for
everyone.

`protocol_lists` interprets versions and feature lists. This module exports its common names too.

PROTOCOL.md, "Protocol Evolution", "Table Features", "Reader Version Requirements" and "Writer Version
Requirements".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from airflow_delta.engine.errors import UnsupportedFeatureError
from airflow_delta.engine.features.feature import Feature, Support
from airflow_delta.engine.features.managed_commits import commit_owner
from airflow_delta.engine.features.protocol_lists import (
    FEATURES_READER_VERSION,
    FEATURES_WRITER_VERSION,
    check_lists,
    check_versions,
    check_writer_lists,
    features_for_readers,
    misplaced_reader_features,
    supported_features,
)
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
    "supported_features",
]

_UNKNOWN = "this version of the engine doesn't know it"


class Operation(Enum):
    """An operation that a writer is about to do on a table.

    ``APPEND`` is a commit that adds data files. ``COMMIT`` is one that adds none, for example of metadata,
    domains or removed files. ``CHECKPOINT`` is to write a file that only repeats the log: a checkpoint, a
    compacted commit, or a version checksum.
    """

    COMMIT = "commit"
    APPEND = "append"
    CHECKPOINT = "checkpoint"


@dataclass(frozen=True, slots=True)
class FeatureStatus:
    """The state of one feature for one table.

    Attributes:
        name: the feature's name.
        supported: whether the table's protocol lists or implies it.
        active: whether the table also uses it; true if unknown.
        can_read: whether the engine reads a table in this state, as far as this feature is concerned.
        can_write: whether it commits data files to such a table unconditionally. False if their writer must
            declare that it enforced the feature's rules.
        note: what the engine does with the feature.
    """

    name: str
    supported: bool
    active: bool
    can_read: bool
    can_write: bool
    note: str

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain JSON values."""
        return asdict(self)


def check_readable(protocol: Protocol, metadata: Metadata | None = None, *, table: str) -> None:
    """Check that the engine can read a table correctly.

    Args:
        protocol: the table's protocol.
        metadata: the table's metadata, for the checks that need it.
        table: the table's location, for messages.

    Raises:
        InvalidTableError: versions and feature lists contradict each other.
        UnsupportedFeatureError: the table needs a newer reader version or a reader feature that the engine
            lacks; or a column's type was changed in a way that the engine doesn't know.
    """
    check_versions(protocol, table)
    _check_version("reader", protocol.min_reader_version, FEATURES_READER_VERSION, table)
    check_lists(protocol, table)
    binding = features_for_readers(protocol) | misplaced_reader_features(protocol)
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


def _check_version(side: str, needed: int, newest: int, table: str) -> None:
    if needed > newest:
        raise UnsupportedFeatureError(
            f"the table needs {side} version {needed}, the engine has {newest}; use a newer release of it",
            table=table,
            features=(),
        )


def check_writable(
    protocol: Protocol,
    metadata: Metadata,
    *,
    table: str,
    operation: Operation,
    enforced: frozenset[str] = frozenset(),
) -> None:
    """Check that the engine can do all that the table requires of a writer.

    Args:
        protocol: the table's protocol.
        metadata: the table's metadata.
        table: the table's location, for messages.
        operation: the operation of the writer.
        enforced: the features whose rules the writer of the rows declares to have enforced.

    Raises:
        InvalidTableError: protocol, feature lists and metadata contradict each other.
        UnsupportedFeatureError: as `check_readable`; or the table needs a newer writer version, a writer
            feature that the engine lacks for this operation, or one whose rules the writer doesn't declare
            to have enforced.
    """
    check_readable(protocol, metadata, table=table)
    _check_version("writer", protocol.min_writer_version, FEATURES_WRITER_VERSION, table)
    supported = supported_features(protocol)
    properties, schema = _facts(metadata, table)
    refused, enforceable = [], []
    for name in sorted(supported):
        if name not in FEATURES:
            refused.append((name, _UNKNOWN))
        elif not _can_write(FEATURES[name], operation, properties, schema, enforced):
            refused.append((name, FEATURES[name].note))
            if operation is Operation.APPEND and FEATURES[name].append is Support.IF_ENFORCED:
                enforceable.append(name)
    _refuse(refused, f"write ({operation.value})", table, enforceable)
    check_writer_lists(protocol, supported, table)
    commit_owner(supported, properties)


def describe_features(
    protocol: Protocol, metadata: Metadata, *, table: str
) -> tuple[FeatureStatus, ...]:
    """The state of every known feature, in the order of the registry, and of unknown ones in the protocol.

    Raises:
        InvalidTableError: the schema or a relevant property is malformed.
    """
    supported = supported_features(protocol)
    properties, schema = _facts(metadata, table)
    known = [
        FeatureStatus(
            name=name,
            supported=name in supported,
            active=name in supported and _is_active(feature, properties, schema),
            can_read=feature.read is Support.YES,
            can_write=_can_write(feature, Operation.APPEND, properties, schema, frozenset()),
            note=feature.note,
        )
        for name, feature in FEATURES.items()
    ]
    unknown = [
        FeatureStatus(
            name=name,
            supported=True,
            active=True,
            can_read=name not in features_for_readers(protocol),
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


def _is_active(feature: Feature, properties: TableProperties, schema: StructType) -> bool:
    return feature.active is None or feature.active(properties, schema)


def _can_write(
    feature: Feature,
    operation: Operation,
    properties: TableProperties,
    schema: StructType,
    enforced: frozenset[str],
) -> bool:
    support = feature.checkpoint if operation is Operation.CHECKPOINT else feature.append
    if support is Support.IF_ENFORCED and operation is Operation.APPEND:
        return feature.name in enforced or not _is_active(feature, properties, schema)
    return support is not Support.NO


def _refuse(
    refused: Sequence[tuple[str, str]], verb: str, table: str, enforceable: Sequence[str] = ()
) -> None:
    if not refused:
        return
    remedies = []
    if enforceable:
        remedies.append(f"a writer that does so declares it with enforces={list(enforceable)}")
    if len(enforceable) < len(refused):
        others = "the others" if enforceable else "it" if len(refused) == 1 else "them"
        remedies.append(
            f"use an engine that supports {others}, or have {others} dropped from the table"
        )
    reasons = "; ".join(f"{name} ({note})" for name, note in refused)
    noun = "feature" if len(refused) == 1 else "features"
    raise UnsupportedFeatureError(
        f"the engine can't {verb} the table because of its {noun} {reasons}; {'; '.join(remedies)}",
        table=table,
        features=tuple(name for name, _ in refused),
    )
