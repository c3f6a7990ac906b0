"""Compute what a clone of a version is, except for its files: protocol, metadata and domains.

Most of it is as that version has it: schema with all metadata of its columns, partition columns, name and
description, properties, constraints and clustering columns. The rest belongs to one table alone:

* A new clone gets its own: the table's id, the start of its in-commit timestamps, names for the hidden
  columns of row tracking, row ids. It has no commit owner, no protected checkpoints, no transaction
  identifiers, and no domains other than its clustering columns.
* An updated clone keeps its own, as in a restore (`definition`): its protocol supports what both do, and
  counters such as column ids and identity values keep the higher value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from airflow_delta.engine.clock import now_ms
from airflow_delta.engine.errors import UnsupportedFeatureError
from airflow_delta.engine.features import clustering
from airflow_delta.engine.features.in_commit_timestamps import ENABLEMENT_PROPERTIES
from airflow_delta.engine.features.negotiation.lowest_protocol import lowest_protocol, protocol_with
from airflow_delta.engine.features.protocol import Operation, check_writable, supported_features
from airflow_delta.engine.features.registry import FEATURES
from airflow_delta.engine.features.requests.assigned_metadata import assign_metadata
from airflow_delta.engine.features.row_tracking import (
    MATERIALIZED_ROW_COMMIT_VERSION_COLUMN,
    MATERIALIZED_ROW_ID_COLUMN,
)
from airflow_delta.engine.maintenance.restore.definition import (
    KEPT_PROPERTIES,
    OF_THE_LOG,
    find_furthest_identity_values,
    restore_metadata,
)
from airflow_delta.engine.model.actions import DomainMetadata, Metadata, Protocol
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.transaction.intent import SystemDomain
from airflow_delta.engine.transaction.transaction import OptimisticTransaction
from airflow_delta.engine.transaction.unique import unique_text

__all__ = ["stage_clone_definition"]

_TRANSACTION_RETENTION = "delta.setTransactionRetentionDuration"

# Row ids belong to one table: two tables that go on by themselves would assign the same id to different
# rows. So a clone gets new ones, and new names for these columns.
_HIDDEN_COLUMNS = (MATERIALIZED_ROW_ID_COLUMN, MATERIALIZED_ROW_COMMIT_VERSION_COLUMN)


def stage_clone_definition(transaction: OptimisticTransaction, source: Snapshot) -> None:
    """Stage the whole definition of a clone in a transaction, without its files.

    Delta Spark also leaves out name and description.

    Args:
        transaction: of the table that becomes the clone: a new one, or an earlier clone of the same source.
        source: the version that is cloned.

    Raises:
        UnsupportedFeatureError: the clone would need a feature that the engine can't write.
        InvalidTableError: protocol and metadata contradict each other.
    """
    base = transaction.snapshot
    protocol, metadata = _compute_protocol(base, source), _compute_metadata(base, source)
    # The commit checks this too, but only after the files have been copied.
    check_writable(protocol, metadata, table=transaction.table, operation=Operation.COMMIT)
    if base is None or protocol != base.protocol:
        transaction.set_protocol(protocol)
    transaction.set_metadata(metadata)
    for domain in _compute_domains(base, source):
        transaction.declare(SystemDomain(domain))
    if base is not None:
        for column, value in find_furthest_identity_values(base, source).items():
            transaction.use_identity_values(column, value)


def _compute_protocol(base: Snapshot | None, source: Snapshot) -> Protocol:
    """Compute the protocol: the version's without the features of its log, and what the clone has."""
    supported = supported_features(source.protocol)
    wanted = supported - OF_THE_LOG
    if unknown := sorted(wanted - FEATURES.keys()):
        raise UnsupportedFeatureError(
            f"version {source.version} supports the features {unknown}, which the engine doesn't know, so "
            "it can't write a table that has them; clone it with an engine that knows them",
            table=source.table,
            features=tuple(unknown),
        )
    if base is not None:
        lacking = wanted - supported_features(base.protocol)
        return protocol_with(lacking, base.protocol) if lacking else base.protocol
    return source.protocol if wanted == supported else lowest_protocol(wanted)


def _compute_metadata(base: Snapshot | None, source: Snapshot) -> Metadata:
    """Compute the metadata. The commit moves the high water marks of identity columns."""
    if base is None:
        made = replace(source.metadata, id=unique_text(), created_time=now_ms())
        left_out: tuple[str, ...] = (*KEPT_PROPERTIES, *_HIDDEN_COLUMNS, *ENABLEMENT_PROPERTIES)
        own: dict[str, str] = {}
    else:
        made = restore_metadata(base, source)
        made = replace(made, created_time=base.metadata.created_time)
        left_out = _HIDDEN_COLUMNS
        now = base.metadata.configuration
        own = {name: now[name] for name in _HIDDEN_COLUMNS if name in now}
    # Copies find each other by transaction identifiers, so a clone doesn't expire them.
    left_out = (*left_out, _TRANSACTION_RETENTION)
    kept = {k: v for k, v in made.configuration.items() if not k.startswith(left_out)}
    # Only the names of hidden columns may be missing.
    _, configuration = assign_metadata(
        source.schema,
        {**kept, **own},
        mapped=False,
        name_of=lambda field: field.name,
        unique=unique_text,
        table=source.table,
    )
    return replace(made, configuration=configuration)


def _compute_domains(base: Snapshot | None, source: Snapshot) -> Iterator[DomainMetadata]:
    """Yield the clustering columns, if they change."""
    wanted = source.domains.get(clustering.DOMAIN)
    held = None if base is None else base.domains.get(clustering.DOMAIN)
    if wanted is not None and wanted != held:
        yield wanted
    elif wanted is None and held is not None:
        # The feature stays, and so does the domain: the table is clustered by no columns.
        yield clustering.clustering_domain([])
