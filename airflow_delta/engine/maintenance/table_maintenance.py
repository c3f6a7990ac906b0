"""`TableMaintenance`: what keeps a table in shape, as the methods of `DeltaTable`.

A facade as well: each method hands over to the module that knows, which it imports by itself, and makes a
plan before anything is done. With ``dry_run`` the plan is all that is made.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from airflow_delta.engine.commit.registry import CommitOwners
from airflow_delta.engine.storage.base import Storage

if TYPE_CHECKING:
    from airflow_delta.engine.maintenance.backfill import BackfillResult, CommitStatus
    from airflow_delta.engine.maintenance.checkpoint_plan import Kind
    from airflow_delta.engine.maintenance.checkpointing import CheckpointResult
    from airflow_delta.engine.maintenance.commit_file_cleanup import CommitFileCleanupResult
    from airflow_delta.engine.maintenance.log_compaction import LogCompactionResult

__all__ = ["TableMaintenance"]


class TableMaintenance(ABC):
    """What keeps a table in shape; see the module."""

    _owners: CommitOwners

    @property
    @abstractmethod
    def storage(self) -> Storage:
        """The store that the table is in, bound to the table's root."""

    def checkpoint(
        self,
        version: int | None = None,
        *,
        policy: Kind | None = None,
        if_needed: bool = False,
        backfill_first: bool = False,
        dry_run: bool = False,
    ) -> CheckpointResult:
        """Write a checkpoint, so that readers need no older commit.

        A whole one of the version that is there already is kept, and a damaged one replaced.

        Args:
            version: the version to checkpoint; None for the newest.
            policy: ``"classic"`` or ``"v2"``; None: as ``delta.checkpointPolicy`` says.
            if_needed: write none where fewer than ``delta.checkpointInterval`` commits have come since
                the last one; ``result.plan.reason`` says so.
            backfill_first: have the version of a managed table backfilled before, if it isn't. A dry run
                doesn't: it is about what is backfilled.
            dry_run: only say what would be done.

        Raises:
            VersionNotFoundError: the log can't rebuild the version.
            NotBackfilledError: the version isn't backfilled; ``backfill_first`` helps.
            CommitOwnerError: the version can't be backfilled.
            UnsupportedFeatureError: writing needs a feature that the engine lacks, or the table has no
                V2 checkpoints.
            InvalidArgumentError: there is no such policy.
            CorruptLogError: the log is damaged; nothing was published.
            InvalidTableError: the counts don't agree; nothing was published.
        """
        from airflow_delta.engine.maintenance.backfilled import open_backfilled
        from airflow_delta.engine.maintenance.checkpointing import (
            CheckpointResult,
            execute_checkpoint,
            plan_checkpoint,
        )

        if backfill_first and not dry_run:
            self._backfill_first(version)
        # Not `snapshot`, which would parse the commits: they are about to be read anyway.
        snapshot = open_backfilled(self.storage, version)
        plan = plan_checkpoint(snapshot, policy=policy, if_needed=if_needed)
        if dry_run:
            return CheckpointResult(plan, written=False)
        return execute_checkpoint(self.storage, snapshot, plan)

    def compact_log(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        backfill_first: bool = False,
        dry_run: bool = False,
    ) -> LogCompactionResult:
        """Write what a range of commits comes to into one file, which readers open instead of them.

        Args:
            start: the first version; None: the first one that neither a checkpoint nor a compaction
                covers.
            end: the last version; None: the newest. Without any of the two, few commits are left
                alone: ``result.plan.reason`` says so.
            backfill_first: see `checkpoint`.
            dry_run: only say what would be done.

        Raises:
            InvalidArgumentError: the range has fewer than two commits, or too much text.
            VersionNotFoundError: the log doesn't have all of the range.
            NotBackfilledError: the range isn't backfilled; ``backfill_first`` helps.
            CommitOwnerError: the range can't be backfilled.
            UnsupportedFeatureError: writing needs a feature that the engine lacks.
            CorruptLogError: the log is damaged; nothing was published.
        """
        from airflow_delta.engine.maintenance.log_compaction import (
            LogCompactionResult,
            execute_log_compaction,
            plan_log_compaction,
        )

        if backfill_first and not dry_run:
            self._backfill_first(end)
        plan = plan_log_compaction(self.storage, start=start, end=end)
        if dry_run:
            return LogCompactionResult(plan, written=False)
        return execute_log_compaction(self.storage, plan)

    def commit_status(self) -> CommitStatus:
        """How far the commits of the table have come: ratified by its commit owner, and backfilled.

        Of a table that the file system manages every version is both. Nothing is changed.

        Raises:
            TableNotFoundError: there is no table.
            CommitOwnerUnavailableError: the commit owner isn't known here, or can't be reached.
            CommitOwnerError: the commit owner doesn't have the table.
        """
        from airflow_delta.engine.maintenance.backfill import commit_status

        return commit_status(self.storage, self._owners)

    def backfill(self, version: int | None = None, *, dry_run: bool = False) -> BackfillResult:
        """Have the commit owner of a managed table put what it has ratified into the log.

        A conversion to the file system that was broken off is completed by it.

        Args:
            version: the last version to be backfilled; None for all that are ratified.
            dry_run: only say what would be done.

        Raises:
            InvalidArgumentError: the file system manages the table; or the version is none.
            VersionNotFoundError: the commit owner hasn't ratified the version.
            CommitOwnerUnavailableError: the commit owner isn't known here, or can't be reached.
            CommitOwnerError: the commit owner doesn't have the table.
            CorruptLogError: the log has another commit in the place of a ratified one, or a ratified one
                is gone.
            StorageError: the store failed. What is backfilled by then stays, and a repetition goes on.
        """
        from airflow_delta.engine.maintenance.backfill import (
            BackfillResult,
            execute_backfill,
            plan_backfill,
        )

        plan = plan_backfill(self.storage, self._owners, version)
        if dry_run:
            return BackfillResult(plan, plan.backfilled_version, 0)
        return execute_backfill(self.storage, plan)

    def cleanup_commit_files(self, *, dry_run: bool = False) -> CommitFileCleanupResult:
        """Delete the files in ``_delta_log/_commits`` that ``delta.logRetentionDuration`` doesn't protect.

        They are those up to the newest checkpoint from before that; see ``maintenance/cleanup_cutoff.py``.

        Args:
            dry_run: only say what would be done.

        Raises:
            TableNotFoundError: there is no table.
            UnsupportedFeatureError: the engine can't write the table.
            StorageError: the store failed, or doesn't let files be deleted.
        """
        from airflow_delta.engine.maintenance.backfilled import open_backfilled
        from airflow_delta.engine.maintenance.commit_file_cleanup import (
            CommitFileCleanupResult,
            execute_commit_file_cleanup,
            plan_commit_file_cleanup,
        )

        plan = plan_commit_file_cleanup(self.storage, open_backfilled(self.storage))
        if dry_run:
            return CommitFileCleanupResult(plan, 0)
        return execute_commit_file_cleanup(self.storage, plan)

    def _backfill_first(self, version: int | None) -> None:
        from airflow_delta.engine.maintenance.backfill import backfill_first

        backfill_first(self.storage, self._owners, version)
