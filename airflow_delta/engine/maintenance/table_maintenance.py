"""`TableMaintenance`: what keeps a table in shape, as the methods of `DeltaTable`.

A facade as well: each method hands over to the module that knows, which it imports by itself, and makes a
plan before anything is done. With ``dry_run`` the plan is all that is made.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

from airflow_delta.engine.commit.registry import CommitOwners
from airflow_delta.engine.storage.base import Storage
from airflow_delta.engine.storage.file_access import FileAccess

if TYPE_CHECKING:
    from airflow_delta.engine.maintenance.backfill.execution import BackfillResult, CommitStatus
    from airflow_delta.engine.maintenance.check.findings import CheckReport, Depth
    from airflow_delta.engine.maintenance.checkpoint.execution import CheckpointResult
    from airflow_delta.engine.maintenance.checkpoint.plan import Kind
    from airflow_delta.engine.maintenance.drop_feature.execution import DropFeatureResult
    from airflow_delta.engine.maintenance.drop_feature.rewrite import Rewriter
    from airflow_delta.engine.maintenance.log_compaction.plan import LogCompactionResult
    from airflow_delta.engine.maintenance.maintenance_status import MaintenanceStatus
    from airflow_delta.engine.maintenance.metadata_cleanup.execution import MetadataCleanupResult
    from airflow_delta.engine.maintenance.metadata_cleanup.plan import MetadataCleanupPlan
    from airflow_delta.engine.maintenance.restore.plan import RestoreResult
    from airflow_delta.engine.maintenance.statistics_repair import StatisticsRepair
    from airflow_delta.engine.maintenance.table_files.availability import PastFiles
    from airflow_delta.engine.maintenance.vacuum.execution import VacuumResult
    from airflow_delta.engine.maintenance.vacuum.inventory import Inventory
    from airflow_delta.engine.maintenance.vacuum.plan import Mode
    from airflow_delta.engine.snapshot.snapshot import Snapshot
    from airflow_delta.engine.snapshot.timestamps import Timestamp

__all__ = ["TableMaintenance"]


class TableMaintenance(ABC):
    """What keeps a table in shape; see the module."""

    _owners: CommitOwners
    _options: Mapping[str, str]

    @property
    @abstractmethod
    def storage(self) -> Storage:
        """The store that the table is in, bound to the table's root."""

    @property
    @abstractmethod
    def file_access(self) -> FileAccess:
        """Opens the files that the log names, as far as the table may read them."""

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

    def maintenance_status(self) -> MaintenanceStatus:
        """What was maintained last of the newest version, and what is due: checkpoint, cleanup, vacuum.

        The log is listed, and its newest small parts are read; the table's directory isn't listed.

        Raises:
            TableNotFoundError: there is no table.
            DeltaError: the newest version can't be read.
        """
        from airflow_delta.engine.maintenance.maintenance_status import maintenance_status
        from airflow_delta.engine.snapshot.opening import open_newest

        return maintenance_status(open_newest(self.storage, owners=self._owners))

    def commit_status(self) -> CommitStatus:
        """How far the commits of the table have come: ratified by its commit owner, and backfilled.

        Of a table that the file system manages every version is both. Nothing is changed.

        Raises:
            TableNotFoundError: there is no table.
            CommitOwnerUnavailableError: the commit owner isn't known here, or can't be reached.
            CommitOwnerError: the commit owner doesn't have the table.
        """
        from airflow_delta.engine.maintenance.backfill.execution import commit_status

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
        from airflow_delta.engine.maintenance.backfill.execution import (
            BackfillResult,
            execute_backfill,
            plan_backfill,
        )

        plan = plan_backfill(self.storage, self._owners, version)
        if dry_run:
            return BackfillResult(plan, plan.backfilled_version, 0)
        return execute_backfill(self.storage, plan)

    def propose(self, version: int) -> None:
        """Have the commit owner of a managed table agree anew to own it, where it has lost its books.

        The owner finds the proof in the log. A table that it doesn't own yet is handed over by
        `DeltaTable.convert_to_managed`, which needs no proposal.

        Args:
            version: the version whose commit handed the table over; 0 if the log was cleaned up since, so
                that it isn't there any more.

        Raises:
            InvalidArgumentError: the file system manages the table; or the version is none.
            CommitOwnerUnavailableError: the commit owner isn't known here, or can't be reached.
            CommitOwnerError: the commit owner doesn't agree.
        """
        from airflow_delta.engine.maintenance.owner_repairs import propose

        propose(self.storage, self._owners, version)

    def relocate(self) -> str:
        """Tell the commit owner of a managed table that the table has moved to where it is opened now.

        That is for after a move of the whole directory, once the old place is gone and while nobody
        commits: a copy looks the same. The old place is looked at if it is in the same store.

        Returns:
            Where the owner had the table before.

        Raises:
            InvalidArgumentError: the table has no commit owner that can be told so.
            CommitOwnerUnavailableError: the commit owner isn't known here, or can't be reached.
            CommitOwnerError: the commit owner doesn't have the table, not all of it is here, or it is
                still at its old place.
        """
        from airflow_delta.engine.maintenance.owner_repairs import relocate
        from airflow_delta.engine.storage.location import open_storage

        return relocate(self.storage, self._owners, lambda uri: open_storage(uri, self._options))

    def accept_log(self, version: int) -> int:
        """Have the commit owner of a managed table give up ratified commits that are lost.

        **All versions above are given up for good**, also what is still there of them; their numbers are
        used again. Restore what can be restored and stop all writers before.

        Args:
            version: the newest version that is left; another one is refused.

        Returns:
            The newest version that was ratified.

        Raises:
            InvalidArgumentError: the table has no commit owner that can be told so; or the version is none.
            CommitOwnerUnavailableError: the commit owner isn't known here, or can't be reached.
            CommitOwnerError: the commit owner doesn't have the table, nothing is missing, or it is another
                version that is the newest one left; the message says which.
        """
        from airflow_delta.engine.maintenance.owner_repairs import accept_log

        return accept_log(self.storage, self._owners, version)

    def cleanup_metadata(
        self,
        *,
        older_than: timedelta | None = None,
        force: bool = False,
        write_checkpoint: bool = False,
        dry_run: bool = False,
    ) -> MetadataCleanupResult:
        """Delete the part of the log that ``delta.logRetentionDuration`` doesn't protect.

        The log then begins with the newest checkpoint from before that. Versions below can't be read any
        more; ``result.plan`` tells what goes, what stays, and why. Where there is no such checkpoint,
        nothing goes, and ``result.plan.reason`` says so.

        Args:
            older_than: how old commits must be to go, instead of what the table says.
            force: clean up though ``delta.enableExpiredLogCleanup`` is false; and with ``older_than``, less
                old commits than the table keeps.
            write_checkpoint: where a checkpoint would let more go, ``plan.wanted_checkpoint``, write it
                before. A dry run doesn't.
            dry_run: only say what would be done.

        Raises:
            TableNotFoundError: there is no table.
            UnsupportedFeatureError: the engine can't write the table.
            CommitOwnerError: the commit owner can't tell the newest version, whose properties count.
            RetentionError: ``older_than`` is shorter than what the table keeps, without ``force``.
            InvalidArgumentError: ``older_than`` is no duration, or negative.
            CorruptLogError: the log is damaged; nothing was deleted.
            StorageError: the store failed, or doesn't let files be deleted. A repetition goes on.
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
        """Delete the files in the table's directory that nobody needs any more.

        Versions before ``result.plan.oldest_restorable`` can't be read afterwards.

        Args:
            retention_hours: how old files must be; None for what ``delta.deletedFileRetentionDuration``
                says, a week unless set.
            mode: ``"full"`` looks at all files that the store lists; ``"lite"`` at those that commits
                have removed since the last vacuum, and lists nothing.
            inventory: files to be looked at in place of a listing: an Arrow table, or the path of a
                Parquet file, with the columns ``path``, ``length``, ``isDir``, ``modificationTime``.
            enforce_retention: refuse less than the property says.
            dry_run: only say what would be done: ``result.plan.files`` has the paths.

        Raises:
            UnsupportedFeatureError: the engine can't write the table.
            CommitOwnerError: the commit owner can't tell the newest version.
            RetentionError: less was asked for than the property says; or more, and the log doesn't
                reach back so far.
            VersionNotFoundError: a lite vacuum needs commits that cleanup has taken.
            InvalidArgumentError: an argument makes no sense.
            CorruptLogError: the log is damaged, or a path in it can't be decoded.
            DeletionVectorError: a deletion vector's file can't be told.
            CommitConflictError: the table was replaced by another one meanwhile.
            ObjectNotFoundError: a commit has brought back files in the moment in which they were deleted.
                Facts: paths.
            StorageError: the store failed. What is deleted by then stays so; a repetition goes on.
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

    def restore(
        self,
        version: int | None = None,
        timestamp: Timestamp | None = None,
        *,
        ignore_missing_files: bool = False,
        once: tuple[str, int] | None = None,
        dry_run: bool = False,
    ) -> RestoreResult:
        """Bring back an earlier version, by a commit of its own: rows, schema, properties and all.

        Protocol, row ids and identity values don't go back, and a commit owner stays; see
        ``maintenance/restore_definition.py``. ``result.plan`` tells which files come and go. Have a
        checkpoint written afterwards.

        Args:
            version: the version to bring back.
            timestamp: a time instead, as `DeltaTable.snapshot` takes it.
            ignore_missing_files: don't look whether the files are there that come back. Those that are
                gone come back all the same, and reading them fails.
            once: a transaction identifier for the commit, of an application and its number, as
                `commit_once` takes them. Where the log has a commit with it, that of an earlier try,
                nothing is done: ``result.commit`` is that one, as ``repeated``.
            dry_run: only say what would be done.

        Raises:
            InvalidArgumentError: neither or both are given, or the version is the newest; or an earlier
                commit with the identifier brought back another version.
            VersionNotFoundError: the log can't rebuild the version.
            TimestampOutOfRangeError: no version belongs to the time.
            MissingFilesError: files that should come back are gone; nothing was committed.
            OutsidePathError: files that should come back are where the table may not read.
            ConstraintViolationError: the table is append-only; or files of the version aren't as the
                table demands by now.
            InvalidTableError: the former metadata don't fit what the table supports by now.
            CommitConflictError: a commit made meanwhile changed the table; nothing was committed.
            DeltaError: see `DeltaTable.transaction` and `OptimisticTransaction.commit`.
        """
        from airflow_delta.engine.maintenance.restore.plan import restore

        return restore(
            self.file_access,
            self._owners,
            version,
            timestamp,
            ignore_missing_files=ignore_missing_files,
            once=once,
            dry_run=dry_run,
        )

    def check(self, *, depth: Depth = "files") -> CheckReport:
        """Look the table over for damage and neglect; nothing is changed.

        Args:
            depth: ``"quick"`` looks at the names and the newest small parts of the log; ``"log"`` at all
                that it says; ``"files"`` also whether the files are there, and what else lies around.

        Returns:
            The findings, each with its severity and what mends it. A damaged table has findings, and no
            error is raised.

        Raises:
            TableNotFoundError: there is no table.
            InvalidArgumentError: there is no such depth.
            StorageError: the store doesn't answer.
        """
        from airflow_delta.engine.maintenance.check.checking import check_table

        return check_table(self.file_access, self._owners, depth=depth)

    def repair_statistics(self) -> StatisticsRepair:
        """Put right the minima and maxima of decimals that earlier releases of this provider rounded.

        Files of which `check` says `statistics-rounded` are added again with the bounds that their
        footers have, in one commit that changes no rows.

        Raises:
            UnsupportedFeatureError: the engine can't write the table.
            CommitConflictError: a file was removed meanwhile; run it again.
            CommitOutcomeUnknownError: the store failed; the commit may have been made.
            DeltaError: the table can't be read, or the store failed.
        """
        from airflow_delta.engine.maintenance.statistics_repair import repair_statistics

        return repair_statistics(self.storage, self._owners)

    def check_version(self, snapshot: Snapshot) -> PastFiles:
        """Make sure that the files of a version are there, so that it can be read.

        Files that the newest version has as well aren't looked for; where the commit owner of a managed
        table can't be asked, the newest that is backfilled. Of the others each takes a request, up to ten
        thousand; from there on the table's directory is listed.

        Args:
            snapshot: the version, by `DeltaTable.snapshot`.

        Returns:
            How many files of the version the newest one has no more, and of how many of them the
            retention has passed, so that a vacuum may take them at any time.

        Raises:
            MissingFilesError: some files are gone.
            OutsidePathError: a file of the version is where the table may not read.
            DeltaError: the newest version can't be read, or the store failed.
        """
        from airflow_delta.engine.maintenance.table_files.availability import (
            check_version_files,
            newest_known,
        )

        newest = newest_known(self.storage, self._owners)
        return check_version_files(snapshot, newest, self.file_access)

    def drop_feature(
        self,
        name: str,
        *,
        truncate_history: bool = False,
        rewriter: Rewriter | None = None,
        dry_run: bool = False,
    ) -> DropFeatureResult:
        """Take a feature out of the table's protocol, so that engines without it can use the table.

        As much is done as can be done now; ``result.status`` and ``result.reason`` tell how far that is. It
        may be run again at any time, and goes on from there; see ``maintenance/drop_feature``.

        Args:
            name: the feature, in any case, such as ``"deletionVectors"``.
            truncate_history: have the versions with the feature expire and be cleaned up, which takes two
                runs, instead of hiding them behind protected checkpoints.
            rewriter: writes data files anew that the feature is in, given the table's location and what is
                to be written; without one ``result.rewrite`` tells it.
            dry_run: only say what would be done: ``result.plan.steps``.

        Raises:
            InvalidArgumentError: there is no such feature, the table doesn't support it, or it can't be
                dropped, or not that way.
            ConstraintViolationError: other features require it, the table has constraints, or files with
                the feature keep coming.
            InvalidTableError: columns have names that only column mapping allows.
            UnsupportedFeatureError: the engine can't write the table.
            CommitConflictError: other writers were in the way again and again.
            DeltaError: see `OptimisticTransaction.commit`, `checkpoint` and `cleanup_metadata`.
        """
        from airflow_delta.engine.maintenance.drop_feature.execution import drop_feature

        return drop_feature(
            self.file_access,
            self._owners,
            name,
            truncate_history=truncate_history,
            rewriter=rewriter,
            dry_run=dry_run,
        )

    def _cleanup_plan(self, older_than: timedelta | None, *, force: bool) -> MetadataCleanupPlan:
        from airflow_delta.engine.maintenance.metadata_cleanup.plan import (
            backfilled_part,
            plan_metadata_cleanup,
        )
        from airflow_delta.engine.snapshot.opening import open_newest

        newest = open_newest(self.storage, owners=self._owners, for_writing=True)
        return plan_metadata_cleanup(
            self.storage,
            backfilled_part(newest),
            newest=newest,
            older_than=older_than,
            force=force,
        )

    def _backfill_first(self, version: int | None) -> None:
        from airflow_delta.engine.maintenance.backfill.execution import backfill_first

        backfill_first(self.storage, self._owners, version)
