"""Bring back an earlier version of a table: as a plan, then as one commit.

The commit takes out the files that have come since and adds those that have gone, by path and deletion
vector (`files`), and leaves the table otherwise as it was, as far as that can be taken back
(`definition`). The versions in between stay in the history, and a restore can be restored.

* It is a change of data: streams and readers of changes see rows come and go. They are told file by file,
  without ``cdc`` files, as by Delta Spark.
* The files that are to come back must be there (`missing_files`). A vacuum that runs meanwhile may take
  them in the last moment, as long as they count as removed. So they are looked for once more after the
  commit, and an error tells which are lost; a vacuum does the same the other way round
  (``vacuum/concurrent_commits.py``), so that one of the two always tells.
* It rests on the whole of the newest version: a commit made meanwhile that changes files, schema,
  properties or domains is a conflict. Restoring isn't tried again then, since what it would undo has
  changed.
* Readers read the commit whole, which may be a large one, so that it is a good place for a checkpoint.
* A restore that is tried again would restore once more what came after the first try. So it may be given a
  transaction identifier, by which it finds the commit of an earlier try (see ``transaction/once.py``).
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
    furthest_identity_values,
    restored_domains,
    restored_metadata,
    restored_protocol,
)
from airflow_delta.engine.maintenance.restore.files import (
    FileDifferences,
    file_differences,
)
from airflow_delta.engine.maintenance.restore.missing_files import (
    check_after_restore,
    check_before_restore,
    check_earlier_restore,
    missing_among_staying,
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
        missing: the files that stay in the table and are gone, the first 100 at most; None where nobody
            has looked.
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

    @property
    def timestamp(self) -> datetime | None:
        """The time that was asked for, in UTC; None where the version was."""
        return utc_datetime(self.timestamp_ms)

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain JSON values, as `RestoreResult.to_dict` has them of a dry run."""
        return RestoreResult(self, None, self.version, self.metrics).to_dict()


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """What was done.

    Attributes:
        plan: what was planned; None where the commit of an earlier try was found.
        commit: the commit that was made, or that of an earlier try, as ``repeated``; None for a dry run.
        restored_version: the version that was brought back, or would be; None where an earlier try was
            asked for a time.
        metrics: see `RestorePlan.metrics`. Of an earlier try what the history has of them, if anything.
    """

    plan: RestorePlan | None
    commit: CommitResult | None
    restored_version: int | None
    metrics: Mapping[str, int]

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

    def to_dict(self) -> dict[str, Any]:
        """What was done as plain JSON values.

        Returns:
            ``version`` (that of the commit, of a dry run the newest one), ``restored_version``,
            ``committed``, ``repeated`` (whether it is the commit of an earlier try), ``files_restored``,
            ``files_removed``, ``bytes_restored``, ``bytes_removed``, ``files`` and ``bytes`` of the
            table afterwards, and ``files_missing``: the first few files that stay in the table and are
            gone; None where nobody has looked. Of an earlier try the numbers are what the history has of
            them, else None.
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
class _Asked:
    """What is asked for, beside the newest version.

    Attributes:
        base: the newest version.
        version: the one to be brought back; None where a time was asked for.
        timestamp_ms: that time, in epoch ms; None where a version was.
        newest_at_s: when, by `monotonic_s`, the base was found to be the newest.
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
    """Bring back an earlier version; see `DeltaTable.restore`, for the errors too.

    Args:
        access: opens the table's files.
        owners: the commit owners that there are.
        version: the version.
        timestamp: a time instead.
        ignore_missing_files: don't look whether the files are there.
        once: the transaction identifier by which an earlier try is found.
        dry_run: only make the plan.
    """
    storage = access.storage
    at_ms = None if timestamp is None else epoch_ms(timestamp, table=storage.root)
    asked = _asked(storage, owners, version, at_ms)
    transaction = _begin(storage, owners, asked)
    if once is not None:
        # Before the search: what is committed after the version that is searched is a conflict.
        transaction.set_transaction(*once)
        if (earlier := _earlier(asked.base, asked, once)) is not None:
            if not ignore_missing_files:
                check_earlier_restore(asked.base, earlier.version, access)
            return earlier
    target = open_snapshot(storage, _wanted(asked), owners=owners, verified=True)
    plan = _plan(asked, target)
    if not ignore_missing_files:
        check_before_restore(asked.base, plan.version, plan.files.restored, access)
        missing = missing_among_staying(target, plan.files.restored, access)
        plan = replace(plan, missing=missing)
    if dry_run:
        return RestoreResult(plan, None, plan.version, plan.metrics)
    try:
        commit = _commit(transaction, target, plan)
    except CommitConflictError:
        # Another try may have made the commit that is in the way, or one beside it.
        newest = open_newest(storage, owners=owners, for_writing=True)
        earlier = None if once is None else _earlier(newest, asked, once)
        if earlier is None:
            raise
        if not ignore_missing_files:
            check_earlier_restore(newest, earlier.version, access)
        return earlier
    if not ignore_missing_files:
        check_after_restore(commit.version, plan.files.restored, access)
    return RestoreResult(plan, commit, plan.version, plan.metrics)


