"""Compute the protocol, schema, properties and metadata domains of a new table.

The protocol is as low as possible (``negotiation/upgrade.py``). If nothing is requested, it has the
versions that all writers in use choose. The properties are those of the user, without those about the
protocol, and with those that the features need (`assigned_metadata`):

===========================  ====================================================================
requested                    what is added
===========================  ====================================================================
column mapping               ids and physical names of all columns that have none
Iceberg compatibility        column mapping by name, unless a mode is given; ids of nested fields
row tracking                 names of the hidden columns
clustering columns           the metadata domain that lists them, by physical names
in-commit timestamps         nothing: a new table has them from version 0
a commit owner               in-commit timestamps, and the table's id in the owner's configuration
===========================  ====================================================================

A table may have no columns yet, as in the reference implementation.

PROTOCOL.md, "Table Features for New and Existing Tables" and the sections of the features.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.features.clustering import clustering_domain
from airflow_delta.engine.features.clustering_choice import clustering_paths
from airflow_delta.engine.features.column_mapping import without_mapping
from airflow_delta.engine.features.column_names import check_column_names, check_names_not_empty
from airflow_delta.engine.features.known_properties import check_values
from airflow_delta.engine.features.managed_commits import assign_owner
from airflow_delta.engine.features.negotiation.lowest_protocol import (
    protocol_of_versions,
    protocol_with,
)
from airflow_delta.engine.features.negotiation.upgrade import (
    check_metadata,
    needed_features,
)
from airflow_delta.engine.features.requests.assigned_metadata import assign_metadata
from airflow_delta.engine.features.requests.requested_properties import (
    RequestedProperties,
    parse_requested_properties,
)
from airflow_delta.engine.features.statistics_columns import check_statistics_columns
from airflow_delta.engine.model.actions import DomainMetadata, Metadata, Protocol
from airflow_delta.engine.model.arguments import check_texts
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.model.schema import StructType
from airflow_delta.engine.model.schema_json import schema_to_json

__all__ = ["NewTable", "new_table"]

_MODE = "delta.columnMapping.mode"
_TIMESTAMPS = "delta.enableInCommitTimestamps"
# The version that all writers in use choose if nothing is requested.
_DEFAULT_WRITER_VERSION = 2


@dataclass(frozen=True, slots=True)
class NewTable:
    """The content of version 0, without the table's id, name, description and time of creation.

    Attributes:
        protocol: the protocol.
        schema: the schema, with ids and physical names if the table has column mapping.
        partition_columns: the partition columns.
        configuration: the properties to store.
        domains: the metadata domains.
    """

    protocol: Protocol
    schema: StructType
    partition_columns: tuple[str, ...]
    configuration: dict[str, str]
    domains: tuple[DomainMetadata, ...]

    def metadata(
        self,
        *,
        id: str,  # noqa: A002 - the protocol's word
        name: str | None = None,
        description: str | None = None,
        created_time: int | None = None,
    ) -> Metadata:
        """Make the metadata of the table.

        Args:
            id: the table's unique identifier.
            name: the user's name for the table.
            description: the user's description.
            created_time: the time of creation, in epoch ms.
        """
        return Metadata(
            id=id,
            name=name,
            description=description,
            schema_string=schema_to_json(self.schema),
            partition_columns=self.partition_columns,
            created_time=created_time,
            configuration=self.configuration,
        )


def new_table(
    schema: StructType,
    properties: Mapping[str, str],
    *,
    partition_by: Sequence[str] = (),
    cluster_by: Sequence[str | Sequence[str]] = (),
    unique: Callable[[], str],
    table: str,
) -> NewTable:
    """Compute the definition of a new table.

    Args:
        schema: the columns. Their ids and physical names are kept with column mapping. Without it they are
            removed, because they would count when it is turned on later.
        properties: the requested properties.
        partition_by: the partition columns, in order.
        cluster_by: the clustering columns, in order; a column inside a struct is a list of names.
        unique: makes a unique text, such as a UUID.
        table: the table's location, for messages.

    Raises:
        InvalidArgumentError: partition, clustering or statistics columns are invalid; a property is
            unknown, has an invalid value, or may only be set by commits; or a requested version or feature
            is invalid.
        UnsupportedFeatureError: the table needs a version or feature that the engine can't write.
        InvalidTableError: schema, partitioning and properties contradict each other; see
            `upgrade.check_metadata`.
    """
    check_names_not_empty(schema, table=table)
    partition_columns = _partition_columns(schema, partition_by, table)
    requested = parse_requested_properties(properties, table=table)
    check_values(TableProperties(requested.properties, table))
    implied = _with_implied(requested.properties, unique, table)
    mode = TableProperties(implied, table).column_mapping_mode
    made, configuration = assign_metadata(
        without_mapping(schema) if mode == "none" else schema,
        implied,
        mapped=mode != "none",
        name_of=lambda _: f"col-{unique()}",
        unique=unique,
        table=table,
    )
    facts = TableProperties(configuration, table)
    if mode == "none":
        # Files don't hold the partition columns, and needn't call them anything.
        in_files = tuple(field for field in schema if field.name not in partition_columns)
        check_column_names(StructType(in_files), table=table)
    check_statistics_columns(made, partition_columns, facts)
    domains: tuple[DomainMetadata, ...] = ()
    chosen = requested.features
    if cluster_by:
        paths = clustering_paths(made, cluster_by, partition_columns, facts, mode=mode)
        domains = (clustering_domain(paths),)
        chosen |= {"clustering"}
    protocol = _protocol(needed_features(facts, made, requested=chosen), requested)
    new = NewTable(protocol, made, partition_columns, configuration, domains)
    check_metadata(protocol, new.metadata(id=""), table=table)
    return new


def _with_implied(
    configuration: dict[str, str], unique: Callable[[], str], table: str
) -> dict[str, str]:
    """Add properties that others imply: column mapping for Iceberg, and the table's id for its owner."""
    facts = TableProperties(configuration, table)
    if facts.iceberg_compat_v1_enabled or facts.iceberg_compat_v2_enabled:
        configuration = {_MODE: "name", **configuration}
    if facts.commit_owner is None:
        return configuration
    made = assign_owner(
        configuration, facts.commit_owner, facts.commit_owner_conf, table_id=unique(), table=table
    )
    # If in-commit timestamps are requested to be off, they stay off, and the commit will refuse that.
    return {**made, _TIMESTAMPS: configuration.get(_TIMESTAMPS, made[_TIMESTAMPS])}


def _protocol(needed: frozenset[str], requested: RequestedProperties) -> Protocol:
    """The lowest protocol that supports the features, and has at least the requested versions."""
    made = protocol_with(
        needed, protocol_of_versions(requested.reader_version, requested.writer_version)
    )
    if requested.writer_version or made.min_writer_version >= _DEFAULT_WRITER_VERSION:
        return made
    return Protocol(made.min_reader_version, _DEFAULT_WRITER_VERSION)


def _partition_columns(
    schema: StructType, partition_by: Sequence[str], table: str
) -> tuple[str, ...]:
    expected = "a list of columns, such as ['day']"
    columns = check_texts("partition_by", partition_by, expected, table=table)
    if unknown := [name for name in columns if schema.field(name) is None]:
        problem = f"{unknown} are no columns of the table, which has {', '.join(schema.names)}"
    elif len(set(columns)) < len(columns):
        problem = "a column is listed twice"
    elif columns and len(columns) == len(schema.fields):
        problem = "these are all columns; a data file needs at least one other column"
    else:
        return columns
    raise InvalidArgumentError(f"partition_by={partition_by!r}: {problem}", table=table)
