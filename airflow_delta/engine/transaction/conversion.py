"""Give a table to a commit owner, and take it back: one commit each.

managed-commits.md, "Converting an existing filesystem based table to managed-commit table" and "Converting
a managed-commit table to filesystem table". What the commits write is worked out in
``features/managed_commits.py``, and how they come about in ``commit/committers.py``.

Commits that were prepared before the change get in its way or it in theirs: whoever was about to commit the
old way meets the conversion as a conflict, and has to look at the table again. The conversion itself goes
on after commits that only change data.

Each is done once: where the table is what it is to be, nothing is committed. So a task that is tried again
comes to the same end.
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
    """What became of the commits of a table.

    Attributes:
        version: the version that has changed it; where nothing was committed, the newest one.
        owner: the table's commit owner now; None for a table that the file system manages.
        converted: whether it was changed now.
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
        storage: where the table is.
        newest: opens the newest version.
        owners: the commit owners that there are.
        owner: the name of the one to get the table.
        conf: what it is to know of the table; the engine adds the table's id.

    Raises:
        InvalidArgumentError: an argument isn't of the type above, or makes no sense; or the table has
            another commit owner, or this one with another configuration.
        UnsupportedFeatureError: the engine can't write the table.
        CommitOwnerUnavailableError: the owner isn't known here, or can't be reached; nothing was done.
        CommitOwnerError: the owner doesn't agree; nothing was done.
        CommitConflictError: a commit made meanwhile changed protocol or metadata.
        UnsafeStorageError: the store can't create exclusively, as giving a table away needs.
        CommitOutcomeUnknownError: the store failed; the table may have been given away.
        StorageError: the store failed, and the table was not given away.
    """
    table = storage.root
    check_text("owner", owner, table=table)
    check_conf(conf, table=table)
    base = newest()
    present = _owner_of(base)
    if present is not None:
        _check_is_asked_for(base, present, owner, conf)
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
    return _converted(transaction, protocol, metadata, owner)


def convert_to_file_system(
    storage: Storage,
    newest: Callable[[], Snapshot],
    owners: CommitOwners,
    *,
    keep_in_commit_timestamps: bool = True,
) -> ConversionResult:
    """Take a managed table back from its commit owner, who backfills it first.

    A conversion that was broken off when its commit was ratified, but not in the log, is completed.

    Args:
        storage: where the table is.
        newest: opens the newest version.
        owners: the commit owners that there are.
        keep_in_commit_timestamps: leave the feature ``inCommitTimestamp`` in the protocol, which came with
            the owner at the latest; without it the times of all versions are those of their files again.

    Raises:
        UnsupportedFeatureError: the engine can't write the table.
        CommitOwnerUnavailableError: the owner isn't known here, or can't be reached; nothing was done.
        CommitOwnerError: the owner doesn't let go of the table; nothing was done.
        CommitConflictError: a commit made meanwhile changed protocol or metadata.
        CorruptLogError: the log can't be backfilled.
        CommitOutcomeUnknownError: it can't be told whether the owner has let go of the table.
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
    return _converted(transaction, protocol, metadata, None)


def _converted(
    transaction: OptimisticTransaction, protocol: Protocol, metadata: Metadata, owner: str | None
) -> ConversionResult:
    if protocol != transaction.base.protocol:
        transaction.set_protocol(protocol)
    transaction.set_metadata(metadata)
    return ConversionResult(transaction.commit().version, owner, converted=True)


def _owner_of(base: Snapshot) -> str | None:
    """The commit owner of a table that may be written to."""
    check_writable(base.protocol, base.metadata, table=base.table, operation=Operation.COMMIT)
    return commit_owner(supported_features(base.protocol), base.properties)


def _check_is_asked_for(
    base: Snapshot, present: str, owner: str, conf: Mapping[str, str] | None
) -> None:
    if present != owner:
        raise InvalidArgumentError(
            f"the table has the commit owner {present!r}, and can't be given to {owner!r}: take it back "
            "first, by DeltaTable.convert_to_file_system",
            table=base.table,
        )
    found = {k: v for k, v in base.properties.commit_owner_conf.items() if k != TABLE_ID}
    if conf is not None and not is_same_conf(found, conf):
        raise InvalidArgumentError(
            f"the commit owner {owner!r} has the table already, with the configuration {found} and not "
            f"{dict(conf)}: leave it out, or take the table back and give it anew",
            table=base.table,
        )
