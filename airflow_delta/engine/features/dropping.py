"""Features of a table that are dropped: which can be, what is in their way, and what is left then.

A feature leaves *traces*: properties that turn it on, columns that use it, files. As long as there are
any in the newest version the table needs the feature. Which features can be dropped, and what that takes,
is in the rows of the registry (`Feature.drop`); traces in files are the matter of
``snapshot/feature_usage.py``.

Spec: PROTOCOL.md, "Table Features", "Supported Features" and the sections of the features; its rule that a
protocol never shrinks is what `checkpointProtection` makes an exception of (checkpoint-protection.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from airflow_delta.engine.errors import ConstraintViolationError, InvalidArgumentError
from airflow_delta.engine.features.column_mapping import metadata_without_mapping
from airflow_delta.engine.features.feature import Drop
from airflow_delta.engine.features.negotiation.lowest_protocol import lowest_protocol
from airflow_delta.engine.features.protocol import supported_features
from airflow_delta.engine.features.registry import FEATURES
from airflow_delta.engine.features.type_widening import changed_columns, without_type_changes
from airflow_delta.engine.model.actions import Metadata, Protocol
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.model.schema_json import parse_schema, schema_to_json

__all__ = [
    "PROTECTION",
    "PROTECTION_BOUNDARY",
    "TYPE_WIDENING",
    "check_droppable",
    "disable_feature",
    "find_feature",
    "how_to_drop",
    "metadata_traces",
    "metadata_without",
    "protocol_without",
    "without_recorded_types",
]

PROTECTION = "checkpointProtection"
"""The feature that protects the checkpoints which hide versions with dropped features."""

PROTECTION_BOUNDARY = "delta.requireCheckpointProtectionBeforeVersion"
"""The property that names the version below which checkpoints are protected."""

TYPE_WIDENING = frozenset({"typeWidening", "typeWidening-preview"})
"""The feature and its preview, which are dropped alike."""


def find_feature(name: str, *, table: str) -> str:
    """A known feature's name as the protocol has it.

    Args:
        name: the name, in any case.
        table: the table's location, for messages.

    Raises:
        InvalidArgumentError: there is no such feature.
    """
    found = {known.lower(): known for known in FEATURES}.get(name.lower())
    if found is None:
        raise InvalidArgumentError(
            f"there is no table feature {name!r}; the engine knows {', '.join(sorted(FEATURES))}",
            table=table,
            feature=name,
        )
    return found


def how_to_drop(feature: str, *, table: str) -> Drop:
    """What the registry says about dropping a feature.

    Args:
        feature: its name, as in the registry.
        table: the table's location, for messages.

    Raises:
        InvalidArgumentError: it can't be dropped.
    """
    drop = FEATURES[feature].drop
    if isinstance(drop, Drop):
        return drop
    raise InvalidArgumentError(
        f"the feature {feature} can't be dropped: {drop}", table=table, feature=feature
    )


def check_droppable(feature: str, protocol: Protocol, metadata: Metadata, *, table: str) -> None:
    """Make sure that nothing of the table stands in the way, which its owner has to decide about.

    Args:
        feature: a feature that the table supports.
        protocol: the table's protocol.
        metadata: the table's metadata.
        table: the table's location, for messages.

    Raises:
        ConstraintViolationError: other features of the table require it, or it has constraints.
        InvalidTableError: columns have names that only column mapping allows.
    """
    supported = supported_features(protocol)
    dependents = sorted(
        name for name in supported if name in FEATURES and feature in FEATURES[name].requires
    )
    if dependents:
        stay = [name for name in dependents if not isinstance(FEATURES[name].drop, Drop)]
        advice = f"; {stay} can't be dropped, so it must stay" if stay else "; drop them first"
        raise _in_the_way(
            feature, f"the features {dependents} of the table require it{advice}", table
        )
    properties = TableProperties(metadata.configuration, table)
    if feature == "checkConstraints" and properties.constraints:
        raise _in_the_way(
            feature,
            f"the table has the constraints {sorted(properties.constraints)}; drop them first, by "
            "ALTER TABLE … DROP CONSTRAINT",
            table,
        )
    if feature == "columnMapping":
        metadata_without_mapping(metadata, table=table)


def _in_the_way(feature: str, what: str, table: str) -> ConstraintViolationError:
    return ConstraintViolationError(
        f"the feature {feature} can't be dropped now: {what}", table=table, feature=feature
    )


def metadata_traces(feature: str, metadata: Metadata, *, table: str) -> tuple[str, ...]:
    """What of a version's metadata needs a feature, as phrases; nothing where none does.

    Raises:
        InvalidTableError: the schema or a property that decides can't be read.
    """
    row, found = FEATURES[feature], []
    properties = TableProperties(metadata.configuration, table)
    schema = parse_schema(metadata.schema_string, table)
    if row.active is not None and feature != PROTECTION and row.active(properties, schema):
        found.append(_use_of(feature, properties))
    if feature in TYPE_WIDENING and (columns := changed_columns(schema)):
        named = ", ".join(".".join(path) for path in columns)
        found.append(f"changes of type are recorded of the columns {named}")
    return tuple(found)


def _use_of(feature: str, properties: TableProperties) -> str:
    name = FEATURES[feature].table_property
    if name is None:
        return "the schema or the properties use it"
    return f"{name} is {properties.raw.get(name)!r}"


def disable_feature(feature: str, metadata: Metadata) -> Metadata:
    """The metadata with the properties that stop a feature's use; the same object if they have them.

    Args:
        feature: a feature that can be dropped.
        metadata: the table's metadata.
    """
    drop = FEATURES[feature].drop
    assert isinstance(drop, Drop)
    changes: Mapping[str, str | None] = drop.disabling_properties
    if all(metadata.configuration.get(name) == value for name, value in changes.items()):
        return metadata
    kept = {name: v for name, v in metadata.configuration.items() if name not in changes}
    return replace(
        metadata,
        configuration=kept | {name: v for name, v in changes.items() if v is not None},
    )


def without_recorded_types(metadata: Metadata, *, table: str) -> Metadata:
    """The metadata without records of changed types, once all files have the types of the schema.

    Raises:
        InvalidTableError: the schema can't be read.
    """
    schema = without_type_changes(parse_schema(metadata.schema_string, table))
    return replace(metadata, schema_string=schema_to_json(schema))


def metadata_without(features: frozenset[str], metadata: Metadata, *, table: str) -> Metadata:
    """The metadata without the properties that go along with features, and what columns have of them.

    Args:
        features: features that have left no other traces.
        metadata: the table's metadata.
        table: the table's location, for messages.

    Raises:
        InvalidTableError: the schema can't be read.
    """
    if "columnMapping" in features:
        # Where it was turned off by others, ids and names may be left, which mean nothing.
        metadata = metadata_without_mapping(metadata, table=table)
    drops = [FEATURES[name].drop for name in features]
    gone = frozenset[str]().union(
        *(drop.removed_properties for drop in drops if isinstance(drop, Drop))
    )
    kept = {name: v for name, v in metadata.configuration.items() if name not in gone}
    return replace(metadata, configuration=kept)


def protocol_without(
    features: frozenset[str], protocol: Protocol, *, added: frozenset[str] = frozenset()
) -> Protocol:
    """The lowest protocol that supports all that another one does, but for some features.

    Args:
        features: the features to leave out; no others require them.
        protocol: the protocol, all of whose features are known.
        added: features that it gets instead.
    """
    return lowest_protocol(supported_features(protocol) - features | added)
