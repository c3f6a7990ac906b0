"""Check the table's protocol, schema and properties, and whether they fit together.

Spec: PROTOCOL.md, "Table Features"; RFC checkpoint-protection. The row of a feature in
``features/registry.py`` says what it needs.
"""

from __future__ import annotations

from collections.abc import Iterator

from airflow_delta.engine.errors import InvalidTableError, UnsupportedFeatureError
from airflow_delta.engine.features.known_properties import KNOWN
from airflow_delta.engine.features.protocol import (
    Operation,
    check_readable,
    check_writable,
    supported_features,
)
from airflow_delta.engine.features.registry import FEATURES
from airflow_delta.engine.log.completeness import earliest_version
from airflow_delta.engine.maintenance.check.findings import (
    Finding,
    error,
    info,
    join_names,
    plural,
    warning,
)
from airflow_delta.engine.maintenance.check.subject import Subject
from airflow_delta.engine.model.properties import CONSTRAINT_PREFIX, TableProperties
from airflow_delta.engine.model.schema_json import parse_schema

__all__ = ["CHECKS"]

_ALTER = "DeltaTable.alter.set_properties() or unset_properties()"
_DAY_MS = 24 * 60 * 60 * 1000
_FREE_PREFIXES = (CONSTRAINT_PREFIX, "delta.feature.")
_PREVIEW = "-preview"
_PROTECTION = "checkpointProtection"


def _check_protocol(subject: Subject) -> Iterator[Finding]:
    """Whether the engine knows all features that the table requires of readers and writers."""
    if subject.definition is None:
        return
    protocol_, metadata = subject.definition
    try:
        check_readable(protocol_, metadata, table=subject.table)
    except UnsupportedFeatureError as refusal:
        yield error("protocol-unreadable", refusal.message, "use an engine that knows the feature")
        return
    except InvalidTableError as contradiction:
        yield error(
            "protocol-invalid", contradiction.message, "nothing here: find the writer at fault"
        )
        return
    try:
        check_writable(protocol_, metadata, table=subject.table, operation=Operation.COMMIT)
    except UnsupportedFeatureError as refusal:
        yield warning(
            "protocol-unwritable",
            f"{refusal.message}. So cleanups and vacuums are refused too",
            "use an engine that knows the feature, or have it drop the feature",
        )
    except InvalidTableError as contradiction:
        # It is clear how to read the table.
        yield warning(
            "protocol-invalid",
            f"{contradiction.message}. The engine reads the table nevertheless, but doesn't write it",
            "nothing here: find the writer that is at fault",
        )


def _check_schema(subject: Subject) -> Iterator[Finding]:
    """Whether there is a readable schema."""
    if subject.definition is None or subject.schema is not None:
        return
    text = subject.definition[1].schema_string
    if text is None:
        yield warning(
            "schema-missing",
            "the metadata have no schema: rows can't be read, and the engine doesn't write the table",
            "nothing here: find the writer that is at fault",
        )
    elif subject.snapshot is not None:
        try:
            parse_schema(text, subject.table)
        except InvalidTableError as malformed:
            yield error(
                "schema-unreadable", malformed.message, "nothing here: find the writer at fault"
            )


def _check_missing_features(subject: Subject) -> Iterator[Finding]:
    """Whether properties need features that the protocol lacks."""
    if subject.definition is None or subject.properties is None:
        return
    supported = supported_features(subject.definition[0])
    if subject.schema is None:
        return
    for name, feature in FEATURES.items():
        final = name.removesuffix(_PREVIEW)
        if name != final and final in FEATURES:
            continue  # The property is that of the final feature, which is reported.
        if {final, f"{final}{_PREVIEW}"} & supported or not feature.table_property:
            continue
        if not feature.active:
            continue
        try:
            active = feature.active(subject.properties, subject.schema)
        except InvalidTableError:
            continue  # `_properties` reports it
        if active:
            yield warning(
                "property-without-feature",
                f"{feature.table_property} is set, but the protocol lacks the feature {name}: in some "
                "engines the property has no effect",
                f"{_add([name])}, or unset the property",
            )


def _check_properties(subject: Subject) -> Iterator[Finding]:
    """Whether properties have valid values and known names."""
    if subject.properties is None:
        return
    for name, attribute in vars(TableProperties).items():
        if not isinstance(attribute, property):
            continue
        try:
            getattr(subject.properties, name)
        except InvalidTableError as malformed:
            yield error(
                "property-malformed",
                f"{malformed.message}; operations that need it fail",
                _ALTER,
            )
    unknown = sorted(
        name
        for name in subject.properties.raw
        if name.lower().startswith("delta.")
        and not name.lower().startswith(_FREE_PREFIXES)
        and name != KNOWN.get(name.lower())
    )
    if unknown:
        yield info(
            "property-unknown",
            f"{join_names(unknown)}: unknown {plural(len(unknown), 'property', 'properties')}, which may "
            "be another engine's, or misspelt",
            f"{_ALTER}, if it is misspelt",
        )


def _check_retentions(subject: Subject) -> Iterator[Finding]:
    """Whether retentions fit together, and leave enough time for readers and writers."""
    if subject.properties is None:
        return
    files, log = subject.properties.deleted_file_retention_ms, subject.properties.log_retention_ms
    if files < _DAY_MS:
        yield warning(
            "retention-short",
            f"delta.deletedFileRetentionDuration is {files / _DAY_MS * 24:g} hours: a vacuum may delete "
            "files that running queries and writers need",
            _ALTER,
        )
    if log < files:
        yield warning(
            "retention-of-log-short",
            f"delta.logRetentionDuration is {log / _DAY_MS:g} days and delta.deletedFileRetentionDuration "
            f"{files / _DAY_MS:g}: files are kept for versions that a metadata cleanup makes unreadable",
            _ALTER,
        )


def _check_protected_boundary(subject: Subject) -> Iterator[Finding]:
    """Whether the version at the boundary of ``checkpointProtection`` has a checkpoint."""
    if subject.definition is None or subject.properties is None:
        return
    if _PROTECTION not in supported_features(subject.definition[0]):
        return
    boundary = subject.properties.require_checkpoint_protection_before_version
    earliest = earliest_version(subject.listing)
    if not boundary or boundary > subject.version or earliest is None or earliest >= boundary:
        return
    if not any(each.version == boundary for each in subject.listing.checkpoints):
        yield error(
            "boundary-without-checkpoint",
            f"delta.requireCheckpointProtectionBeforeVersion is {boundary}, but version {boundary} has no "
            "complete checkpoint: engines that lack a feature of older versions can't read it, nor later "
            "ones",
            f"DeltaTable.checkpoint(version={boundary})",
        )


CHECKS = (
    _check_protocol,
    _check_schema,
    _check_missing_features,
    _check_properties,
    _check_retentions,
    _check_protected_boundary,
)


def _add(features: list[str]) -> str:
    wanted = ", ".join(f"'delta.feature.{name}': 'supported'" for name in features)
    return f"DeltaTable.alter.set_properties({{{wanted}}})"
