"""Compute the protocol that a table needs: as low as possible, as high as necessary.

A table needs the features that are

* requested, by name or by a version;
* used by the schema or the properties, such as a ``timestamp_ntz`` column or
  ``delta.enableDeletionVectors``;
* required by other features.

`lowest_protocol` turns them into a protocol.

PROTOCOL.md, "Table Features for New and Existing Tables", "Supported Features".
"""

from __future__ import annotations

from airflow_delta.engine.errors import InvalidTableError, UnsupportedFeatureError
from airflow_delta.engine.features.column_mapping import PHYSICAL_NAME, check_mapping
from airflow_delta.engine.features.iceberg_compat import check_iceberg_compat
from airflow_delta.engine.features.identity import identity_columns
from airflow_delta.engine.features.managed_commits import FEATURE as MANAGED_COMMIT
from airflow_delta.engine.features.managed_commits import TIMESTAMPS_FEATURE
from airflow_delta.engine.features.negotiation.lowest_protocol import protocol_with
from airflow_delta.engine.features.protocol import (
    Operation,
    check_writable,
    supported_features,
)
from airflow_delta.engine.features.registry import FEATURES
from airflow_delta.engine.features.row_tracking import check_materialized_columns
from airflow_delta.engine.features.schema_walk import all_fields
from airflow_delta.engine.model.actions import Metadata, Protocol
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.model.schema import LONG, StructType
from airflow_delta.engine.model.schema_json import parse_schema

__all__ = [
    "check_metadata",
    "check_no_shrinking",
    "extend_protocol",
    "needed_features",
    "upgrade_protocol",
]

_PREVIEW = "-preview"
_MAPPING = "columnMapping"
_NOTHING = Protocol(1, 1)


def upgrade_protocol(
    protocol: Protocol,
    metadata: Metadata,
    *,
    before: Metadata | None = None,
    requested: frozenset[str] = frozenset(),
    table: str,
) -> Protocol:
    """Compute the protocol that a table needs with new metadata, and check both.

    Args:
        protocol: the current protocol.
        metadata: the new metadata.
        before: the current metadata; see `extend_protocol`.
        requested: features that the table must support, even if it doesn't use them.
        table: the table's location, for messages.

    Returns:
        The protocol; the same object if the current one suffices.

    Raises:
        UnsupportedFeatureError: the table needs a feature that the engine can't write, or doesn't know.
        InvalidTableError: metadata and features contradict each other; see `check_metadata`.
    """
    upgraded = extend_protocol(protocol, metadata, before=before, requested=requested, table=table)
    check_metadata(upgraded, metadata, table=table)
    return upgraded


def extend_protocol(
    protocol: Protocol,
    metadata: Metadata,
    *,
    before: Metadata | None = None,
    requested: frozenset[str] = frozenset(),
    least: Protocol = _NOTHING,
    table: str,
) -> Protocol:
    """As `upgrade_protocol`, but without checks, for metadata that may still lack ids and names.

    Args:
        protocol: the current protocol.
        metadata: the new metadata.
        before: the current metadata. If they have a mode of column mapping that the protocol doesn't
            support, the files contain logical names. So the mode comes into force only if column mapping is
            requested, or required by another feature, not by any other change.
        requested: features that the table must support, even if it doesn't use them.
        least: a protocol whose versions and features the table must have too.
        table: the table's location, for messages.

    Raises:
        UnsupportedFeatureError: a requested feature is unknown.
        InvalidTableError: the schema or a relevant property can't be read.
    """
    unknown = requested - FEATURES.keys()
    if unknown:
        raise UnsupportedFeatureError(
            f"the engine doesn't know the features {sorted(unknown)}; it knows "
            f"{', '.join(sorted(FEATURES))}",
            table=table,
            features=tuple(sorted(unknown)),
        )
    supported = supported_features(protocol)
    properties = TableProperties(metadata.configuration, table)
    schema = parse_schema(metadata.schema_string, table)
    ignored = frozenset[str]()
    if before is not None and _MAPPING not in supported:
        mode = TableProperties(before.configuration, table).column_mapping_mode
        ignored = frozenset({_MAPPING}) if mode != "none" else ignored
    needed = needed_features(
        properties, schema, requested=requested, supported=supported, ignored=ignored
    )
    reached = (
        protocol.min_reader_version >= least.min_reader_version
        and protocol.min_writer_version >= least.min_writer_version
    )
    if reached and needed | supported_features(least) <= supported:
        return protocol
    return protocol_with(needed, protocol, least)


