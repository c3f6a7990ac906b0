"""What a table is that is made a clone of a version of another one, but for its files.

Most of it is as that version has it: schema with all that columns say of themselves, partition columns,
name and description, properties, constraints, and clustering columns. The rest belongs to one table alone:

==========================================  =========================================================
part                                        of a new clone              of one that is brought up to date
==========================================  =========================================================
the table's id                              a new one                   stays
the protocol                                the version's, without a    what both support
                                            commit owner and protected
                                            checkpoints
``delta.managedCommit.…``                   left out                    stay, with in-commit timestamps
``delta.requireCheckpointProtection…``      left out                    stays: it is about the log
where in-commit timestamps begin            told by the commit          stays
``delta.columnMapping.maxColumnId``         the version's               the higher one
high water marks of identity columns        the version's               the farther ones
hidden columns of row tracking              new names                   their names stay
row ids and row commit versions             given out by the commit     stay of files that stay
transaction identifiers                     left out                    stay
``delta.setTransactionRetentionDuration``   left out                    left out
domains of users, unknown ones              left out                    stay
==========================================  =========================================================

Row ids aren't taken along, nor would those be that data files hold, which have the source's names for the
hidden columns: an id is one of a table, and two tables that go on by themselves give the same one to
different rows. So it is with Delta Spark. The name and the description it leaves out.

A clone doesn't forget transaction identifiers, though its source may: by them copies know each other.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

from airflow_delta.engine.errors import UnsupportedFeatureError
from airflow_delta.engine.features import clustering
from airflow_delta.engine.features.in_commit_timestamps import ENABLEMENT_PROPERTIES
from airflow_delta.engine.features.negotiation.lowest_protocol import protocol_of, protocol_with
from airflow_delta.engine.features.protocol import Operation, check_writable, supported_features
from airflow_delta.engine.features.registry import FEATURES
from airflow_delta.engine.features.requests.assigned_metadata import with_assigned
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

_FORGETTING = "delta.setTransactionRetentionDuration"

_HIDDEN_COLUMNS = (MATERIALIZED_ROW_ID_COLUMN, MATERIALIZED_ROW_COMMIT_VERSION_COLUMN)


def stage_clone_definition(transaction: OptimisticTransaction, source: Snapshot) -> None:
    """Stage all that a clone is, but for its files.

    Args:
        transaction: of the table that becomes a clone, a new one or an earlier clone of the same source.
        source: the version that it becomes a clone of.

    Raises:
        UnsupportedFeatureError: the clone would need a feature that the engine can't write.
        InvalidTableError: protocol and metadata contradict each other.
    """
    base = transaction.snapshot
    protocol, metadata = _protocol(base, source), _metadata(base, source)
    # Refused by the commit as well, but after the files have been copied.
    check_writable(protocol, metadata, table=transaction.table, operation=Operation.COMMIT)
    if base is None or protocol != base.protocol:
        transaction.set_protocol(protocol)
    transaction.set_metadata(metadata)
    for domain in _domains(base, source):
        transaction.declare(SystemDomain(domain))
    if base is not None:
        for column, value in find_furthest_identity_values(base, source).items():
            transaction.use_identity_values(column, value)


def _protocol(base: Snapshot | None, source: Snapshot) -> Protocol:
    supported = supported_features(source.protocol)
    wanted = supported - OF_THE_LOG
    if unknown := sorted(wanted - FEATURES.keys()):
        raise UnsupportedFeatureError(
            f"version {source.version} supports the features {unknown}, which the engine doesn't know, so "
            "that it can't write a table that has them; clone it with an engine that knows them",
            table=source.table,
            features=tuple(unknown),
        )
    if base is not None:
        lacking = wanted - supported_features(base.protocol)
        return protocol_with(lacking, base.protocol) if lacking else base.protocol
    return source.protocol if wanted == supported else protocol_of(wanted)


def _metadata(base: Snapshot | None, source: Snapshot) -> Metadata:
    """The metadata; the marks of identity columns aren't moved here, but by the commit."""
    if base is None:
        made = replace(source.metadata, id=unique_text(), created_time=time.time_ns() // 1_000_000)
        left_out: tuple[str, ...] = (*KEPT_PROPERTIES, *_HIDDEN_COLUMNS, *ENABLEMENT_PROPERTIES)
        own: dict[str, str] = {}
    else:
        made = restore_metadata(base, source)
        made = replace(made, created_time=base.metadata.created_time)
        left_out = _HIDDEN_COLUMNS
        now = base.metadata.configuration
        own = {name: now[name] for name in _HIDDEN_COLUMNS if name in now}
    left_out = (*left_out, _FORGETTING)
    kept = {k: v for k, v in made.configuration.items() if not k.startswith(left_out)}
    # Nothing but the names of hidden columns can be lacking.
    _, configuration = with_assigned(
        source.schema,
        {**kept, **own},
        mapped=False,
        name_of=lambda field: field.name,
        unique=unique_text,
        table=source.table,
    )
    return replace(made, configuration=configuration)


def _domains(base: Snapshot | None, source: Snapshot) -> Iterator[DomainMetadata]:
    """The clustering columns, as far as they change."""
    wanted = source.domains.get(clustering.DOMAIN)
    held = None if base is None else base.domains.get(clustering.DOMAIN)
    if wanted is not None and wanted != held:
        yield wanted
    elif wanted is None and held is not None:
        # The feature stays, and with it the domain; the table is clustered by no columns.
        yield clustering.clustering_domain([])
