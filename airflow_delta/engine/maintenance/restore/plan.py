"""Restore an earlier version of a table: as a plan, then as one commit.

The commit removes the files that have come since and adds those that have gone (``files.py``), and sets
protocol, metadata and domains (``definition.py``). The versions in between stay in the history, and a
restore can be restored.

1. `restore` opens the newest version, and looks for the commit of an earlier try, if ``once`` is given: a
   retry must not restore again what came after the first try (``transaction/once.py``).
2. It plans, and checks that the files exist (``missing_files.py``).
3. It commits. Any commit made concurrently that changes files, schema, properties or domains is a conflict,
   and isn't retried, because the plan was made for another state.
4. It checks the files again. A vacuum may have deleted them in the meantime
   (``vacuum/concurrent_commits.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_delta.engine.commit.registry import CommitOwners
from airflow_delta.engine.errors import (
    CommitConflictError,
    InvalidArgumentError,
    ObjectNotFoundError,
)
from airflow_delta.engine.features.protocol import Operation, check_writable
from airflow_delta.engine.log.commit_file import read_commit_info
from airflow_delta.engine.log.segment import check_version
from airflow_delta.engine.maintenance.restore.definition import (
    find_furthest_identity_values,
    restore_domains,
    restore_metadata,
    restore_protocol,
)
from airflow_delta.engine.maintenance.restore.files import (
    FileDifferences,
    compare_versions,
)
from airflow_delta.engine.maintenance.restore.missing_files import (
    check_after_restore,
    check_before_restore,
    check_earlier_restore,
    find_missing_among_staying,
)
from airflow_delta.engine.model.actions import DomainMetadata, Metadata, Protocol
from airflow_delta.engine.model.times import utc_datetime
from airflow_delta.engine.snapshot.opening import open_newest, open_snapshot
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.snapshot.timestamps import Timestamp, epoch_ms, utc_text
from airflow_delta.engine.snapshot.transactions import TransactionSearch
from airflow_delta.engine.storage.base import Storage
from airflow_delta.engine.storage.file_access import FileAccess
from airflow_delta.engine.transaction.commit_loop import monotonic_s
from airflow_delta.engine.transaction.file_rows import add_actions, remove_actions
from airflow_delta.engine.transaction.intent import RestoreVersion, SystemDomain
from airflow_delta.engine.transaction.once import earlier_commit
from airflow_delta.engine.transaction.result import CommitResult
from airflow_delta.engine.transaction.transaction import OptimisticTransaction

__all__ = ["RestorePlan", "RestoreResult", "restore"]

_EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """The plan of a restore.

    Attributes:
        table: the table's location.
        base_version: the newest version, on which the commit is based.
        version: the version to restore.
        timestamp_ms: the requested time, in epoch ms; None if a version was requested.
        files: the files to add and to remove.
        protocol: the protocol after the commit.
        metadata: the metadata after the commit; high water marks of identity columns may be higher.
        domains: the metadata domains that it sets or removes.
        num_files_after: how many files the table has afterwards.
        size_after: the sum of their sizes, in bytes.
        missing: the files that stay in the table and don't exist, at most 100; None if nobody has looked.
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
    missing: tuple[str, ...] | None = None

    @property
    def num_restored_files(self) -> int:
        """The number of files that are added again."""
        return int(self.files.restored.num_rows)

    @property
    def num_removed_files(self) -> int:
        """The number of files that are removed."""
        return int(self.files.removed.num_rows)

    @property
    def metrics(self) -> Mapping[str, int]:
        """Files and bytes, by the names that Delta Spark uses in the history."""
        return {
            "tableSizeAfterRestore": self.size_after,
            "numOfFilesAfterRestore": self.num_files_after,
            "numRemovedFiles": self.num_removed_files,
            "numRestoredFiles": self.num_restored_files,
            "removedFilesSize": _size(self.files.removed),
            "restoredFilesSize": _size(self.files.restored),
        }

    @property
    def timestamp(self) -> datetime | None:
        """The requested time, in UTC; None if a version was requested."""
        return utc_datetime(self.timestamp_ms)

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain JSON values, as `RestoreResult.to_dict` has them of a dry run."""
        return RestoreResult(self, None, self.version, self.metrics, self.metadata.id).to_dict()


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """The result of a restore.

    Attributes:
        plan: what was planned; None if the commit of an earlier try was found.
        commit: the commit that was made, or that of an earlier try, marked ``repeated``; None for a dry
            run.
        restored_version: the version that was restored, or would be; None if an earlier try was given a
            time.
        metrics: see `RestorePlan.metrics`. For an earlier try, what the history has of them.
        table_id: the table's id.
    """

    plan: RestorePlan | None
    commit: CommitResult | None
    restored_version: int | None
    metrics: Mapping[str, int]
    table_id: str

    @property
    def version(self) -> int | None:
        """The version that the restore has made; None for a dry run."""
        return None if self.commit is None else self.commit.version

    @property
    def checkpoint_due(self) -> bool:
        """Whether to make a checkpoint now: after any restore, whatever the interval.

        The commit may be large, and readers read it until the next checkpoint. Delta Spark makes one too.
        """
        return self.commit is not None

    def to_dict(self) -> dict[str, Any]:
        """The report, as plain JSON values.

        Returns:
            ``version`` (that of the commit; for a dry run the newest one), ``restored_version``,
            ``committed``, ``repeated`` (whether it is the commit of an earlier try), ``files_restored``,
            ``files_removed``, ``bytes_restored``, ``bytes_removed``, ``files`` and ``bytes`` of the table
            afterwards, and ``files_missing`` (the first few files that stay in the table and don't exist;
            None if nobody has looked). For an earlier try the numbers are what the history has of them,
            else None.
        """
        version = self.version
        if version is None and self.plan is not None:
            version = self.plan.base_version
        missing = None if self.plan is None else self.plan.missing
        return {
            "version": version,
            "restored_version": self.restored_version,
            "committed": self.commit is not None,
            "repeated": self.commit is not None and self.commit.repeated,
            "files_restored": self.metrics.get("numRestoredFiles"),
            "files_removed": self.metrics.get("numRemovedFiles"),
            "bytes_restored": self.metrics.get("restoredFilesSize"),
            "bytes_removed": self.metrics.get("removedFilesSize"),
            "files": self.metrics.get("numOfFilesAfterRestore"),
            "bytes": self.metrics.get("tableSizeAfterRestore"),
            "files_missing": None if missing is None else list(missing[:_EXAMPLES]),
        }


@dataclass(frozen=True, slots=True)
class _Request:
    """A request to restore, and the newest version.

    Attributes:
        base: the newest version.
        version: the version to restore; None if a time is given.
        timestamp_ms: that time, in epoch ms; None if a version is given.
        newest_at_s: when the base was found to be the newest, by `monotonic_s`.
    """

    base: Snapshot
    version: int | None
    timestamp_ms: int | None
    newest_at_s: float


def restore(
    access: FileAccess,
    owners: CommitOwners,
    version: int | None = None,
    timestamp: Timestamp | None = None,
    *,
    ignore_missing_files: bool = False,
    once: tuple[str, int] | None = None,
    dry_run: bool = False,
) -> RestoreResult:
    """Restore an earlier version; see `DeltaTable.restore`, also for the errors.

    Args:
        access: opens the table's files.
        owners: the known commit owners.
        version: the version.
        timestamp: a time instead.
        ignore_missing_files: don't check whether the files exist.
        once: the transaction identifier by which a retry finds the commit of an earlier try.
        dry_run: only make the plan.
    """
    storage = access.storage
    at_ms = None if timestamp is None else epoch_ms(timestamp, table=storage.root)
    request = _open_request(storage, owners, version, at_ms)
    transaction = _begin(storage, owners, request)
    if once is not None:
        # Before the search, so that a commit made after the searched version is a conflict.
        transaction.set_transaction(*once)
        if (earlier := _find_earlier(request.base, request, once)) is not None:
            if not ignore_missing_files:
                check_earlier_restore(request.base, earlier.version, access)
            return earlier
    target = open_snapshot(storage, _choose_version(request), owners=owners, verified=True)
    plan = _plan(request, target)
    if not ignore_missing_files:
        check_before_restore(request.base, plan.version, plan.files.restored, access)
        missing = find_missing_among_staying(target, plan.files.restored, access)
        plan = replace(plan, missing=missing)
    if dry_run:
        return RestoreResult(plan, None, plan.version, plan.metrics, plan.metadata.id)
    try:
        commit = _commit(transaction, target, plan)
    except CommitConflictError:
        # The conflicting commit, or one near it, may be that of another try.
        newest = open_newest(storage, owners=owners, for_writing=True)
        earlier = None if once is None else _find_earlier(newest, request, once)
        if earlier is None:
            raise
        if not ignore_missing_files:
            check_earlier_restore(newest, earlier.version, access)
        return earlier
    if not ignore_missing_files:
        check_after_restore(commit.version, plan.files.restored, access)
    return RestoreResult(plan, commit, plan.version, plan.metrics, plan.metadata.id)


def _open_request(
    storage: Storage, owners: CommitOwners, version: int | None, timestamp_ms: int | None
) -> _Request:
    table = storage.root
    if (version is None) == (timestamp_ms is None):
        found = "neither" if version is None else "both"
        raise InvalidArgumentError(
            f"expected a version or a timestamp to restore the table to, found {found}", table=table
        )
    check_version(version, table=table)
    newest_at_s = monotonic_s()
    base = open_newest(storage, owners=owners, for_writing=True, parsed=True)
    check_writable(base.protocol, base.metadata, table=table, operation=Operation.COMMIT)
    return _Request(base, version, timestamp_ms, newest_at_s)


def _choose_version(request: _Request) -> int:
    """Choose the version to restore."""
    base, version = request.base, request.version
    if request.timestamp_ms is not None:
        version = base.timeline.version_at(request.timestamp_ms)
    assert version is not None
    if version == base.version:
        raise InvalidArgumentError(
            f"version {version} is the newest one, so there is nothing to restore; choose an older version "
            "(see DeltaTable.history)",
            table=base.table,
        )
    return version


def _begin(storage: Storage, owners: CommitOwners, request: _Request) -> OptimisticTransaction:
    return OptimisticTransaction(
        storage,
        request.base,
        "RESTORE",
        operation_parameters=(
            {"version": request.version}
            if request.timestamp_ms is None
            else {"timestamp": utc_text(request.timestamp_ms)}
        ),
        newest_at_s=request.newest_at_s,
        owners=owners,
    )


def _find_earlier(
    newest: Snapshot, request: _Request, once: tuple[str, int]
) -> RestoreResult | None:
    """Find what an earlier try has done; None if there was none."""
    commit = earlier_commit(newest, *once, search=TransactionSearch())
    if commit is None:
        return None
    path, storage = newest.segment.path_of(commit.version), newest.storage
    try:
        info = read_commit_info(storage, commit.version, path=path) or {}
    except ObjectNotFoundError:
        info = {}
    recorded = _to_texts(info.get("operationParameters")).get("version", "")
    restored = int(recorded) if recorded.isdecimal() else request.version
    # Times aren't compared: each try may have another one, such as an hour ago.
    if request.version is not None and restored != request.version:
        raise InvalidArgumentError(
            f"version {commit.version} has the transaction identifier {once} already, and has restored "
            f"version {restored}: expected version {request.version}, which is requested now; use another "
            "identifier, as another run of a task does",
            table=newest.table,
            version=commit.version,
        )
    metrics = _to_texts(info.get("operationMetrics"))
    numbers = {name: int(number) for name, number in metrics.items() if number.isdecimal()}
    return RestoreResult(None, commit, restored, numbers, newest.metadata.id)


def _to_texts(entries: object) -> dict[str, str]:
    """Return a mapping of the history as texts; empty if the history has something else."""
    if not isinstance(entries, Mapping):
        return {}
    return {str(name): str(value) for name, value in entries.items()}


def _plan(request: _Request, target: Snapshot) -> RestorePlan:
    base = request.base
    return RestorePlan(
        base.table,
        base.version,
        target.version,
        request.timestamp_ms,
        compare_versions(base, target),
        restore_protocol(base, target),
        restore_metadata(base, target),
        tuple(restore_domains(base, target)),
        target.num_files,
        target.size_in_bytes,
    )


def _commit(
    transaction: OptimisticTransaction, target: Snapshot, plan: RestorePlan
) -> CommitResult:
    base = transaction.base
    transaction.declare(RestoreVersion(target))
    if plan.protocol != base.protocol:
        transaction.set_protocol(plan.protocol)
    # Even if unchanged, so that a concurrent change of the metadata is a conflict.
    transaction.set_metadata(plan.metadata)
    for domain in plan.domains:
        transaction.declare(SystemDomain(domain))
    for column, value in find_furthest_identity_values(base, target).items():
        transaction.use_identity_values(column, value)
    for removed in remove_actions(plan.files.removed, data_change=True):
        transaction.remove_file(removed)
    transaction.add_files(list(add_actions(plan.files.restored, data_change=True)))
    transaction.add_files(list(add_actions(plan.files.renumbered, data_change=False)))
    return transaction.commit(operation_metrics=plan.metrics)


def _size(files: pa.Table) -> int:
    return int(pc.sum(files["size"]).as_py() or 0)
