"""Changes of an existing table's properties.

What users set is not always what is stored: names and words are put in the case of the protocol,
properties that speak about the protocol become a part of it (`upgrade`), and turning on column mapping
gives every column an id and a physical name. What else follows is up to others: what the table's files
must be like (`transitions`), the enablement properties of in-commit timestamps (their commit).

Column mapping is turned on by its mode, or by whatever lets the protocol support it where the table has a
mode already: that one has counted for nothing so far.

Spec: PROTOCOL.md, "Change Metadata", "Table Features for New and Existing Tables" and the sections of
the features; edge case E18.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.features.column_mapping import (
    mapping_mode,
    physical_name,
    without_mapping,
)
from airflow_delta.engine.features.known_properties import (
    KNOWN,
    check_removable,
    check_values,
)
from airflow_delta.engine.features.negotiation.lowest_protocol import protocol_of_versions
from airflow_delta.engine.features.negotiation.transitions import check_transition
from airflow_delta.engine.features.negotiation.upgrade import (
    check_metadata,
    extend_protocol,
)
from airflow_delta.engine.features.requests.assigned_metadata import assign_metadata
from airflow_delta.engine.features.requests.requested_properties import (
    RequestedProperties,
    parse_requested_properties,
)
from airflow_delta.engine.features.statistics_columns import (
    STATISTICS_COLUMNS,
    check_statistics_columns,
)
from airflow_delta.engine.model.actions import Metadata, Protocol
from airflow_delta.engine.model.properties import CONSTRAINT_PREFIX, TableProperties
from airflow_delta.engine.model.schema import StructField
from airflow_delta.engine.model.schema_json import parse_schema, schema_to_json

__all__ = ["change_properties"]

_OTHERWISE: Mapping[str, str] = {
    CONSTRAINT_PREFIX: "a constraint is added and dropped by operations of their own, because the rows "
    "that are there must fulfil it",
    "delta.managedCommit.": "a table is given to a commit owner, and taken back, by operations of their "
    "own: DeltaTable.convert_to_managed and convert_to_file_system",
}


def change_properties(
    protocol: Protocol,
    metadata: Metadata,
    *,
    set: Mapping[str, str] | None = None,  # noqa: A002 - the word that SQL has for it
    unset: Iterable[str] = (),
    if_exists: bool = False,
    unique: Callable[[], str],
    table: str,
) -> tuple[Protocol, Metadata]:
    """A table's protocol and metadata with other properties.

    Args:
        protocol: the table's.
        metadata: the table's.
        set: properties to set; ``delta.feature.<name>=supported`` asks for a feature.
        unset: names of properties to remove.
        if_exists: pass over names that the table doesn't have.
        unique: makes a text that no other call has made or will make, such as a UUID.
        table: the table's location, for messages.

    Returns:
        The protocol, the same object where no more is needed, and the metadata.

    Raises:
        InvalidArgumentError: a property is unknown, or not for users to change this way; it has a value
            that it can't have; it is both set and removed, or not there to be removed; it lists columns
            that the table hasn't, or that have no statistics; or column mapping can't change so.
        UnsupportedFeatureError: the table would need a feature or version that the engine doesn't know
            or can't write.
        InvalidTableError: protocol and metadata don't fit together; see `upgrade.check_metadata`.
    """
    requested = parse_requested_properties(set or {}, table=table)
    removed = frozenset(_present_name(key, metadata.configuration) for key in unset)
    _check_removable(removed, requested, metadata, if_exists=if_exists, table=table)
    for name in (*requested.properties, *removed):
        for prefix, reason in _OTHERWISE.items():
            if name.startswith(prefix):
                raise InvalidArgumentError(
                    f"the property {name} can't be set or unset: {reason}",
                    table=table,
                    property=name,
                )
    kept = {name: value for name, value in metadata.configuration.items() if name not in removed}
    changed = replace(metadata, configuration={**kept, **requested.properties})
    # Not the others: a malformed one must not stop the change of another.
    check_values(TableProperties(requested.properties, table))
    grown = extend_protocol(
        protocol,
        changed,
        before=metadata,
        requested=requested.features | _requested_mapping(requested.properties, table),
        least=protocol_of_versions(requested.reader_version, requested.writer_version),
        table=table,
    )
    check_transition(metadata, changed, protocols=(protocol, grown), table=table)
    if STATISTICS_COLUMNS in requested.properties:
        check_statistics_columns(
            parse_schema(changed.schema_string, table),
            changed.partition_columns,
            TableProperties(changed.configuration, table),
        )
    made = _assign_metadata((protocol, metadata), (grown, changed), unique, table)
    check_metadata(grown, made, table=table)
    return grown, made


def _present_name(key: str, configuration: Mapping[str, str]) -> str:
    """The name to remove: as it is there, or else as it would be stored.

    Unlike a name to set it may be one that nobody knows: what is there can be taken away.
    """
    return key if key in configuration else KNOWN.get(key.lower(), key)


def _check_removable(
    removed: frozenset[str],
    requested: RequestedProperties,
    metadata: Metadata,
    *,
    if_exists: bool,
    table: str,
) -> None:
    for name in removed:
        check_removable(name, table=table)
    both = sorted(removed & requested.properties.keys())
    if both:
        raise InvalidArgumentError(f"the properties {both} are both set and unset", table=table)
    absent = sorted(removed - metadata.configuration.keys())
    if absent and not if_exists:
        raise InvalidArgumentError(
            f"the table has no properties {absent} to unset; it has {sorted(metadata.configuration)}",
            table=table,
        )


def _requested_mapping(properties: Mapping[str, str], table: str) -> frozenset[str]:
    mode = TableProperties(properties, table).column_mapping_mode
    return frozenset() if mode == "none" else frozenset({"columnMapping"})


def _assign_metadata(
    old: tuple[Protocol, Metadata],
    new: tuple[Protocol, Metadata],
    unique: Callable[[], str],
    table: str,
) -> Metadata:
    """The new metadata with the ids and names that its properties make necessary."""
    mode = mapping_mode(*old, table=table)
    mapped = mapping_mode(*new, table=table) != "none"
    _, changed = new
    schema = before = parse_schema(changed.schema_string, table)
    if mode == "none":
        # Ids and names left over from elsewhere mean nothing to the files that are there.
        schema = without_mapping(schema)

    def _name_of(field: StructField) -> str:
        # What the files call a column that wasn't mapped when they were written.
        return field.name if mode == "none" else physical_name(field, mode)

    schema, configuration = assign_metadata(
        schema,
        changed.configuration,
        mapped=mapped,
        name_of=_name_of,
        unique=unique,
        table=table,
    )
    if not mapped or schema == before:
        return replace(changed, configuration=configuration)
    return replace(changed, schema_string=schema_to_json(schema), configuration=configuration)
