"""The protocol of a new table: as old as possible, as new as its schema and properties need.

Features come from three sides:

* asked for by name: ``delta.feature.<name>`` = ``supported``;
* used by the schema or the properties, such as a ``timestamp_ntz`` column or
  ``delta.enableDeletionVectors``;
* required by other features.

Properties that speak about the protocol (``delta.feature.*``, ``delta.minReaderVersion``,
``delta.minWriterVersion``) are consumed: they are not stored with the table.

Spec: PROTOCOL.md, "Table Features for New and Existing Tables".
"""

from __future__ import annotations

from collections.abc import Mapping

from airflow_delta.engine.errors import InvalidArgumentError, UnsupportedFeatureError
from airflow_delta.engine.features.column_mapping import check_mapping
from airflow_delta.engine.features.feature import Kind
from airflow_delta.engine.features.in_commit_timestamps import ENABLEMENT_PROPERTIES
from airflow_delta.engine.features.protocol import (
    FEATURES_READER_VERSION,
    FEATURES_WRITER_VERSION,
    Operation,
    check_writable,
    legacy_features,
)
from airflow_delta.engine.features.registry import FEATURES
from airflow_delta.engine.model.actions import Metadata, Protocol
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.model.schema import StructType
from airflow_delta.engine.model.schema_json import schema_to_json

__all__ = ["protocol_for_new_table"]

_FEATURE_PREFIX = "delta.feature."
_READER_VERSION = "delta.minReaderVersion"
_WRITER_VERSION = "delta.minWriterVersion"
_CONSUMED = frozenset({_READER_VERSION, _WRITER_VERSION, "delta.ignoreProtocolDefaults"})
_PREVIEW = "-preview"

# What all writers in use give a table that asks for nothing.
_DEFAULT_READER_VERSION = 1
_DEFAULT_WRITER_VERSION = 2


def protocol_for_new_table(
    schema: StructType, properties: Mapping[str, str], *, table: str
) -> tuple[Protocol, dict[str, str]]:
    """The protocol that a new table needs, and the properties to store with it.

    Args:
        schema: the table's schema; under column mapping with ids and physical names, see
            `column_mapping.assign_mapping`.
        properties: the properties that the user asks for.
        table: the table's location, for messages.

    Raises:
        InvalidArgumentError: a property that speaks about the protocol makes no sense, or one is
            for commits to write and not for users.
        UnsupportedFeatureError: the table needs a version or feature that the engine can't write.
        InvalidTableError: a property holds a value that it can't have, or schema and column
            mapping don't fit together.
    """
    _refuse_recorded(properties, table)
    asked = _asked_features(properties, table)
    reader = _asked_version(properties, _READER_VERSION, FEATURES_READER_VERSION, table)
    writer = _asked_version(properties, _WRITER_VERSION, FEATURES_WRITER_VERSION, table)
    stored = {
        key: value
        for key, value in properties.items()
        if key not in _CONSUMED and not key.startswith(_FEATURE_PREFIX)
    }
    facts = TableProperties(stored, table)
    _check_values(facts)
    needed = _with_required(asked | _used_features(facts, schema, asked))
    protocol = _protocol(needed, reader, writer)
    metadata = Metadata(id="", schema_string=schema_to_json(schema), configuration=stored)
    check_writable(protocol, metadata, table=table, operation=Operation.APPEND)
    check_mapping(schema, facts)
    return protocol, stored


def _refuse_recorded(properties: Mapping[str, str], table: str) -> None:
    """The history of a new table isn't divided: it has in-commit timestamps throughout, or none."""
    given = [key for key in ENABLEMENT_PROPERTIES if key in properties]
    if given:
        raise InvalidArgumentError(
            f"the properties {given} tell where in a table's history in-commit timestamps begin; a "
            "new table has them from its first version on with delta.enableInCommitTimestamps "
            "alone, so leave them out",
            table=table,
        )


def _check_values(facts: TableProperties) -> None:
    """Judge every property now: later each would be an error of an operation that asks for it."""
    for name, attribute in vars(TableProperties).items():
        if isinstance(attribute, property):
            getattr(facts, name)


def _asked_features(properties: Mapping[str, str], table: str) -> frozenset[str]:
    by_lower_case = {name.lower(): name for name in FEATURES}
    asked = set()
    for key, value in properties.items():
        if not key.startswith(_FEATURE_PREFIX):
            continue
        if value.strip().lower() not in ("supported", "enabled"):
            raise InvalidArgumentError(
                f"the property {key} is {value!r}: expected 'supported'", table=table
            )
        name = key.removeprefix(_FEATURE_PREFIX)
        if name.lower() not in by_lower_case:
            raise UnsupportedFeatureError(
                f"the engine doesn't know the feature {name!r} that the property {key} asks for; "
                f"it knows {', '.join(sorted(FEATURES))}",
                table=table,
                features=(name,),
            )
        asked.add(by_lower_case[name.lower()])
    return frozenset(asked)


def _asked_version(properties: Mapping[str, str], key: str, newest: int, table: str) -> int | None:
    text = properties.get(key)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()) or int(text) < 1:
        raise InvalidArgumentError(
            f"the property {key} is {text!r}: expected a number from 1 to {newest}", table=table
        )
    if int(text) > newest:
        raise UnsupportedFeatureError(
            f"the property {key} asks for version {text}, the engine has {newest}",
            table=table,
            features=(),
        )
    return int(text)


def _used_features(
    properties: TableProperties, schema: StructType, asked: frozenset[str]
) -> frozenset[str]:
    """The features that schema and properties use. A preview is used only if it is asked for."""
    return frozenset(
        name
        for name, feature in FEATURES.items()
        if feature.active is not None
        and not name.endswith(_PREVIEW)
        and f"{name}{_PREVIEW}" not in asked
        and feature.active(properties, schema)
    )


def _with_required(features: frozenset[str]) -> frozenset[str]:
    required = features.union(*(FEATURES[name].requires for name in features))
    return features if required == features else _with_required(required)


def _protocol(needed: frozenset[str], reader: int | None, writer: int | None) -> Protocol:
    """The lowest versions that support the features and are no lower than asked for."""
    rows = [FEATURES[name] for name in needed]
    least_reader = max(reader or _DEFAULT_READER_VERSION, *(r.reader_version or 1 for r in rows), 1)
    least_writer = max(writer or _DEFAULT_WRITER_VERSION, *(r.writer_version or 1 for r in rows), 1)
    if (
        all(row.is_legacy for row in rows)
        and least_reader < FEATURES_READER_VERSION
        and least_writer < FEATURES_WRITER_VERSION
    ):
        return Protocol(least_reader, least_writer)
    # Versions that were asked for by number promise their features; the lists must keep that.
    legacy_writer = writer if writer and writer < FEATURES_WRITER_VERSION else 0
    listed = needed | legacy_features(least_reader, legacy_writer)
    if least_reader == FEATURES["columnMapping"].reader_version:
        listed |= {"columnMapping"}
    for_readers = frozenset(name for name in listed if FEATURES[name].kind is Kind.READER_WRITER)
    if least_reader < FEATURES_READER_VERSION and for_readers <= {"columnMapping"}:
        return Protocol(least_reader, FEATURES_WRITER_VERSION, None, listed)
    return Protocol(FEATURES_READER_VERSION, FEATURES_WRITER_VERSION, for_readers, listed)
