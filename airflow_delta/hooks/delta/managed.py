"""The methods of `DeltaHook` for managed tables: backfill them, and change the commit owner."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow_delta.hooks.delta.access import TableAccess
from airflow_delta.hooks.lineage.collector import collects
from airflow_delta.hooks.progress import logs_progress
from airflow_delta.hooks.reports import timed_report

if TYPE_CHECKING:
    from airflow_delta.engine import DeltaTable, Snapshot

__all__ = ["ManagedCommitMethods"]


class ManagedCommitMethods(TableAccess):
    """Backfill managed tables, and change the commit owner."""

    @collects("input")
    @logs_progress
    def backfill(self, table_uri: str, *, version: int | None = None) -> dict[str, Any]:
        """Have the commit owner of a managed table backfill it.

        :param version: the last version to be backfilled; None: all ratified versions.
        :returns: ``table_uri``, the entries of `BackfillResult.to_dict`, and ``duration_ms``.
        :raises DeltaError: the table isn't managed, the owner hasn't ratified the version or can't be
            reached, or the store fails.
        """
        began = time.monotonic()
        result = self._open(table_uri).backfill(version)
        return timed_report(table_uri, result.to_dict(), began=began)

    @logs_progress
    def backfill_missing(self, table_uri: str, version: int | None = None) -> None:
        """Make sure that a version is backfilled, for jobs that read only ``_delta_log``.

        This makes no request to a commit owner if the table isn't managed or the version is already
        backfilled.

        :param version: the version; None: all ratified versions.
        :raises DeltaError: the table can't be read, or it can't be backfilled.
        """
        table = self._open(table_uri)
        newest = _backfilled_snapshot(table)
        if _owner_name(newest) is not None and (version is None or version > newest.version):
            table.backfill(version)

    def owner_url_for_job(self, table_uri: str) -> str | None:
        """The database URL of the commit owner, for a job that commits to a table; None if it needs none.

        It needs none if the table doesn't exist yet or isn't managed, or if no connection names the
        database: then the job finds it in the environment, like the worker.

        :raises CommitOwnerError: the table is managed, and its owner doesn't have it or can't be
            reached; this is checked before the job is submitted.
        :raises DeltaError: the table can't be read.
        """
        from airflow_delta.engine.errors import TableNotFoundError

        table = self._open(table_uri)
        try:
            newest = _backfilled_snapshot(table)
        except TableNotFoundError:
            return None
        if _owner_name(newest) is None:
            return None
        table.commit_status()
        return self.commit_owner.url()

    @collects("output")
    @logs_progress
    def convert_to_managed(
        self, table_uri: str, *, owner: str, conf: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """Convert a table to a managed table of a commit owner.

        If the owner can't be reached, but the log says that it owns the table already, the conversion
        counts as done, unless ``conf`` is given.

        :param owner: the owner's name.
        :param conf: its configuration, which everybody may read who may read the table; None: that of
            the table, or the owner's defaults for a new conversion.
        :returns: ``table_uri``, ``version``, ``owner`` and ``converted`` (false if it was converted
            before).
        :raises DeltaError: the table can't be read or converted.
        """
        from airflow_delta.engine.errors import CommitOwnerUnavailableError, CommitStoreMissingError
        from airflow_delta.engine.transaction.conversion import ConversionResult

        table = self._open(table_uri)
        try:
            result = table.convert_to_managed(owner, conf)
        except CommitStoreMissingError:
            # The owner can be reached, but doesn't have this table.
            raise
        except CommitOwnerUnavailableError as error:
            newest = _backfilled_snapshot(table)
            if conf is not None or _owner_name(newest) != owner:
                raise
            self.log.warning(
                "%s: according to its log it has the commit owner %r; %s", table_uri, owner, error
            )
            unchanged = ConversionResult(newest.version, owner, converted=False)
            return {"table_uri": table_uri, **unchanged.to_dict()}
        return {"table_uri": table_uri, **result.to_dict()}

    @collects("output")
    @logs_progress
    def convert_to_file_system(
        self, table_uri: str, *, keep_in_commit_timestamps: bool = True
    ) -> dict[str, Any]:
        """Convert a managed table back to a table that the file system manages.

        :param keep_in_commit_timestamps: keep the feature ``inCommitTimestamp`` in the protocol.
        :returns: like `convert_to_managed`; ``owner`` is None.
        :raises DeltaError: the table can't be read, or its owner doesn't release it.
        """
        result = self._open(table_uri).convert_to_file_system(
            keep_in_commit_timestamps=keep_in_commit_timestamps
        )
        return {"table_uri": table_uri, **result.to_dict()}


def _backfilled_snapshot(table: DeltaTable) -> Snapshot:
    """The newest backfilled version, without a request to the commit owner."""
    from airflow_delta.engine.maintenance.backfill.backfilled import open_backfilled

    return open_backfilled(table.storage)


def _owner_name(snapshot: Snapshot) -> str | None:
    from airflow_delta.engine.features.managed_commits import commit_owner
    from airflow_delta.engine.features.protocol import supported_features

    return commit_owner(supported_features(snapshot.protocol), snapshot.properties)
