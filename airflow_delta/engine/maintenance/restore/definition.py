"""Compute what a table is after a restore, except for its files: protocol, metadata and domains.

Most of it is as the earlier version had it: schema, partition columns, name and description, properties,
user domains and clustering columns. The rest records what has happened since, and stays:
`restore_protocol`, `restore_metadata`, `find_furthest_identity_values` and `restore_domains` say what. The
commit itself keeps the higher mark of row ids, and transaction identifiers, so that no retried task writes
again.

docs/how-to/restore-a-table.md lists it for users.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from airflow_delta.engine.errors import UnsupportedFeatureError
from airflow_delta.engine.features import clustering, managed_commits
from airflow_delta.engine.features.column_mapping import (
    MAX_COLUMN_ID,
    mapping_mode,
    physical_name,
)
from airflow_delta.engine.features.identity import IdentityColumn, identity_columns
from airflow_delta.engine.features.negotiation.lowest_protocol import protocol_with
from airflow_delta.engine.features.protocol import supported_features
from airflow_delta.engine.features.registry import FEATURES
from airflow_delta.engine.model.actions import DomainMetadata, Metadata, Protocol
from airflow_delta.engine.snapshot.snapshot import Snapshot

__all__ = [
    "KEPT_PROPERTIES",
    "OF_THE_LOG",
    "find_furthest_identity_values",
    "restore_domains",
    "restore_metadata",
    "restore_protocol",
]

OF_THE_LOG = frozenset({managed_commits.FEATURE, "checkpointProtection"})
"""Features about the log and not the content of the table."""

KEPT_PROPERTIES = ("delta.managedCommit.", "delta.requireCheckpointProtectionBeforeVersion")
"""Prefixes of properties that belong to one table, whatever its content."""

_TIMESTAMPS = "delta.enableInCommitTimestamps"


def restore_protocol(base: Snapshot, target: Snapshot) -> Protocol:
    """Compute the protocol that supports what both versions do.

    Files of either version must remain readable, by time travel too. A commit owner, and protected
    checkpoints, are about the log: they are kept if they are there now, and not brought back.

    Returns:
        The protocol; the newest one itself if that suffices.

    Raises:
        UnsupportedFeatureError: it would need a feature that the engine doesn't know.
    """
    now, then = (supported_features(side.protocol) for side in (base, target))
    lacking = then - now - OF_THE_LOG
    if unknown := sorted(lacking - FEATURES.keys()):
        raise UnsupportedFeatureError(
            f"version {target.version} supports the features {unknown}, which the engine doesn't know and "
            "the table doesn't support any more; restore it with an engine that knows them",
            table=base.table,
            features=tuple(unknown),
        )
    return protocol_with(lacking, base.protocol) if lacking else base.protocol


def restore_metadata(base: Snapshot, target: Snapshot) -> Metadata:
    """Compute the metadata of the restored version, with what stays as it is now.

    Now and later the same: the table's id; the commit owner, with the in-commit timestamps that it needs;
    and the boundary of protected checkpoints. The highest column id is the higher one, so that no id is
    assigned twice.

    The high water marks of identity columns aren't in it: the commit moves them
    (`find_furthest_identity_values`).

    Raises:
        InvalidTableError: a property can't be read.
    """
    now, then = base.metadata.configuration, target.metadata.configuration
    restored = {name: value for name, value in then.items() if not name.startswith(KEPT_PROPERTIES)}
    restored |= {name: value for name, value in now.items() if name.startswith(KEPT_PROPERTIES)}
    if base.properties.commit_owner is not None:
        restored[_TIMESTAMPS] = "true"
    highest = [side.properties.column_mapping_max_column_id for side in (base, target)]
    if ids := [number for number in highest if number is not None]:
        restored[MAX_COLUMN_ID] = str(max(ids))
    return replace(target.metadata, id=base.metadata.id, configuration=restored)


def find_furthest_identity_values(base: Snapshot, target: Snapshot) -> Mapping[str, int]:
    """Find the current high water marks of the restored identity columns, by logical name.

    With them no value is generated twice.
    Columns with the same physical name are the same column.

    Raises:
        InvalidTableError: an identity column can't be read, or lacks its physical name.
    """
    marks = {
        name: column.high_water_mark
        for name, column in _find_identity_columns(base).items()
        if column.high_water_mark is not None
    }
    then = _find_identity_columns(target)
    return {column.name: marks[name] for name, column in then.items() if name in marks}


def _find_identity_columns(snapshot: Snapshot) -> Mapping[str, IdentityColumn]:
    """Return the identity columns by their physical names; none if the protocol lacks the feature."""
    if "identityColumns" not in supported_features(snapshot.protocol):
        return {}
    mode = mapping_mode(snapshot.protocol, snapshot.metadata, table=snapshot.table)
    columns = {column.name: column for column in identity_columns(snapshot.schema)}
    return {
        physical_name(field, mode): columns[field.name]
        for field in snapshot.schema
        if field.name in columns
    }


def restore_domains(base: Snapshot, target: Snapshot) -> Iterator[DomainMetadata]:
    """Yield the metadata domains that are set or removed.

    Unknown domains of the protocol stay as they are. If the table is clustered now, and wasn't then, it is
    clustered by no columns: the feature stays.
    """
    now, then = base.domains, target.domains
    for name, domain in then.items():
        if _is_restored(domain) and now.get(name) != domain:
            yield domain
    for name, domain in now.items():
        if name in then or not _is_restored(domain):
            continue
        if name == clustering.DOMAIN:
            yield clustering.clustering_domain([])
        else:
            yield replace(domain, removed=True)


def _is_restored(domain: DomainMetadata) -> bool:
    return domain.domain == clustering.DOMAIN or not domain.is_system_controlled
