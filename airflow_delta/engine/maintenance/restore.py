"""Bring back an earlier version of a table: as a plan, then as one commit.

The commit takes out the files that have come since and adds those that have gone, by path and deletion
vector (`restore_files`), and leaves the table otherwise as it was, as far as that can be taken back
(`restore_definition`). The versions in between stay in the history, and a restore can be restored.

* It is a change of data: streams and readers of changes see rows come and go. They are told file by file,
  without ``cdc`` files, as by Delta Spark.
* The files that are to come back must be there (`restore_missing`). A vacuum that runs meanwhile may take
  them in the last moment, as long as they count as removed: don't run one beside a restore of files that
  were removed longer ago than ``delta.deletedFileRetentionDuration``.
* It rests on the whole of the newest version: a commit made meanwhile that changes files, schema,
  properties or domains is a conflict. Restoring isn't tried again then, since what it would undo has
  changed.
* Readers read the commit whole, which may be a large one, so that it is a good place for a checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.commit.registry import CommitOwners
from airflow_delta.engine.errors import InvalidArgumentError, ObjectNotFoundError
from airflow_delta.engine.features.protocol import Operation, check_writable
from airflow_delta.engine.log.segment import check_version
from airflow_delta.engine.maintenance.restore_definition import (
    furthest_identity_values,
    restored_domains,
    restored_metadata,
    restored_protocol,
)
from airflow_delta.engine.maintenance.restore_files import (
    FileDifferences,
    add_actions,
    file_differences,
    remove_actions,
)
from airflow_delta.engine.maintenance.restore_missing import MOST_TOLD, missing_files
from airflow_delta.engine.model.actions import DomainMetadata, Metadata, Protocol
from airflow_delta.engine.snapshot.opening import open_newest, open_snapshot
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.snapshot.timestamps import Timestamp, epoch_ms
from airflow_delta.engine.storage.base import Storage
from airflow_delta.engine.transaction.commit_loop import monotonic_s
from airflow_delta.engine.transaction.result import CommitResult
from airflow_delta.engine.transaction.transaction import OptimisticTransaction

__all__ = ["RestorePlan", "RestoreResult", "restore"]

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """What a restore will do.

    Attributes:
        table: the table's location.
        base_version: the newest version, on which the commit is based.
        version: the version that is brought back.
        timestamp_ms: the time that was asked for, in epoch ms; None where the version was.
        files: the files that come back and that go.
        protocol: the protocol that the commit leaves.
        metadata: the metadata that it leaves; high water marks of identity columns may be farther.
        domains: the metadata domains that it sets or removes.
        num_files_after: how many files the table has then.
        size_after: their sizes added up, in bytes.
    """

    table: str
    base_version: int
    version: int
    timestamp_ms: int | None
    files: FileDifferences = field(repr=False)
    protocol: Protocol
    metadata: Metadata
    domains: tuple[DomainMetadata, ...]
    num_files_after: int
    size_after: int

    @property
    def num_restored_files(self) -> int:
        """How many files come back."""
        return int(self.files.restored.num_rows)

    @property
    def num_removed_files(self) -> int:
        """How many files go."""
        return int(self.files.removed.num_rows)

    @property
    def metrics(self) -> Mapping[str, int]:
        """Files and bytes, under the names that Delta Spark gives them in the history."""
        return {
            "tableSizeAfterRestore": self.size_after,
            "numOfFilesAfterRestore": self.num_files_after,
            "numRemovedFiles": self.num_removed_files,
            "numRestoredFiles": self.num_restored_files,
            "removedFilesSize": _size(self.files.removed),
            "restoredFilesSize": _size(self.files.restored),
        }


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """What was done.

    Attributes:
        plan: what was planned.
        commit: the commit that was made; None for a dry run.
    """

    plan: RestorePlan
    commit: CommitResult | None

    @property
    def version(self) -> int | None:
        """The version that the restore has made; None for a dry run."""
        return None if self.commit is None else self.commit.version

    @property
    def checkpoint_due(self) -> bool:
        """Whether to have a checkpoint made now: after any restore, whatever the interval.

        Delta Spark does so itself; the commit may be large, and readers go through it until then.
        """
        return self.commit is not None


@dataclass(frozen=True, slots=True)
class _Versions:
    """The versions of a restore, opened.

    Attributes:
        base: the newest one.
        target: the one to be brought back.
        seen_s: when, by `monotonic_s`, the first was found to be the newest.
    """

    base: Snapshot
    target: Snapshot
    seen_s: float


def restore(
    storage: Storage,
    owners: CommitOwners,
    version: int | None = None,
    timestamp: Timestamp | None = None,
    *,
    options: Mapping[str, str] | None = None,
    ignore_missing_files: bool = False,
    dry_run: bool = False,
) -> RestoreResult:
    """Bring back an earlier version; see `DeltaTable.restore`, for the errors too.

    Args:
        storage: where the table is.
        owners: the commit owners that there are.
        version: the version.
        timestamp: a time instead.
        options: those of the table's store, for files elsewhere.
        ignore_missing_files: don't look whether the files are there.
        dry_run: only make the plan.
    """
    at_ms = None if timestamp is None else epoch_ms(timestamp, table=storage.root)
    versions = _opened(storage, owners, version, at_ms)
    plan = _plan(versions, at_ms)
    if not ignore_missing_files:
        _check_files_are_there(plan, storage, options)
    commit = None if dry_run else _commit(storage, owners, versions, plan)
    return RestoreResult(plan, commit)


def _opened(
    storage: Storage, owners: CommitOwners, version: int | None, timestamp_ms: int | None
) -> _Versions:
    table = storage.root
    if (version is None) == (timestamp_ms is None):
        found = "neither" if version is None else "both"
        raise InvalidArgumentError(
            f"expected a version or a timestamp to restore the table to, found {found}", table=table
        )
    check_version(version, table=table)
    seen_s = monotonic_s()
    base = open_newest(storage, owners=owners, for_writing=True, parsed=True)
    check_writable(base.protocol, base.metadata, table=table, operation=Operation.COMMIT)
    if timestamp_ms is not None:
        version = base.timeline.version_at(timestamp_ms)
    if version == base.version:
        raise InvalidArgumentError(
            f"version {version} is the newest one: there is nothing to restore; name an older version, "
            "such as DeltaTable.history has them",
            table=table,
        )
    return _Versions(base, open_snapshot(storage, version, owners=owners), seen_s)


def _plan(versions: _Versions, timestamp_ms: int | None) -> RestorePlan:
    base, target = versions.base, versions.target
    return RestorePlan(
        base.table,
        base.version,
        target.version,
        timestamp_ms,
        file_differences(base, target),
        restored_protocol(base, target),
        restored_metadata(base, target),
        tuple(restored_domains(base, target)),
        target.num_files,
        target.size_in_bytes,
    )


def _check_files_are_there(
    plan: RestorePlan, storage: Storage, options: Mapping[str, str] | None
) -> None:
    missing = missing_files(plan.files.restored, storage, options)
    if not missing:
        return
    count = f"{len(missing)}{' or more' if len(missing) == MOST_TOLD else ''}"
    raise ObjectNotFoundError(
        f"version {plan.version} can't be restored, because {count} of the files that it needs are gone, "
        f"such as {', '.join(missing[:_SHOWN])}: a vacuum takes files that were removed longer ago than "
        "delta.deletedFileRetentionDuration; restore a later version, put the files back, or, where the "
        "rest is worth having, ignore missing files",
        table=plan.table,
        path=missing[0],
        paths=tuple(missing),
        version=plan.version,
    )


def _commit(
    storage: Storage, owners: CommitOwners, versions: _Versions, plan: RestorePlan
) -> CommitResult:
    base, target = versions.base, versions.target
    transaction = OptimisticTransaction(
        storage,
        base,
        "RESTORE",
        operation_parameters=(
            {"version": plan.version}
            if plan.timestamp_ms is None
            else {"timestamp": _text(plan.timestamp_ms)}
        ),
        seen_s=versions.seen_s,
        owners=owners,
    )
    transaction._bring_back(target)  # noqa: SLF001 - nothing for users: the stages allow more for it
    if plan.protocol != base.protocol:
        transaction.set_protocol(plan.protocol)
    # As they are or not: to be without a change of them meanwhile is part of what is brought back.
    transaction.set_metadata(plan.metadata)
    for domain in plan.domains:
        transaction._set_domain(domain)  # noqa: SLF001 - users may not set the protocol's
    for column, value in furthest_identity_values(base, target).items():
        transaction.use_identity_values(column, value)
    for removed in remove_actions(plan.files.removed):
        transaction.remove_file(removed)
    transaction.add_files(list(add_actions(plan.files.restored, data_change=True)))
    transaction.add_files(list(add_actions(plan.files.renumbered, data_change=False)))
    return transaction.commit(operation_metrics=plan.metrics)


def _size(files: pa.Table) -> int:
    return int(pc.sum(files["size"]).as_py() or 0)


def _text(timestamp_ms: int) -> str:
    moment = _EPOCH + timedelta(milliseconds=timestamp_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
