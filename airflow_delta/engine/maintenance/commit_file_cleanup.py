"""Delete the files in ``_delta_log/_commits`` that nobody needs any more: as a plan, then in fact.

managed-commits.md, "Metadata Cleanup": un-backfilled commits up to the cut-off checkpoint are deleted.
Each of them either became a version, and then it was backfilled before that checkpoint was written; or it
never became one, and never will, as its version is taken. The table need not be managed any more: to one
that was taken back they are remains.

Nothing else is touched: neither what is newer, nor what has another name.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import takewhile

from airflow_delta.engine.features.protocol import Operation, check_writable
from airflow_delta.engine.log.files import UnbackfilledCommit
from airflow_delta.engine.log.proposed import proposed_commits
from airflow_delta.engine.maintenance.cleanup_cutoff import CleanupCutoff, cleanup_cutoff
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.storage.base import Storage

__all__ = [
    "CommitFileCleanupPlan",
    "CommitFileCleanupResult",
    "execute_commit_file_cleanup",
    "plan_commit_file_cleanup",
]


@dataclass(frozen=True, slots=True)
class CommitFileCleanupPlan:
    """What a cleanup of ``_commits`` will do.

    Attributes:
        table: the table's location.
        cutoff: how far back the log is to be kept.
        files: the files to delete, ascending by version.
        reason: why there is nothing to delete, as a sentence; None where there is something.
    """

    table: str
    cutoff: CleanupCutoff
    files: tuple[UnbackfilledCommit, ...]
    reason: str | None = None

    @property
    def size_in_bytes(self) -> int:
        """The sizes of the files added up."""
        return sum(file.size for file in self.files)


@dataclass(frozen=True, slots=True)
class CommitFileCleanupResult:
    """What was done.

    Attributes:
        plan: what was planned.
        num_deleted: how many files were deleted now; 0 for a dry run.
    """

    plan: CommitFileCleanupPlan
    num_deleted: int


def plan_commit_file_cleanup(
    storage: Storage, snapshot: Snapshot, *, now_ms: int | None = None
) -> CommitFileCleanupPlan:
    """Plan a cleanup of ``_commits``.

    Args:
        storage: where the table is.
        snapshot: the newest version that the log has: of a managed table, the newest backfilled one.
        now_ms: the time, in epoch ms; by the clock unless given.

    Raises:
        UnsupportedFeatureError: the engine can't write the table.
        DeltaError: see `cleanup_cutoff`.
    """
    check_writable(
        snapshot.protocol, snapshot.metadata, table=snapshot.table, operation=Operation.COMMIT
    )
    now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    cutoff = cleanup_cutoff(snapshot, now_ms=now_ms)
    if cutoff.checkpoint is None:
        return CommitFileCleanupPlan(snapshot.table, cutoff, (), cutoff.reason)
    last = cutoff.checkpoint
    files = tuple(takewhile(lambda file: file.version <= last, proposed_commits(storage)))
    reason = None if files else f"there are no un-backfilled commits up to version {last}"
    return CommitFileCleanupPlan(snapshot.table, cutoff, files, reason)


def execute_commit_file_cleanup(
    storage: Storage, plan: CommitFileCleanupPlan
) -> CommitFileCleanupResult:
    """Do what a plan says. May be repeated, and broken off: what is left is for the next time.

    Raises:
        StorageError: the store failed, or doesn't let files be deleted.
    """
    if plan.files:
        storage.delete([file.path for file in plan.files])
    return CommitFileCleanupResult(plan, len(plan.files))
