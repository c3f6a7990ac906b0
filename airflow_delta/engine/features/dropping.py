"""Rules for dropping a feature from a table.

A version uses a feature by properties that turn it on, by columns, and by files. The table needs the
feature as long as its newest version uses it. The rows of the registry say which features can be dropped,
and how (`Feature.drop`). ``snapshot/feature_usage.py`` finds the files.

PROTOCOL.md, "Table Features", "Supported Features" and the sections of the features. Its rule that a
protocol never loses features has exceptions since the RFC checkpoint-protection.
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
    "find_metadata_uses",
    "how_to_drop",
    "metadata_without",
    "protocol_without",
    "without_recorded_types",
]

PROTECTION = "checkpointProtection"
"""The feature that protects the checkpoints which hide versions with dropped features."""

PROTECTION_BOUNDARY = "delta.requireCheckpointProtectionBeforeVersion"
"""The property with the version below which checkpoints are protected."""

TYPE_WIDENING = frozenset({"typeWidening", "typeWidening-preview"})
"""The feature and its preview, which are dropped in the same way."""


def find_feature(name: str, *, table: str) -> str:
    """The name of a known feature, as in the protocol.

    Args:
        name: the name; the case doesn't matter.
        table: the table's location, for messages.

    Raises:
        InvalidArgumentError: the feature is unknown.
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
    """Look up how the registry says that a feature is dropped.

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
    """Check for obstacles that only the table's owner can remove.

    Args:
        feature: a feature that the table supports.
        protocol: the table's protocol.
        metadata: the table's metadata.
        table: the table's location, for messages.

    Raises:
        ConstraintViolationError: other features of the table require the feature, or the table has
            constraints.
        InvalidTableError: columns have names that are only valid with column mapping.
    """
    supported = supported_features(protocol)
    dependents = sorted(
        name for name in supported if name in FEATURES and feature in FEATURES[name].requires
    )
    if dependents:
        stay = [name for name in dependents if not isinstance(FEATURES[name].drop, Drop)]
        advice = f"; {stay} can't be dropped, so it must stay" if stay else "; drop them first"
        raise _obstacle(
            feature, f"the features {dependents} of the table require it{advice}", table
        )
    properties = TableProperties(metadata.configuration, table)
    if feature == "checkConstraints" and properties.constraints:
        raise _obstacle(
            feature,
            f"the table has the constraints {sorted(properties.constraints)}; drop them first, by "
            "ALTER TABLE … DROP CONSTRAINT",
            table,
        )
    if feature == "columnMapping":
        metadata_without_mapping(metadata, table=table)


def _obstacle(feature: str, what: str, table: str) -> ConstraintViolationError:
    return ConstraintViolationError(
        f"the feature {feature} can't be dropped now: {what}", table=table, feature=feature
    )


def find_metadata_uses(feature: str, metadata: Metadata, *, table: str) -> tuple[str, ...]:
    """Find the uses of a feature in a version's metadata, as phrases.

    Raises:
        InvalidTableError: the schema or a relevant property can't be read.
    """
    row, found = FEATURES[feature], []
    properties = TableProperties(metadata.configuration, table)
    schema = parse_schema(metadata.schema_string, table)
    if row.active is not None and feature != PROTECTION and row.active(properties, schema):
        found.append(_use_of(feature, properties))
    if feature in TYPE_WIDENING and (columns := changed_columns(schema)):
        named = ", ".join(".".join(path) for path in columns)
        found.append(f"changes of type are recorded for the columns {named}")
    return tuple(found)


def _use_of(feature: str, properties: TableProperties) -> str:
    name = FEATURES[feature].table_property
    if name is None:
        return "the schema or the properties use it"
    return f"{name} is {properties.raw.get(name)!r}"


def disable_feature(feature: str, metadata: Metadata) -> Metadata:
    """Set the properties that stop the use of a feature.

    Args:
        feature: a feature that can be dropped.
        metadata: the table's metadata.

    Returns:
        The new metadata; the same object if nothing changes.
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
    """The metadata without records of type changes, for a table whose files all have the schema's types.

    Raises:
        InvalidTableError: the schema can't be read.
    """
    schema = without_type_changes(parse_schema(metadata.schema_string, table))
    return replace(metadata, schema_string=schema_to_json(schema))


def metadata_without(features: frozenset[str], metadata: Metadata, *, table: str) -> Metadata:
    """The metadata without the properties and the column metadata of dropped features.

    Args:
        features: the features, which nothing else uses.
        metadata: the table's metadata.
        table: the table's location, for messages.

    Raises:
        InvalidTableError: the schema can't be read.
    """
    if "columnMapping" in features:
        # If another writer turned it off, ids and names may be left.
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
    """The lowest protocol with the features of another one, except some.

    Args:
        features: the features to remove. No other feature may require them.
        protocol: the other protocol. The engine must know all of its features.
        added: features to add.
    """
    return lowest_protocol(supported_features(protocol) - features | added)
