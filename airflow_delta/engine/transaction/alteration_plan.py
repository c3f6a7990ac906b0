"""What an alteration does to a table, and the commit that does it.

An alteration is worked out of the newest version as new metadata; the protocol follows from them
(`features.upgrade`). One that rests on a table without data notes that it has read all of it, so that
files that arrive meanwhile are a conflict.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_delta.engine.errors import ConstraintViolationError
from airflow_delta.engine.features.upgrade import upgraded_protocol
from airflow_delta.engine.model.actions import DomainMetadata, Metadata
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.storage.base import Storage
from airflow_delta.engine.transaction.result import CommitResult
from airflow_delta.engine.transaction.transaction import OptimisticTransaction

__all__ = ["Alteration", "commit_alteration"]


@dataclass(frozen=True, slots=True)
class Alteration:
    """One change of a table that isn't about its rows.

    Attributes:
        operation: what the commit calls itself, as Delta Spark does.
        parameters: its parameters.
        metadata: the metadata that it leaves.
        asked: features that the table is to support, whether or not its metadata use them.
        domain: a metadata domain that it sets; None where it sets none.
        relies_on: a metadata domain that must stay as it is meanwhile; None for none.
        row_rule: what it demands of each row, so that it takes a table without any; None where it
            demands nothing.
    """

    operation: str
    parameters: Mapping[str, Any]
    metadata: Metadata
    asked: frozenset[str] = frozenset()
    domain: DomainMetadata | None = None
    relies_on: str | None = None
    row_rule: str | None = None


def commit_alteration(storage: Storage, base: Snapshot, alteration: Alteration) -> CommitResult:
    """Make the next version of a table.

    An alteration that changes nothing, such as to remove a property that isn't there, is committed all
    the same, as by the reference implementation: it is part of the table's history.

    Args:
        storage: where the table is.
        base: the version that the alteration was worked out of.
        alteration: what to do.

    Raises:
        ConstraintViolationError: the table has data that nobody has checked against what is demanded.
        UnsupportedFeatureError: the table would need a feature that the engine can't write.
        InvalidTableError: the metadata contradict themselves or the table's features.
        CommitConflictError: a commit made meanwhile changed what this one rests on.
        CommitOutcomeUnknownError: the store failed; the commit may have been made.
        StorageError: the store failed, and nothing was committed.
    """
    table, metadata = storage.root, alteration.metadata
    transaction = OptimisticTransaction(
        storage, base, alteration.operation, operation_parameters=alteration.parameters
    )
    protocol = upgraded_protocol(base.protocol, metadata, asked=alteration.asked, table=table)
    if alteration.relies_on is not None:
        transaction.read_domain(alteration.relies_on)
    if alteration.row_rule is not None:
        _check_no_rows(transaction.read_table(), alteration.row_rule)
    if protocol != base.protocol:
        transaction.set_protocol(protocol)
    if alteration.domain is not None:
        transaction._set_domain(alteration.domain)  # noqa: SLF001 - users may not set the protocol's
    if metadata != base.metadata or (protocol == base.protocol and alteration.domain is None):
        transaction.set_metadata(metadata)
    return transaction.commit()


def _check_no_rows(snapshot: Snapshot, rule: str) -> None:
    if snapshot.num_files:
        raise ConstraintViolationError(
            f"the table has {snapshot.num_files} data files, whose rows must be checked against "
            f"{rule} first; the engine doesn't see rows, so it takes a table without data: have an "
            "engine that runs SQL do it",
            table=snapshot.table,
            version=snapshot.version,
        )
