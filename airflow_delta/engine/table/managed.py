"""The methods of `DeltaTable` about managed commits: who owns the commits, and what is backfilled.

docs/explanation/managed-commits.md explains how a commit owner and the log work together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from airflow_delta.engine.table.base import TableBase

if TYPE_CHECKING:
    from airflow_delta.engine.maintenance.backfill.execution import BackfillResult, CommitStatus
    from airflow_delta.engine.transaction.conversion import ConversionResult

__all__ = ["ManagedCommitMethods"]


class ManagedCommitMethods(TableBase):
    """Give a table's commits to a commit owner, take them back, and repair what went wrong."""

    def convert_to_managed(
        self, owner: str, conf: Mapping[str, str] | None = None
    ) -> ConversionResult:
        """Give the commits of the table to a commit owner, unless it has them.

        One commit adds the features ``managedCommit`` and ``inCommitTimestamp``, and the properties that
        name the owner. See ``transaction/conversion.py``.

        Args:
            owner: its name, as in ``commit_owners`` or among those that are installed.
            conf: the owner's configuration. All readers of the table see it, so it must hold no secrets.
                The engine adds the table's id.

        Raises:
            InvalidArgumentError: an argument makes no sense; or the table has another owner, or this one
                with another configuration.
            CommitOwnerError: the owner isn't known here, can't be reached or refuses; nothing was done.
            DeltaError: see `transaction` and `OptimisticTransaction.commit`. After a
                `CommitOutcomeUnknownError` call it again.
        """
        from airflow_delta.engine.transaction.conversion import convert_to_managed

        return convert_to_managed(self.storage, self._newest.get, self._owners, owner, conf)

    def convert_to_file_system(self, *, keep_in_commit_timestamps: bool = True) -> ConversionResult:
        """Take the commits of the table back from its commit owner, unless the file system has them.

        The owner backfills them; then one commit removes the feature ``managedCommit`` and the properties.

        Args:
            keep_in_commit_timestamps: leave the feature ``inCommitTimestamp`` in the protocol, which
                managed tables need. Some engines don't write tables that have it. Without it, the time of
                a version is that of its file again; for a managed commit that is when it was backfilled.

        Raises:
            CommitOwnerError: the owner isn't known here, can't be reached or doesn't release the table.
            DeltaError: as `convert_to_managed`.
        """
        from airflow_delta.engine.transaction.conversion import convert_to_file_system

        return convert_to_file_system(
            self.storage,
            self._newest.get,
            self._owners,
            keep_in_commit_timestamps=keep_in_commit_timestamps,
        )

    def commit_status(self) -> CommitStatus:
        """Report which versions the commit owner has ratified, and which are backfilled. Changes nothing.

        If the file system manages the table, every version is both.

        Raises:
            TableNotFoundError: there is no table.
            CommitOwnerUnavailableError: the commit owner isn't known here, or can't be reached.
            CommitOwnerError: the commit owner doesn't have the table.
        """
        from airflow_delta.engine.maintenance.backfill.execution import read_commit_status

        return read_commit_status(self.storage, self._owners)

    def backfill(self, version: int | None = None, *, dry_run: bool = False) -> BackfillResult:
        """Have the commit owner of a managed table copy its ratified commits into the log.

        This also completes a conversion to the file system that was interrupted.

        Args:
            version: the last version to be backfilled; None for all that are ratified.
            dry_run: only say what would be done.

        Raises:
            InvalidArgumentError: the file system manages the table; or the version isn't valid.
            VersionNotFoundError: the commit owner hasn't ratified the version.
            CommitOwnerUnavailableError: the commit owner isn't known here, or can't be reached.
            CommitOwnerError: the commit owner doesn't have the table.
            CorruptLogError: the log has another commit with the version of a ratified one, or a ratified
                commit is missing.
            StorageError: the store failed. Commits that were backfilled stay; call it again to go on.
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
        """Register a managed table with its commit owner again, after the commit store was lost.

        The log proves that the owner owns the table. A table without an owner is converted by
        `convert_to_managed` and needs no proposal.

        Args:
            version: the version whose commit gave the table to the owner; 0 if a cleanup has deleted that
                commit.

        Raises:
            InvalidArgumentError: the file system manages the table; or the version isn't valid.
            CommitOwnerUnavailableError: the commit owner isn't known here, or can't be reached.
            CommitOwnerError: the commit owner refuses.
        """
        from airflow_delta.engine.maintenance.owner_repairs import propose

        propose(self.storage, self._owners, version)

    def relocate(self) -> str:
        """Record with the commit owner of a managed table that the table has moved to this location.

        For use after the whole directory was moved, when the old location is gone and while nobody
        commits. A copied table looks the same as a moved one, so the old location is checked if it is in
        the same store.

        Returns:
            The location that the owner had recorded before.

        Raises:
            InvalidArgumentError: the table has no commit owner that supports this.
            CommitOwnerUnavailableError: the commit owner isn't known here, or can't be reached.
            CommitOwnerError: the commit owner doesn't have the table, commits are missing here, or the
                table is still at its old location.
        """
        from airflow_delta.engine.maintenance.owner_repairs import relocate
        from airflow_delta.engine.storage.location import open_storage

        return relocate(self.storage, self._owners, lambda uri: open_storage(uri, self._options))

    def accept_log(self, version: int, *, dry_run: bool = False) -> int:
        """Have the commit owner of a managed table give up ratified commits whose files are lost.

        **All versions above the given one are lost for good**, even those whose files still exist, and
        their numbers are used again. First restore the files that can be restored, and stop all writers.

        Args:
            version: the newest version that is left; any other is refused.
            dry_run: only check whether the version would be accepted.

        Returns:
            The newest version that was ratified, the last one that is given up.

        Raises:
            InvalidArgumentError: the table has no commit owner that supports this; or the version isn't
                valid.
            CommitOwnerUnavailableError: the commit owner isn't known here, or can't be reached.
            CommitOwnerError: the commit owner doesn't have the table, no commit is missing, or another
                version is the newest one left, which the message names.
        """
        from airflow_delta.engine.maintenance.owner_repairs import accept_log

        return accept_log(self.storage, self._owners, version, dry_run=dry_run)
