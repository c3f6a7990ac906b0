"""The methods of `DeltaHook` that keep a table and its log small.

Like those of `airflow_delta.hooks.delta.repair` they return the engine's result as plain JSON values
(``to_dict()``) for XCom: numbers, bytes and reasons, but no lists of files.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, cast

from airflow_delta.hooks.delta.managed import ManagedCommitMethods
from airflow_delta.hooks.lineage.collector import collects
from airflow_delta.hooks.progress import logs_progress
from airflow_delta.hooks.reports import timed_report

__all__ = ["MaintenanceMethods"]


class MaintenanceMethods(ManagedCommitMethods):
    """Write checkpoints and log compactions, clean up the log, convert, optimize, vacuum."""

    @collects("input")
    @logs_progress
    def checkpoint(
        self,
        table_uri: str,
        *,
        version: int | None = None,
        policy: str | None = None,
        if_needed: bool = False,
        backfill_first: bool = False,
    ) -> dict[str, Any]:
        """Write a checkpoint of a version, the newest one by default.

        :param policy: ``classic`` or ``v2``; None: the property ``delta.checkpointPolicy``.
        :param if_needed: write none if there are fewer than ``delta.checkpointInterval`` commits since the
            last one.
        :param backfill_first: have the commit owner of a managed table backfill missing versions first.
        :returns: ``table_uri``, the entries of `CheckpointResult.to_dict`, and ``duration_ms``.
        :raises DeltaError: the table can't be read or the checkpoint can't be written.
        """
        # The engine itself checks the policy.
        return self._checkpoint(
            table_uri,
            version,
            policy=cast("Any", policy),
            if_needed=if_needed,
            backfill_first=backfill_first,
        )

    def _checkpoint(self, table_uri: str, version: int | None, **options: Any) -> dict[str, Any]:
        began = time.monotonic()
        result = self._open(table_uri).checkpoint(version, **options)
        return timed_report(table_uri, result.to_dict(), began=began)

    def is_large_log(
        self, table_uri: str, *, version: int | None = None, threshold_bytes: int | None = None
    ) -> bool:
        """Whether the log has so many bytes that Spark should write its checkpoint.

        :param version: the version to checkpoint; None: the newest.
        :param threshold_bytes: the size from which on it is large; None: ``SPARK_THRESHOLD_BYTES`` of
            `airflow_delta.engine.maintenance.checkpoint.log_size`.
        :raises DeltaError: the log can't be listed.
        """
        from airflow_delta.engine.maintenance.checkpoint.log_size import (
            SPARK_THRESHOLD_BYTES,
            measure_log,
        )

        threshold = SPARK_THRESHOLD_BYTES if threshold_bytes is None else threshold_bytes
        return measure_log(self._open(table_uri).storage, version=version) >= threshold

    @collects("input")
    @logs_progress
    def compact_log(
        self,
        table_uri: str,
        *,
        start: int | None = None,
        end: int | None = None,
        dry_run: bool = False,
        backfill_first: bool = False,
    ) -> dict[str, Any]:
        """Write a compaction of a range of commits.

        :param start: the first version of the range; None: the first one that no checkpoint and no
            compaction covers.
        :param end: the last version of the range; None: the newest.
        :param dry_run: only report what would be done.
        :param backfill_first: have the commit owner of a managed table backfill missing versions first.
        :returns: ``table_uri``, the entries of `LogCompactionResult.to_dict`, and ``duration_ms``.
        :raises DeltaError: the table can't be read, the range is invalid, or the compaction can't be
            written.
        """
        began = time.monotonic()
        result = self._open(table_uri).compact_log(
            start, end, dry_run=dry_run, backfill_first=backfill_first
        )
        return timed_report(table_uri, result.to_dict(), began=began)

    @collects("input")
    @logs_progress
    def clean_up(
        self,
        table_uri: str,
        *,
        older_than_hours: float | None = None,
        force: bool = False,
        write_checkpoint: bool = False,
        backfill_first: bool = False,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Delete the expired part of a log.

        :param older_than_hours: the age of the commits to delete; None: ``delta.logRetentionDuration``.
        :param force: see `DeltaTable.cleanup_metadata`.
        :param write_checkpoint: first write a checkpoint of an older version, if more can be deleted then.
        :param backfill_first: have the commit owner of a managed table backfill missing versions first.
        :param dry_run: only report what would be deleted; nothing is backfilled and no checkpoint
            written.
        :returns: ``table_uri``, the entries of `MetadataCleanupResult.to_dict`, ``dry_run`` and
            ``duration_ms``.
        :raises RetentionError: the table's property keeps the log for longer.
        :raises DeltaError: the table can't be read, or its log can't be cleaned up.
        """
        began = time.monotonic()
        if backfill_first and not dry_run:
            self.backfill_missing(table_uri)
        result = self._open(table_uri).cleanup_metadata(
            older_than=None if older_than_hours is None else timedelta(hours=older_than_hours),
            force=force,
            write_checkpoint=write_checkpoint,
            dry_run=dry_run,
        )
        return timed_report(table_uri, result.to_dict(), began=began, dry_run=dry_run)

    @collects("output")
    @logs_progress
    def convert(
        self,
        table_uri: str,
        *,
        partition_schema: Mapping[str, str] | None = None,
        files: Sequence[str] | None = None,
        properties: Mapping[str, str] | None = None,
        collect_statistics: bool = True,
        once: tuple[str, int] | None = None,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Convert a directory of Parquet files to a Delta table, in place.

        :param partition_schema: the types of the partition columns, such as ``{"day": "date"}``.
        :param files: the files that shall be the table, as paths below the directory; None for all.
        :param properties: table properties.
        :param collect_statistics: whether to make statistics from the footers.
        :param once: application id and version, by which a retry finds the commit of an earlier try.
        :param dry_run: only report what the table would be.
        :returns: ``table_uri``, the entries of `ConvertResult.to_dict`, ``dry_run`` and ``duration_ms``.
        :raises DeltaError: the files can't be one table, or can't be read.
        """
        from airflow_delta.engine.maintenance.convert.execution import convert_directory
        from airflow_delta.engine.maintenance.convert.plan import ConvertRequest

        began = time.monotonic()
        table = self._open(table_uri)
        result = convert_directory(
            table.file_access,
            table.commit_owners,
            ConvertRequest(partition_schema, files, properties, collect_statistics),
            once=None if dry_run else once,
            dry_run=dry_run,
        )
        return timed_report(table_uri, result.to_dict(), began=began, dry_run=dry_run)

    @collects("output")
    @logs_progress
    def optimize(
        self,
        table_uri: str,
        *,
        where: str | None = None,
        min_file_size: int | None = None,
        max_file_size: int | None = None,
        max_deleted_ratio: float | None = None,
        purge: bool = False,
        z_order_by: Sequence[str] = (),
        full: bool = False,
        max_bytes: int | None = None,
        min_cube_size: int | None = None,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Rewrite small files of a table, and files with many deleted rows, as files of a good size.

        :param where: a condition over partition columns that chooses the files; None for all.
        :param min_file_size: files of fewer bytes are rewritten together; None: half of ``max_file_size``.
        :param max_file_size: the size of new files in bytes; None: ``delta.targetFileSize``, or 128 MiB.
        :param max_deleted_ratio: a file with a larger part of deleted rows is rewritten; None: 0.05.
        :param purge: rewrite just the files with deleted rows, however few.
        :param z_order_by: columns by which files are sorted, as SQL names them, such as ``address.city``.
        :param full: sort also what is sorted already.
        :param max_bytes: the most bytes of files to rewrite; None for any number.
        :param min_cube_size: of a clustered table: no other files are clustered with files that were
            clustered together and have at least this many bytes; None: 100 GiB.
        :param dry_run: only report what would be rewritten.
        :returns: ``table_uri``, the entries of `OptimizeResult.to_dict`, ``dry_run`` and ``duration_ms``.
        :raises DeltaError: an argument is invalid, or the table can't be read or written.
        """
        from airflow_delta.engine.model.sql_names import listed_columns

        began = time.monotonic()
        result = self._open(table_uri).optimize(
            where,
            z_order_by=listed_columns(",".join(z_order_by), "z_order_by"),
            full=full,
            min_cube_size=min_cube_size,
            min_file_size=min_file_size,
            max_file_size=max_file_size,
            max_deleted_ratio=max_deleted_ratio,
            purge=purge,
            max_bytes=max_bytes,
            dry_run=dry_run,
        )
        return timed_report(table_uri, result.to_dict(), began=began, dry_run=dry_run)

    @collects("input")
    @logs_progress
    def vacuum(
        self,
        table_uri: str,
        *,
        retention_hours: float | None = None,
        mode: str = "full",
        inventory: str | None = None,
        enforce_retention: bool = True,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Delete files in a table's directory that no retained version needs.

        :param retention_hours: the age of the files to delete; None:
            ``delta.deletedFileRetentionDuration``.
        :param mode: ``full`` or ``lite``.
        :param inventory: a Parquet file that lists the files, instead of a listing of the store.
        :param enforce_retention: refuse a shorter retention than that of the table's property.
        :param dry_run: only report what would be deleted.
        :returns: ``table_uri``, the entries of `VacuumResult.to_dict`, ``dry_run`` and ``duration_ms``.
        :raises RetentionError: the table's property keeps the files for longer.
        :raises DeltaError: the table can't be read, or can't be vacuumed.
        """
        began = time.monotonic()
        # The engine itself checks the mode.
        result = self._open(table_uri).vacuum(
            retention_hours=retention_hours,
            mode=cast("Any", mode),
            inventory=inventory,
            enforce_retention=enforce_retention,
            dry_run=dry_run,
        )
        return timed_report(table_uri, result.to_dict(), began=began, dry_run=dry_run)
