"""The methods of `DeltaTable` for a table in trouble: check, repair, restore, drop a feature.

Enabling row tracking is here too, because it makes several commits like dropping a feature.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_delta.engine.table.base import TableBase

if TYPE_CHECKING:
    from airflow_delta.engine.maintenance.check.findings import CheckReport, Depth
    from airflow_delta.engine.maintenance.drop_feature.execution import DropFeatureResult
    from airflow_delta.engine.maintenance.drop_feature.rewrite import Rewriter
    from airflow_delta.engine.maintenance.restore.plan import RestoreResult
    from airflow_delta.engine.maintenance.row_tracking.execution import RowTrackingResult
    from airflow_delta.engine.maintenance.statistics_repair import StatisticsRepair
    from airflow_delta.engine.maintenance.table_files.availability import PastFiles
    from airflow_delta.engine.snapshot.snapshot import Snapshot
    from airflow_delta.engine.snapshot.timestamps import Timestamp

__all__ = ["RepairMethods"]


class RepairMethods(TableBase):
    """Find out what is wrong with a table, and set it right."""

    def check(self, *, depth: Depth = "files") -> CheckReport:
        """Look for damage and overdue maintenance, without changing anything.

        Args:
            depth: ``"quick"`` checks the names and the newest small files of the log; ``"log"`` the whole
                log; ``"files"`` also whether the data files exist, and whether there are other files.

        Returns:
            The findings, each with its severity and how to repair it. Damage is a finding, not an error.

        Raises:
            TableNotFoundError: there is no table.
            InvalidArgumentError: there is no such depth.
            StorageError: the store failed.
        """
        from airflow_delta.engine.maintenance.check.checking import check_table

        return check_table(self.file_access, self._owners, depth=depth)

    def check_version(self, snapshot: Snapshot) -> PastFiles:
        """Check that the data files of an earlier version still exist, so that it can be read.

        Files that the newest version has too aren't checked. If the commit owner of a managed table can't
        be asked, the newest backfilled version counts. Each of the other files takes a request; from ten
        thousand files on, the table's directory is listed instead.

        Args:
            snapshot: the version, from `DeltaTable.snapshot`.

        Returns:
            How many files of the version the newest one lacks, and for how many of them the retention has
            passed, so that the next vacuum may delete them.

        Raises:
            MissingFilesError: files are missing.
            OutsidePathError: a file of the version is outside of what the table may read.
            DeltaError: the newest version can't be read, or the store failed.
        """
        from airflow_delta.engine.maintenance.table_files.availability import (
            check_version_files,
            open_newest_known,
        )

        newest = open_newest_known(self.storage, self._owners)
        return check_version_files(snapshot, newest, self.file_access)

    def repair_statistics(self) -> StatisticsRepair:
        """Correct minima and maxima of decimals that earlier releases of this provider rounded.

        One commit, which changes no rows, adds the files that `check` reports as ``statistics-rounded``
        again, with the bounds of their footers.

        Raises:
            UnsupportedFeatureError: the engine can't write the table.
            CommitConflictError: a concurrent commit removed a file, or recorded something new about it; run
                it again.
            CommitOwnerError: the commit owner can't report the newest version.
            CommitOutcomeUnknownError: the store failed; the commit may have been made.
            DeltaError: the table can't be read, or the store failed.
        """
        from airflow_delta.engine.maintenance.statistics_repair import repair_statistics

        return repair_statistics(self.storage, self._owners)

    def restore(
        self,
        version: int | None = None,
        timestamp: Timestamp | None = None,
        *,
        ignore_missing_files: bool = False,
        once: tuple[str, int] | None = None,
        dry_run: bool = False,
    ) -> RestoreResult:
        """Restore an earlier version, with its rows, schema and properties, by a new commit.

        Protocol, row ids, identity values and the commit owner stay as they are; see
        ``maintenance/restore/definition.py``. ``result.plan`` lists the files that the commit adds and
        removes. Write a checkpoint afterwards.

        Args:
            version: the version to restore.
            timestamp: a time instead; see `DeltaTable.snapshot`.
            ignore_missing_files: don't check whether the restored files exist. Reading those that are
                missing will fail.
            once: a transaction identifier for the commit: an application and its number; see `commit_once`.
                If the log already has a commit with it, nothing is done, and ``result.commit`` is that one,
                as ``repeated``.
            dry_run: only plan.

        Raises:
            InvalidArgumentError: neither or both are given, or the version is the newest; or an earlier
                commit with the identifier restored another version.
            VersionNotFoundError: the log can't rebuild the version.
            TimestampOutOfRangeError: no version belongs to the time.
            MissingFilesError: files to be restored are missing; nothing was committed.
            OutsidePathError: files to be restored are outside of what the table may read.
            ConstraintViolationError: the table is append-only; or files of the version break a rule that
                the table has now.
            InvalidTableError: the version's metadata contradicts the table's protocol.
            CommitConflictError: a concurrent commit changed the table; nothing was committed.
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

    def drop_feature(
        self,
        name: str,
        *,
        truncate_history: bool = False,
        rewriter: Rewriter | None = None,
        dry_run: bool = False,
    ) -> DropFeatureResult:
        """Remove a feature from the table's protocol, so that engines without it can use the table.

        Each call does as much as is possible now; ``result.status`` and ``result.reason`` report the
        progress, and the next call continues. See ``maintenance/drop_feature``.

        Args:
            name: the feature, in any case, such as ``"deletionVectors"``.
            truncate_history: let the versions with the feature expire and delete them, in two runs, instead
                of hiding them behind protected checkpoints.
            rewriter: rewrites data files that use the feature, given the table's location and the files;
                without one, ``result.rewrite`` lists them.
            dry_run: only plan; ``result.plan.steps`` has the steps.

        Raises:
            InvalidArgumentError: there is no such feature, the table doesn't support it, or it can't be
                dropped, or not that way.
            ConstraintViolationError: other features require it, the table has constraints, or other writers
                keep adding files with the feature.
            InvalidTableError: columns have names that only column mapping allows.
            UnsupportedFeatureError: the engine can't write the table.
            CommitConflictError: concurrent commits conflicted again and again.
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

    def enable_row_tracking(self, *, dry_run: bool = False) -> RowTrackingResult:
        """Enable row tracking on a table with data: give row ids to all files, and set the property.

        Files are committed again in batches of at most 22,000, with ``dataChange=false``, as Delta Spark
        does. A run that was stopped is continued by the next one. If row tracking is enabled already,
        nothing is done. See ``maintenance/row_tracking``.

        Args:
            dry_run: only plan; ``result.plan.steps`` has the steps.

        Raises:
            InvalidArgumentError: row tracking is suspended.
            ConstraintViolationError: a file has no number of records in its statistics.
            UnsupportedFeatureError: the engine can't write the table.
            CommitConflictError: concurrent commits conflicted again and again.
            CommitOutcomeUnknownError: the store failed; the last commit may have been made. Call it again.
            DeltaError: see `DeltaTable.transaction` and `OptimisticTransaction.commit`.
        """
        from airflow_delta.engine.maintenance.row_tracking.execution import enable_row_tracking

        return enable_row_tracking(self.storage, self._owners, dry_run=dry_run)
