"""The methods of `DeltaHook` that restore a version and drop a table feature."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from airflow_delta.hooks.delta.maintenance import MaintenanceMethods
from airflow_delta.hooks.lineage.collector import collects
from airflow_delta.hooks.progress import logs_progress
from airflow_delta.hooks.reports import timed_report

__all__ = ["RepairMethods"]


class RepairMethods(MaintenanceMethods):
    """Restore versions and drop features."""

    @collects("output")
    @logs_progress
    def restore(
        self,
        table_uri: str,
        *,
        version: int | None = None,
        timestamp: str | int | None = None,
        ignore_missing_files: bool = False,
        once: tuple[str, int] | None = None,
        write_checkpoint: bool = True,
        backfill_first: bool = False,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Restore an earlier version of a table by a commit, and write a checkpoint of it.

        :param version: the version; or
        :param timestamp: the newest version at this time: ISO-8601 with offset, or epoch milliseconds.
        :param ignore_missing_files: don't check that the restored files exist.
        :param once: application id and version, by which a retry finds the commit of an earlier try.
        :param write_checkpoint: write the checkpoint. It is skipped if it can't be written, because the
            commit isn't backfilled, or because a cleanup has deleted it since an earlier try.
        :param backfill_first: have the commit owner of a managed table backfill the commit first.
        :param dry_run: only report what would be restored.
        :returns: ``table_uri``, ``table_id``, the entries of `RestoreResult.to_dict`, ``checkpoint``
            (``version``, ``path``, ``written`` and ``reason`` from `DeltaHook.checkpoint`, or None),
            ``dry_run`` and ``duration_ms``.
        :raises DeltaError: the version can't be restored. If only the checkpoint failed, the table is
            restored, and a retry with the same ``once`` finds the commit.
        """
        began = time.monotonic()
        result = self._open(table_uri).restore(
            version,
            timestamp,
            ignore_missing_files=ignore_missing_files,
            once=None if dry_run else once,
            dry_run=dry_run,
        )
        report = result.to_dict()
        checkpoint = None
        if write_checkpoint and result.checkpoint_due:
            self.log.info("%s: restored by version %s", table_uri, result.version)
            checkpoint = self._checkpoint_if_possible(
                table_uri, report["version"], backfill_first=backfill_first
            )
        report |= {"table_id": result.table_id, "checkpoint": checkpoint}
        return timed_report(table_uri, report, began=began, dry_run=dry_run)

    @collects("output")
    @logs_progress
    def drop_feature(
        self,
        table_uri: str,
        feature: str,
        *,
        truncate_history: bool = False,
        rewrite: Callable[[str], object] | None = None,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Drop a feature, as far as that can be done now.

        :param feature: the feature's name, in any case.
        :param truncate_history: let the versions with the feature expire, instead of protecting them with
            checkpoints.
        :param rewrite: rewrites the data files that use the feature whose name it gets; None: nothing does.
        :param dry_run: only report what would be done.
        :returns: ``table_uri``, the entries of `DropFeatureResult.to_dict`, ``dry_run`` and
            ``duration_ms``.
        :raises DeltaError: the feature can't be dropped.
        """
        began = time.monotonic()
        result = self._open(table_uri).drop_feature(
            feature,
            truncate_history=truncate_history,
            rewriter=None if rewrite is None else lambda _, files: rewrite(files.feature),
            dry_run=dry_run,
        )
        return timed_report(table_uri, result.to_dict(), began=began, dry_run=dry_run)

    @collects("output")
    @logs_progress
    def enable_row_tracking(self, table_uri: str, *, dry_run: bool = False) -> dict[str, Any]:
        """Enable row tracking.

        :param dry_run: only report what would be done.
        :returns: ``table_uri``, the entries of `RowTrackingResult.to_dict`, ``dry_run`` and
            ``duration_ms``.
        :raises DeltaError: row tracking can't be enabled.
        """
        began = time.monotonic()
        result = self._open(table_uri).enable_row_tracking(dry_run=dry_run)
        return timed_report(table_uri, result.to_dict(), began=began, dry_run=dry_run)

    def _checkpoint_if_possible(
        self, table_uri: str, version: int, *, backfill_first: bool
    ) -> dict[str, Any]:
        from airflow_delta.engine.errors import NotBackfilledError, VersionNotFoundError

        try:
            found = self._checkpoint(table_uri, version, backfill_first=backfill_first)
        except (NotBackfilledError, VersionNotFoundError) as error:
            self.log.warning("%s: no checkpoint of version %s: %s", table_uri, version, error)
            found = {"version": version, "path": None, "written": False, "reason": str(error)}
        return {name: found[name] for name in ("version", "path", "written", "reason")}