def needed_features(
    properties: TableProperties,
    schema: StructType,
    *,
    requested: frozenset[str] = frozenset(),
    supported: frozenset[str] = frozenset(),
    ignored: frozenset[str] = frozenset(),
) -> frozenset[str]:
    """The features that a table must support.

    The preview of a feature replaces the feature itself only if it is supported already, or requested.

    Args:
        properties: the table's properties.
        schema: the table's schema.
        requested: known features that are requested by name.
        supported: the features that the table supports already.
        ignored: features whose use by the metadata doesn't count.
    """
    used = _used_features(properties, schema, requested | supported) - ignored
    return _with_required(requested | used)


def check_no_shrinking(
    old: Protocol, new: Protocol, *, dropped: frozenset[str] = frozenset(), table: str
) -> None:
    """Check that a new protocol keeps all features of the old one ("Supported Features").

    A table that is taken back from its commit owner may lose ``managedCommit``, and in the same commit
    ``inCommitTimestamp`` (RFC managed-commits, "Converting a managed-commit table to filesystem table").

    Args:
        old: the protocol before.
        new: the protocol after.
        dropped: features that the commit drops on purpose; see `dropping`.
        table: the table's location, for messages.

    Raises:
        InvalidTableError: a feature is lost. Facts: features.
    """
    lost = sorted(supported_features(old) - supported_features(new) - dropped)
    if lost and MANAGED_COMMIT in lost:
        lost = sorted(set(lost) - {MANAGED_COMMIT, TIMESTAMPS_FEATURE})
    if lost:
        raise InvalidTableError(
            f"the new protocol lacks the features {lost} of the old one: expected all of them, because "
            "files and metadata may rely on them; drop a feature with DeltaTable.drop_feature",
            table=table,
            features=tuple(lost),
        )


def check_metadata(protocol: Protocol, metadata: Metadata, *, table: str) -> None:
    """Check that metadata don't contradict themselves or their protocol.

    Raises:
        UnsupportedFeatureError: the engine can't commit to such a table.
        InvalidTableError: a feature lacks another that it requires; columns lack what column mapping needs;
            Iceberg compatibility is in force with something that it excludes, such as deletion vectors; a
            clustered table has partition columns; row tracking is enabled without names for its hidden
            columns; or an identity column is invalid.
    """
    check_writable(protocol, metadata, table=table, operation=Operation.COMMIT)
    supported = supported_features(protocol)
    properties = TableProperties(metadata.configuration, table)
    schema = parse_schema(metadata.schema_string, table)
    partition_columns = metadata.partition_columns
    if "columnMapping" in supported:
        check_mapping(schema, properties)
    check_iceberg_compat(supported, properties, schema)
    if "clustering" in supported and partition_columns:
        raise InvalidTableError(
            f"the table is partitioned by {list(partition_columns)}, so it can't be clustered as well: "
            "expected one of the two",
            table=table,
        )
    if "rowTracking" in supported:
        physical = (field.metadata.get(PHYSICAL_NAME) for field in schema)
        check_materialized_columns(
            properties, [*schema.names, *(name for name in physical if isinstance(name, str))]
        )
    if "identityColumns" in supported:
        _check_identity_columns(schema, partition_columns, table)


def _used_features(
    properties: TableProperties, schema: StructType, chosen: frozenset[str]
) -> frozenset[str]:
    """The features that schema and properties use.

    NOT NULL counts as an invariant, though not in the specification: the reference implementation would
    otherwise change the protocol with its first write.
    """
    used = {
        name
        for name, feature in FEATURES.items()
        if feature.active is not None
        and not name.endswith(_PREVIEW)
        and f"{name}{_PREVIEW}" not in chosen
        and feature.active(properties, schema)
    }
    if not all(field.nullable for _, field in all_fields(schema)):
        used.add("invariants")
    return frozenset(used)


def _with_required(features: frozenset[str]) -> frozenset[str]:
    required = features.union(*(FEATURES[name].requires for name in features))
    return features if required == features else _with_required(required)


def _check_identity_columns(
    schema: StructType, partition_columns: tuple[str, ...], table: str
) -> None:
    for column in identity_columns(schema):
        field = schema.field(column.name)
        if field is None or field.data_type != LONG:
            problem = "isn't of the type long"
        elif column.name in partition_columns:
            problem = "is a partition column, which has one value per file"
        elif "delta.generationExpression" in field.metadata:
            problem = "also has a generation expression, so that its values have two definitions"
        else:
            continue
        raise InvalidTableError(
            f"the identity column {column.name!r} {problem}", table=table, column=column.name
        )
