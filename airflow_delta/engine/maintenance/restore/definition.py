"""What a table is once an earlier version of it is brought back, but for its files.

Most of it is as that version had it: schema, partition columns, name and description, properties, the
domains of users and the clustering columns. The rest says what has happened to the table since, which
bringing back a version doesn't undo:

==========================================  =========================================================
part                                        becomes
==========================================  =========================================================
the table's id                              stays
the protocol                                what both versions support: files of either remain to be
                                            read, by time travel too. But a commit owner, and protected
                                            checkpoints, are there only if they are there now
``delta.managedCommit.…``                   stay; with them in-commit timestamps, which they need
``delta.requireCheckpointProtection…``      stays: it is about the log
``delta.columnMapping.maxColumnId``         the higher one, so that no id is given out twice
high water marks of identity columns        the farther ones, so that no value is made twice
the high water mark of row ids              the higher one; the commit sees to it
transaction identifiers                     stay, so that no retried task writes again
a domain of the protocol that nobody knows  stays
==========================================  =========================================================

A table that is clustered now, and wasn't, is clustered by no columns from then on, since the feature stays.
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
"""Features that say how the log is kept, whatever the table holds."""

KEPT_PROPERTIES = ("delta.managedCommit.", "delta.requireCheckpointProtectionBeforeVersion")
"""How properties begin that belong to one table, whatever it holds."""

_TIMESTAMPS = "delta.enableInCommitTimestamps"


def restore_protocol(base: Snapshot, target: Snapshot) -> Protocol:
    """The protocol that supports what both versions do; see the module.

    Returns:
        The protocol; the newest one itself where that is enough.

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
    """The metadata of the version to be brought back, with what stays as it is; see the module.

    The marks of identity columns aren't in it: the commit moves them (`find_furthest_identity_values`).

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
    """How far the values of the restored identity columns have come by now, by logical name.

    A column is the same one if files call it the same.

    Raises:
        InvalidTableError: an identity column can't be read, or lacks its physical name.
    """
    marks = {
        place: column.high_water_mark
        for place, column in _identity_columns(base).items()
        if column.high_water_mark is not None
    }
    then = _identity_columns(target)
    return {column.name: marks[place] for place, column in then.items() if place in marks}


def _identity_columns(snapshot: Snapshot) -> Mapping[str, IdentityColumn]:
    """The identity columns by their physical names; none where the protocol gives them no meaning."""
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
    """The metadata domains that are to be set or removed; see the module."""
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