def _asked(
    storage: Storage, owners: CommitOwners, version: int | None, timestamp_ms: int | None
) -> _Asked:
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
    return _Asked(base, version, timestamp_ms, newest_at_s)


def _wanted(asked: _Asked) -> int:
    """The version to be brought back."""
    base, version = asked.base, asked.version
    if asked.timestamp_ms is not None:
        version = base.timeline.version_at(asked.timestamp_ms)
    assert version is not None
    if version == base.version:
        raise InvalidArgumentError(
            f"version {version} is the newest one: there is nothing to restore; name an older version, "
            "such as DeltaTable.history has them",
            table=base.table,
        )
    return version


def _begin(storage: Storage, owners: CommitOwners, asked: _Asked) -> OptimisticTransaction:
    return OptimisticTransaction(
        storage,
        asked.base,
        "RESTORE",
        operation_parameters=(
            {"version": asked.version}
            if asked.timestamp_ms is None
            else {"timestamp": utc_text(asked.timestamp_ms)}
        ),
        newest_at_s=asked.newest_at_s,
        owners=owners,
    )


def _earlier(newest: Snapshot, asked: _Asked, once: tuple[str, int]) -> RestoreResult | None:
    """What an earlier try has done; None where there was none."""
    commit = earlier_commit(newest, *once, search=TransactionSearch())
    if commit is None:
        return None
    path, storage = newest.segment.path_of(commit.version), newest.storage
    try:
        info = read_commit_info(storage, commit.version, path=path) or {}
    except ObjectNotFoundError:
        info = {}
    told = _texts(info.get("operationParameters")).get("version", "")
    restored = int(told) if told.isdecimal() else asked.version
    # A time may be another one at each try, such as an hour ago.
    if asked.version is not None and restored != asked.version:
        raise InvalidArgumentError(
            f"version {commit.version} has the transaction identifier {once} already, and has brought back "
            f"version {restored}: expected version {asked.version}, as this try asks for; use another "
            "identifier, as another run of a task does",
            table=newest.table,
            version=commit.version,
        )
    metrics = _texts(info.get("operationMetrics"))
    numbers = {name: int(number) for name, number in metrics.items() if number.isdecimal()}
    return RestoreResult(None, commit, restored, numbers)


def _texts(told: object) -> dict[str, str]:
    """A mapping of the history, as texts; empty where the history has something else."""
    if not isinstance(told, Mapping):
        return {}
    return {str(name): str(value) for name, value in told.items()}


def _plan(asked: _Asked, target: Snapshot) -> RestorePlan:
    base = asked.base
    return RestorePlan(
        base.table,
        base.version,
        target.version,
        asked.timestamp_ms,
        file_differences(base, target),
        restored_protocol(base, target),
        restored_metadata(base, target),
        tuple(restored_domains(base, target)),
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
    # As they are or not: to be without a change of them meanwhile is part of what is brought back.
    transaction.set_metadata(plan.metadata)
    for domain in plan.domains:
        transaction.declare(SystemDomain(domain))
    for column, value in furthest_identity_values(base, target).items():
        transaction.use_identity_values(column, value)
    for removed in remove_actions(plan.files.removed, data_change=True):
        transaction.remove_file(removed)
    transaction.add_files(list(add_actions(plan.files.restored, data_change=True)))
    transaction.add_files(list(add_actions(plan.files.renumbered, data_change=False)))
    return transaction.commit(operation_metrics=plan.metrics)


def _size(files: pa.Table) -> int:
    return int(pc.sum(files["size"]).as_py() or 0)
