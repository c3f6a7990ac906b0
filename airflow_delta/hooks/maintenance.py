"""Clean up a log, vacuum a table and restore a version, for tasks.

Each function returns the engine's result as plain JSON values (``to_dict()``) for XCom: numbers,
bytes and reasons, but no lists of files.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

from airflow_delta.hooks.managed_commits import backfill_missing

if TYPE_CHECKING:
    from airflow_delta.hooks.delta import DeltaHook

__all__ = ["clean_up", "log_report", "restore", "vacuum"]

_LOG = logging.getLogger(__name__)


def clean_up(
    hook: DeltaHook,
    table_uri: str,
    *,
    older_than_hours: float | None = None,
    force: bool = False,
    write_checkpoint: bool = False,
    backfill_first: bool = False,
    dry_run: bool = False,
) -> dict[str, Any]:
    """Delete the expired part of a log.

    :param hook: gives access to the table.
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
        backfill_missing(hook, table_uri)
    result = hook.table(table_uri).cleanup_metadata(
        older_than=None if older_than_hours is None else timedelta(hours=older_than_hours),
        force=force,
        write_checkpoint=write_checkpoint,
        dry_run=dry_run,
    )
    return _finished(table_uri, result.to_dict(), began=began, dry_run=dry_run)


def vacuum(
    hook: DeltaHook,
    table_uri: str,
    *,
    retention_hours: float | None = None,
    mode: str = "full",
    inventory: str | None = None,
    enforce_retention: bool = True,
    dry_run: bool = False,
) -> dict[str, Any]:
    """Delete files in a table's directory that no retained version needs.

    :param hook: gives access to the table, its commit owner and the inventory.
    :param retention_hours: the age of the files to delete; None: ``delta.deletedFileRetentionDuration``.
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
    result = hook.table(table_uri).vacuum(
        retention_hours=retention_hours,
        mode=cast("Any", mode),
        inventory=inventory,
        enforce_retention=enforce_retention,
        dry_run=dry_run,
    )
    return _finished(table_uri, result.to_dict(), began=began, dry_run=dry_run)


def restore(
    hook: DeltaHook,
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

    :param hook: gives access to the table and its commit owner.
    :param version: the version; or
    :param timestamp: the newest version at this time: ISO-8601 with offset, or epoch milliseconds.
    :param ignore_missing_files: don't check that the restored files exist.
    :param once: application id and version, by which a retry finds the commit of an earlier try.
    :param write_checkpoint: write the checkpoint. It is skipped if it can't be written, because the commit
        isn't backfilled, or because a cleanup has deleted it since an earlier try.
    :param backfill_first: have the commit owner of a managed table backfill the commit first.
    :param dry_run: only report what would be restored.
    :returns: ``table_uri``, the entries of `RestoreResult.to_dict`, ``checkpoint`` (``version``, ``path``,
        ``written`` and ``reason`` from `DeltaHook.checkpoint`, or None), ``dry_run`` and ``duration_ms``.
    :raises DeltaError: the version can't be restored. If only the checkpoint failed, the table is restored,
        and a retry with the same ``once`` finds the commit.
    """
    began = time.monotonic()
    result = hook.table(table_uri).restore(
        version,
        timestamp,
        ignore_missing_files=ignore_missing_files,
        once=None if dry_run else once,
        dry_run=dry_run,
    )
    report = result.to_dict()
    checkpoint = None
    if write_checkpoint and result.checkpoint_due:
        _LOG.info("%s: restored by version %s", table_uri, result.version)
        checkpoint = _checkpoint(hook, table_uri, report["version"], backfill_first=backfill_first)
    return _finished(table_uri, {**report, "checkpoint": checkpoint}, began=began, dry_run=dry_run)


def log_report(logger: Any, what: str, report: Mapping[str, Any]) -> None:
    """Write a report to the log of a task, with a line per fact.

    :param logger: the task's logger.
    :param what: the title of the report.
    :param report: the result of a function of this module.
    """
    from airflow_delta.engine.maintenance.reports import format_report
    from airflow_delta.engine.public_text import printable

    facts = {name: value for name, value in report.items() if name != "table_uri"}
    # Escapes line breaks within facts.
    lines = "\n".join(map(printable, format_report(facts)))
    logger.info("%s of %s\n%s", what, report["table_uri"], lines)


def _checkpoint(
    hook: DeltaHook, table_uri: str, version: int, *, backfill_first: bool
) -> dict[str, Any]:
    from airflow_delta.engine.errors import NotBackfilledError, VersionNotFoundError

    try:
        found = hook.checkpoint(table_uri, version=version, backfill_first=backfill_first)
    except (NotBackfilledError, VersionNotFoundError) as error:
        _LOG.warning("%s: no checkpoint of version %s: %s", table_uri, version, error)
        found = {"version": version, "path": None, "written": False, "reason": str(error)}
    return {name: found[name] for name in ("version", "path", "written", "reason")}


def _finished(
    table_uri: str, report: Mapping[str, Any], *, began: float, dry_run: bool
) -> dict[str, Any]:
    duration = round((time.monotonic() - began) * 1000)
    return {"table_uri": table_uri, **report, "dry_run": dry_run, "duration_ms": duration}
