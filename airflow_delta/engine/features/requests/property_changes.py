"""Compute protocol and metadata of an existing table after a change of its properties.

The stored properties may differ from the user's: names and values get the case of the protocol, properties
about the protocol change the protocol, and column mapping assigns an id and a physical name to every
column. The commit then checks the requirements on existing files (``negotiation/transitions.py``), and sets
the enablement properties of in-commit timestamps.

PROTOCOL.md, "Change Metadata", "Table Features for New and Existing Tables" and the sections of the
features.
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

_OTHER_OPERATIONS: Mapping[str, str] = {
    CONSTRAINT_PREFIX: "other operations add and drop constraints, because existing rows must satisfy them",
    "delta.managedCommit.": "other operations give a table to a commit owner and take it back: "
    "DeltaTable.convert_to_managed and convert_to_file_system",
}
"""Prefixes of properties that only other operations may change, with the reason."""


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
    """Set and remove properties of a table.

    Args:
        protocol: the table's protocol.
        metadata: the table's metadata.
        set: properties to set; ``delta.feature.<name>=supported`` requests a feature.
        unset: names of properties to remove.
        if_exists: whether to ignore names in ``unset`` that the table doesn't have.
        unique: makes a unique text, such as a UUID.
        table: the table's location, for messages.

    Returns:
        The protocol, which is the same object if it suffices; and the metadata.

    Raises:
        InvalidArgumentError: a property is unknown, has an invalid value, or can't be changed this way; it
            is both set and removed; it is to be removed, but the table doesn't have it; it lists columns
            that don't exist or can't have statistics; or the mode of column mapping can't change so.
        UnsupportedFeatureError: the table would need a feature or version that the engine doesn't know or
            can't write.
        InvalidTableError: protocol and metadata contradict each other; see `upgrade.check_metadata`.
    """
    requested = parse_requested_properties(set or {}, table=table)
    removed = frozenset(_present_name(key, metadata.configuration) for key in unset)
    _check_removable(removed, requested, metadata, if_exists=if_exists, table=table)
    for name in (*requested.properties, *removed):
        for prefix, reason in _OTHER_OPERATIONS.items():
            if name.startswith(prefix):
                raise InvalidArgumentError(
                    f"the property {name} can't be set or unset: {reason}",
                    table=table,
                    property=name,
                )
    kept = {name: value for name, value in metadata.configuration.items() if name not in removed}
    changed = replace(metadata, configuration={**kept, **requested.properties})
    # Only the changed ones: a malformed property must not prevent the change of another.
    check_values(TableProperties(requested.properties, table))
    extended = extend_protocol(
        protocol,
        changed,
        before=metadata,
        requested=requested.features | _requested_mapping(requested.properties, table),
        least=protocol_of_versions(requested.reader_version, requested.writer_version),
        table=table,
    )
    check_transition(metadata, changed, protocols=(protocol, extended), table=table)
    if STATISTICS_COLUMNS in requested.properties:
        check_statistics_columns(
            parse_schema(changed.schema_string, table),
            changed.partition_columns,
            TableProperties(changed.configuration, table),
        )
    complete = _assign_metadata((protocol, metadata), (extended, changed), unique, table)
    check_metadata(extended, complete, table=table)
    return extended, complete


def _present_name(key: str, configuration: Mapping[str, str]) -> str:
    """The stored name of a property to remove, in the case that the table or the protocol has.

    Unlike a name to set it may be unknown, because any property that the table has can be removed.
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
    """The new metadata with the ids and names that their properties need."""
    mode = mapping_mode(*old, table=table)
    mapped = mapping_mode(*new, table=table) != "none"
    _, changed = new
    schema = before = parse_schema(changed.schema_string, table)
    if mode == "none":
        # Existing files weren't written with these ids and names.
        schema = without_mapping(schema)

    def _name_of(field: StructField) -> str:
        # If column mapping was off, the files contain the logical name.
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
