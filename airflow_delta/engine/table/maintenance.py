"""The methods of `DeltaTable` that are run on a schedule: checkpoint, log compaction, cleanup, vacuum.

Each makes a plan first and then carries it out; with ``dry_run`` it makes the plan alone.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from airflow_delta.engine.table.base import TableBase

if TYPE_CHECKING:
    from airflow_delta.engine.maintenance.checkpoint.execution import CheckpointResult
    from airflow_delta.engine.maintenance.checkpoint.plan import Kind
    from airflow_delta.engine.maintenance.log_compaction.plan import LogCompactionResult
    from airflow_delta.engine.maintenance.maintenance_status import MaintenanceStatus
    from airflow_delta.engine.maintenance.metadata_cleanup.execution import MetadataCleanupResult
    from airflow_delta.engine.maintenance.metadata_cleanup.plan import MetadataCleanupPlan
    from airflow_delta.engine.maintenance.vacuum.execution import VacuumResult
    from airflow_delta.engine.maintenance.vacuum.inventory import Inventory
    from airflow_delta.engine.maintenance.vacuum.plan import Mode

__all__ = ["MaintenanceMethods"]


class MaintenanceMethods(TableBase):
    """Keep a table and its log small and quick to read."""

    def maintenance_status(self) -> MaintenanceStatus:
        """Report the last checkpoint, cleanup and vacuum of the table, and which of them are due.

        This lists the log and reads its newest small files. It doesn't list the table's directory.

        Raises:
            TableNotFoundError: there is no table.
            DeltaError: the newest version can't be read.
        """
        from airflow_delta.engine.maintenance.maintenance_status import read_maintenance_status
        from airflow_delta.engine.snapshot.opening import open_newest

        return read_maintenance_status(open_newest(self.storage, owners=self._owners))

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

        If the version has a complete checkpoint already, it is kept; a damaged one is replaced.

        Args:
            version: the version to checkpoint; None for the newest.
            policy: ``"classic"`` or ``"v2"``; None for the property ``delta.checkpointPolicy``.
            if_needed: write none if fewer than ``delta.checkpointInterval`` commits were made since the
                last one; ``result.plan.reason`` says so.
            backfill_first: backfill the version of a managed table first, if it isn't backfilled. A dry
                run doesn't.
            dry_run: only plan.

        Raises:
            VersionNotFoundError: the log can't rebuild the version.
            NotBackfilledError: the version isn't backfilled; ``backfill_first`` helps.
            CommitOwnerError: the version can't be backfilled.
            UnsupportedFeatureError: writing needs a feature that the engine doesn't support, or the table
                doesn't support V2 checkpoints.
            InvalidArgumentError: there is no such policy.
            CorruptLogError: the log is damaged; nothing was published.
            InvalidTableError: the counts don't agree; nothing was published.
        """
        from airflow_delta.engine.maintenance.backfill.backfilled import open_backfilled
        from airflow_delta.engine.maintenance.checkpoint.execution import (
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
        """Reconcile a range of commits into one file, which readers open instead of the commits.

        PROTOCOL.md, "Log Compaction Files".

        Args:
            start: the first version; None for the first that neither a checkpoint nor a compaction covers.
            end: the last version; None for the newest. If both are None and there are few commits, nothing
                is written; ``result.plan.reason`` says so.
            backfill_first: see `checkpoint`.
            dry_run: only plan.

        Raises:
            InvalidArgumentError: the range has fewer than two commits, or too much text.
            VersionNotFoundError: the log lacks a commit of the range.
            NotBackfilledError: the range isn't backfilled; ``backfill_first`` helps.
            CommitOwnerError: the range can't be backfilled.
            UnsupportedFeatureError: writing needs a feature that the engine doesn't support.
            CorruptLogError: the log is damaged; nothing was published.
        """
        from airflow_delta.engine.maintenance.log_compaction.plan import (
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

    def cleanup_metadata(
        self,
        *,
        older_than: timedelta | None = None,
        force: bool = False,
        write_checkpoint: bool = False,
        dry_run: bool = False,
    ) -> MetadataCleanupResult:
        """Delete the part of the log that ``delta.logRetentionDuration`` doesn't protect.

        Afterwards the log begins with the newest checkpoint that is old enough, and earlier versions can't
        be read. ``result.plan`` lists what is deleted, what is kept, and why. If there is no such
        checkpoint, nothing is deleted; ``result.plan.reason`` says so.

        Args:
            older_than: the minimum age of deleted commits, instead of the table's property.
            force: clean up even if ``delta.enableExpiredLogCleanup`` is false, or if ``older_than`` is
                shorter than the property.
            write_checkpoint: first write the checkpoint ``plan.wanted_checkpoint``, if it allows more to be
                deleted. A dry run doesn't.
            dry_run: only plan.

        Raises:
            TableNotFoundError: there is no table.
            UnsupportedFeatureError: the engine can't write the table.
            CommitOwnerError: the commit owner can't be queried for the newest version.
            RetentionError: ``older_than`` is shorter than the table's retention, without ``force``.
            InvalidArgumentError: ``older_than`` is no duration, or negative.
            CorruptLogError: the log is damaged; nothing was deleted.
            StorageError: the store failed, or refuses to delete files. Call it again to go on.
        """
        from airflow_delta.engine.maintenance.metadata_cleanup.execution import (
            MetadataCleanupResult,
            execute_metadata_cleanup,
        )

        plan = self._cleanup_plan(older_than, force=force)
        if dry_run:
            return MetadataCleanupResult(plan, 0)
        if write_checkpoint and plan.wanted_checkpoint is not None:
            self.checkpoint(plan.wanted_checkpoint)
            plan = self._cleanup_plan(older_than, force=force)
        return execute_metadata_cleanup(self.storage, plan)

    def vacuum(
        self,
        *,
        retention_hours: float | None = None,
        mode: Mode = "full",
        inventory: Inventory | None = None,
        enforce_retention: bool = True,
        dry_run: bool = False,
    ) -> VacuumResult:
        """Delete the files in the table's directory that no version within the retention needs.

        Versions before ``result.plan.oldest_restorable`` can't be read afterwards.

        Args:
            retention_hours: the minimum age of deleted files; None for the property
                ``delta.deletedFileRetentionDuration``, a week by default.
            mode: ``"full"`` lists the directory and considers all files; ``"lite"`` considers the files
                that commits have removed since the last vacuum, and lists nothing.
            inventory: the files to consider, instead of a listing: an Arrow table, or the path of a
                Parquet file, with the columns ``path``, ``length``, ``isDir``, ``modificationTime``.
            enforce_retention: refuse a shorter retention than the property's.
            dry_run: only plan; ``result.plan.files`` has the paths.

        Raises:
            UnsupportedFeatureError: the engine can't write the table.
            CommitOwnerError: the commit owner can't be queried for the newest version.
            RetentionError: the retention is shorter than the property's; or longer, and the log doesn't
                reach back so far.
            VersionNotFoundError: a lite vacuum needs commits that a cleanup has deleted.
            InvalidArgumentError: an argument isn't valid.
            CorruptLogError: the log is damaged, or a path in it can't be decoded.
            DeletionVectorError: the path of a deletion vector can't be decoded.
            CommitConflictError: the table was replaced by another one during the vacuum.
            ObjectNotFoundError: a concurrent commit restored files while they were being deleted. Facts:
                paths.
            StorageError: the store failed. Call it again to go on.
        """
        from airflow_delta.engine.maintenance.vacuum.execution import VacuumResult, execute_vacuum
        from airflow_delta.engine.maintenance.vacuum.inventory import read_inventory
        from airflow_delta.engine.maintenance.vacuum.plan import plan_vacuum

        rows = None
        if inventory is not None:
            rows = read_inventory(inventory, self._options, table=self.storage.root)
        plan = plan_vacuum(
            self.storage,
            self._owners,
            retention_hours=retention_hours,
            mode=mode,
            inventory=rows,
            enforce_retention=enforce_retention,
        )
        if dry_run:
            return VacuumResult(plan, 0, 0)
        return execute_vacuum(self.storage, plan, self._owners)

    def _cleanup_plan(self, older_than: timedelta | None, *, force: bool) -> MetadataCleanupPlan:
        from airflow_delta.engine.maintenance.metadata_cleanup.plan import (
            open_backfilled_part,
            plan_metadata_cleanup,
        )
        from airflow_delta.engine.snapshot.opening import open_newest

        newest = open_newest(self.storage, owners=self._owners, for_writing=True)
        return plan_metadata_cleanup(
            self.storage,
            open_backfilled_part(newest),
            newest=newest,
            older_than=older_than,
            force=force,
        )

    def _backfill_first(self, version: int | None) -> None:
        from airflow_delta.engine.maintenance.backfill.execution import ensure_backfilled

        ensure_backfilled(self.storage, self._owners, version)
