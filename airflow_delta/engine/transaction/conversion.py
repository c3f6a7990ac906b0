"""Give a table to a commit owner, or take it back, with one commit each.

``features/managed_commits.py`` computes the table properties that the commits write;
``commit/committers.py`` makes the commits. A conversion can follow concurrent commits that only change
data. Other writers' commits, if they were prepared before the conversion, conflict with it.

A table that is already as requested gets no commit, so that a repeated task has the same result.

RFC managed-commits, "Converting an existing filesystem based table to managed-commit table" and "Converting
a managed-commit table to filesystem table".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from airflow_delta.engine.commit.committers import finish_release
from airflow_delta.engine.commit.registry import CommitOwners
from airflow_delta.engine.commit.store.backfill_policy import is_same_conf
from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.features.managed_commits import (
    FEATURE,
    TABLE_ID,
    TIMESTAMPS_FEATURE,
    assign_owner,
    check_conf,
    commit_owner,
    remove_owner,
)
from airflow_delta.engine.features.negotiation.upgrade import upgrade_protocol
from airflow_delta.engine.features.protocol import Operation, check_writable, supported_features
from airflow_delta.engine.model.actions import Metadata, Protocol
from airflow_delta.engine.model.arguments import check_text
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.storage.base import Storage
from airflow_delta.engine.transaction.transaction import OptimisticTransaction
from airflow_delta.engine.transaction.unique import unique_text

__all__ = ["ConversionResult", "convert_to_file_system", "convert_to_managed"]


@dataclass(frozen=True, slots=True)
class ConversionResult:
    """The result of a conversion.

    Attributes:
        version: the version that the conversion made; if it committed nothing, the newest version.
        owner: the table's commit owner now; None if the file system manages the table.
        converted: whether a commit was made.
    """

    version: int
    owner: str | None
    converted: bool

    def to_dict(self) -> dict[str, Any]:
        """The result as plain JSON values."""
        return asdict(self)


def convert_to_managed(
    storage: Storage,
    newest: Callable[[], Snapshot],
    owners: CommitOwners,
    owner: str,
    conf: Mapping[str, str] | None = None,
) -> ConversionResult:
    """Give a table that the file system manages to a commit owner.

    Args:
        storage: the table's storage.
        newest: opens the newest version.
        owners: the known commit owners.
        owner: the name of the commit owner that gets the table.
        conf: the owner's configuration for the table; the engine adds the table's id.

    Raises:
        InvalidArgumentError: an argument has the wrong type or an invalid value; or the table has another
            commit owner, or the same owner with another configuration.
        UnsupportedFeatureError: the engine can't write the table.
        CommitOwnerUnavailableError: the owner isn't known here, or can't be reached; nothing was done.
        CommitOwnerError: the owner refuses the table; nothing was done.
        CommitConflictError: a concurrent commit changed protocol or metadata.
        UnsafeStorageError: the store has no exclusive creation, which the conversion needs.
        CommitOutcomeUnknownError: the store failed; the owner may have the table.
        StorageError: the store failed, and the owner doesn't have the table.
    """
    table = storage.root
    check_text("owner", owner, table=table)
    check_conf(conf, table=table)
    base = newest()
    present = _owner_of(base)
    if present is not None:
        _check_same_owner(base, present, owner, conf)
        return ConversionResult(base.version, present, converted=False)
    configuration = assign_owner(
        base.metadata.configuration, owner, conf or {}, table_id=unique_text(), table=table
    )
    metadata = replace(base.metadata, configuration=configuration)
    protocol = upgrade_protocol(base.protocol, metadata, before=base.metadata, table=table)
    added = {
        name: value
        for name, value in configuration.items()
        if base.metadata.configuration.get(name) != value
    }
    transaction = OptimisticTransaction(
        storage,
        base,
        "SET TBLPROPERTIES",
        operation_parameters={"properties": added},
        owners=owners,
    )
    return _commit_conversion(transaction, protocol, metadata, owner)


def convert_to_file_system(
    storage: Storage,
    newest: Callable[[], Snapshot],
    owners: CommitOwners,
    *,
    keep_in_commit_timestamps: bool = True,
) -> ConversionResult:
    """Take a managed table back from its commit owner, which backfills all commits first.

    If an earlier conversion was interrupted after the owner ratified its commit, but before the commit was
    in the log, this completes it.

    Args:
        storage: the table's storage.
        newest: opens the newest version.
        owners: the known commit owners.
        keep_in_commit_timestamps: whether to keep the feature ``inCommitTimestamp``, which managed tables
            need. Without it the modification times of the commit files are again the times of all versions.

    Raises:
        UnsupportedFeatureError: the engine can't write the table.
        CommitOwnerUnavailableError: the owner isn't known here, or can't be reached; nothing was done.
        CommitOwnerError: the owner doesn't release the table; nothing was done.
        CommitConflictError: a concurrent commit changed protocol or metadata.
        CorruptLogError: the log can't be backfilled.
        CommitOutcomeUnknownError: it is unknown whether the owner has released the table.
        StorageError: the store failed, and the owner still has the table.
    """
    base = newest()
    if _owner_of(base) is None:
        finish_release(storage, base.segment.commits)
        return ConversionResult(base.version, None, converted=False)
    lost = {FEATURE} if keep_in_commit_timestamps else {FEATURE, TIMESTAMPS_FEATURE}
    protocol = replace(
        base.protocol, writer_features=(base.protocol.writer_features or frozenset()) - lost
    )
    configuration = remove_owner(
        base.metadata.configuration, keep_in_commit_timestamps=keep_in_commit_timestamps
    )
    metadata = replace(base.metadata, configuration=configuration)
    parameters: Mapping[str, Any] = {"featureName": FEATURE, "truncateHistory": False}
    transaction = OptimisticTransaction(
        storage, base, "DROP FEATURE", operation_parameters=parameters, owners=owners
    )
    return _commit_conversion(transaction, protocol, metadata, None)


def _commit_conversion(
    transaction: OptimisticTransaction, protocol: Protocol, metadata: Metadata, owner: str | None
) -> ConversionResult:
    if protocol != transaction.base.protocol:
        transaction.set_protocol(protocol)
    transaction.set_metadata(metadata)
    return ConversionResult(transaction.commit().version, owner, converted=True)


def _owner_of(base: Snapshot) -> str | None:
    """The table's commit owner, after a check that the engine may write the table."""
    check_writable(base.protocol, base.metadata, table=base.table, operation=Operation.COMMIT)
    return commit_owner(supported_features(base.protocol), base.properties)


def _check_same_owner(
    base: Snapshot, present: str, owner: str, conf: Mapping[str, str] | None
) -> None:
    if present != owner:
        raise InvalidArgumentError(
            f"the table has the commit owner {present!r}, and can't be given to {owner!r}: take it back "
            "with DeltaTable.convert_to_file_system first",
            table=base.table,
        )
    found = {k: v for k, v in base.properties.commit_owner_conf.items() if k != TABLE_ID}
    if conf is not None and not is_same_conf(found, conf):
        raise InvalidArgumentError(
            f"the commit owner {owner!r} has the table already, with the configuration {found} instead of "
            f"{dict(conf)}: omit the configuration, or take the table back and convert it again",
            table=base.table,
        )
