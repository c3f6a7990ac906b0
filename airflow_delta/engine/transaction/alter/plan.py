"""`Alteration`: a planned ALTER TABLE, and the commit that makes it.

An alteration consists of new metadata that are computed from the newest version. The protocol follows from
the metadata (`upgrade_protocol`), unless the alteration sets it. Each attempt to commit checks what the
alteration requires of existing files (``prepare/existing_files.py``), so that concurrently added files
count too.
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
    """One change of a table apart from its rows.

    Attributes:
        operation: the name of the operation in ``commitInfo``, as in Delta Spark.
        parameters: its parameters.
        metadata: the metadata after the change.
        protocol: the protocol after the change; None for the one that the metadata need.
        domain: the metadata domain that the change sets; None if it sets none.
        relies_on: a metadata domain whose concurrent change is a conflict; None if there is none.
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
    """Commit an alteration.

    An alteration that changes nothing, such as the removal of a missing property, is committed too, as in
    the reference implementation. It is part of the table's history.

    Args:
        storage: the table's storage.
        base: the version from which the alteration was computed.
        alteration: the alteration.
        owners: the known commit owners; by default those that are installed.
        check: checks the rows of the version against the rules that the alteration adds; None if they stay
            unchecked.
        txn: the application and the number of a transaction identifier for the commit; None for none.

    Raises:
        ConstraintViolationError: existing data files don't satisfy the alteration.
        UnsupportedFeatureError: the table would need a feature that the engine can't write.
        InvalidTableError: the new metadata contradict themselves or the table's features.
        CommitConflictError: a concurrent commit changed what this one relies on.
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
