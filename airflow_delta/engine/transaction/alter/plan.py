"""What an alteration does to a table, and the commit that does it.

An alteration is worked out of the newest version as new metadata; the protocol follows from them, or
comes with them where more is asked for (`features.upgrade`). What it demands of the files that are there
is judged with each attempt (`prepare.existing_files`), so that files that arrive meanwhile count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from airflow_delta.engine.commit.registry import CommitOwners
from airflow_delta.engine.features.negotiation.upgrade import upgrade_protocol
from airflow_delta.engine.model.actions import DomainMetadata, Metadata, Protocol
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.storage.base import Storage
from airflow_delta.engine.transaction.intent import CheckedRows, SystemDomain
from airflow_delta.engine.transaction.result import CommitResult
from airflow_delta.engine.transaction.transaction import OptimisticTransaction

__all__ = ["Alteration", "RowCheck", "commit_alteration"]

RowCheck: TypeAlias = Callable[[Snapshot, Metadata], None]
"""Makes sure that all rows of a version keep the rules that new metadata add; raises an error otherwise."""


@dataclass(frozen=True, slots=True)
class Alteration:
    """One change of a table that isn't about its rows.

    Attributes:
        operation: what the commit calls itself, as Delta Spark does.
        parameters: its parameters.
        metadata: the metadata that it leaves.
        protocol: the protocol that it leaves; None for what the metadata need.
        domain: a metadata domain that it sets; None where it sets none.
        relies_on: a metadata domain that must stay as it is meanwhile; None for none.
    """

    operation: str
    parameters: Mapping[str, Any]
    metadata: Metadata
    protocol: Protocol | None = None
    domain: DomainMetadata | None = None
    relies_on: str | None = None


def commit_alteration(
    storage: Storage,
    base: Snapshot,
    alteration: Alteration,
    *,
    owners: CommitOwners | None = None,
    check: RowCheck | None = None,
    txn: tuple[str, int] | None = None,
) -> CommitResult:
    """Make the next version of a table.

    An alteration that changes nothing, such as to remove a property that isn't there, is committed all
    the same, as by the reference implementation: it is part of the table's history.

    Args:
        storage: where the table is.
        base: the version that the alteration was worked out of.
        alteration: what to do.
        owners: the commit owners that there are; those that are installed unless given.
        check: checks the rows of the version against the rules that the alteration adds; None: nobody does.
        txn: application id and version of the transaction identifier that the commit sets; None for none.

    Raises:
        ConstraintViolationError: the table has data files that aren't as it demands.
        UnsupportedFeatureError: the table would need a feature that the engine can't write.
        InvalidTableError: the metadata contradict themselves or the table's features.
        CommitConflictError: a commit made meanwhile changed what this one rests on.
        CommitOwnerError: the table's commit owner isn't known here, can't be reached, or refuses.
        CommitOutcomeUnknownError: the store failed; the commit may have been made.
        StorageError: the store failed, and nothing was committed.
    """
    table, metadata = storage.root, alteration.metadata
    transaction = OptimisticTransaction(
        storage,
        base,
        alteration.operation,
        operation_parameters=alteration.parameters,
        owners=owners,
    )
    if txn is not None:
        transaction.set_transaction(*txn)
    protocol = alteration.protocol or upgrade_protocol(
        base.protocol, metadata, before=base.metadata, table=table
    )
    if alteration.relies_on is not None:
        transaction.read_domain(alteration.relies_on)
    if protocol != base.protocol:
        transaction.set_protocol(protocol)
    if alteration.domain is not None:
        transaction.declare(SystemDomain(alteration.domain))
    if metadata != base.metadata or (protocol == base.protocol and alteration.domain is None):
        transaction.set_metadata(metadata)
    if check is not None:
        # As late as possible: it may take hours.
        check(base, metadata)
        transaction.declare(CheckedRows())
    return transaction.commit()
