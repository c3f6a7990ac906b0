"""What tasks do that destroys: clean up a log, vacuum a table, and bring back an earlier version.

Each function returns the engine's result of it as plain JSON values, ``to_dict()``, which XCom can carry:
numbers, bytes and reasons, and never a list of files.
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
    """Delete the part of a log that its table's retention doesn't protect.

    :param hook: reaches the table.
    :param older_than_hours: how old commits must be to go; None: as ``delta.logRetentionDuration`` says.
    :param force: see `DeltaTable.cleanup_metadata`.
    :param write_checkpoint: where a checkpoint of an older version would let more go, write it before.
    :param backfill_first: have the commit owner of a managed table backfill what is missing before.
    :param dry_run: only tell what would be deleted; nothing is backfilled and no checkpoint written.
    :returns: ``table_uri``, what `MetadataCleanupResult.to_dict` has, ``dry_run`` and ``duration_ms``.
    :raises RetentionError: the table keeps its log for longer than that.
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
    """Delete the files in a table's directory that nobody needs any more.

    :param hook: reaches the table, its commit owner and the inventory.
    :param retention_hours: how old files must be; None: as ``delta.deletedFileRetentionDuration`` says.
    :param mode: ``full`` or ``lite``.
    :param inventory: the Parquet file of files to be looked at in place of a listing.
    :param enforce_retention: refuse less than the table's property says.
    :param dry_run: only tell what would be deleted.
    :returns: ``table_uri``, what `VacuumResult.to_dict` has, ``dry_run`` and ``duration_ms``.
    :raises RetentionError: the table keeps its files for longer than that.
    :raises DeltaError: the table can't be read, or can't be vacuumed.
    """
    began = time.monotonic()
    # The engine itself tells what the modes are.
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
    """Bring back an earlier version of a table by a commit, and have a checkpoint written of it.

    :param hook: reaches the table and its commit owner.
    :param version: the version; or
    :param timestamp: the newest version at this time: ISO-8601 with offset, or epoch milliseconds.
    :param ignore_missing_files: don't look whether the files are there that come back.
    :param once: application and number of the commit, by which the commit of an earlier try is found.
    :param write_checkpoint: write the checkpoint. One that can't be written, because the commit isn't
        backfilled, or a cleanup has gone beyond it since an earlier try, is left out.
    :param backfill_first: have the commit owner of a managed table backfill the commit for it.
    :param dry_run: only tell what would be restored.
    :returns: ``table_uri``, what `RestoreResult.to_dict` has, ``checkpoint`` (``version``, ``path``,
        ``written`` and ``reason`` of what `DeltaHook.checkpoint` returns; None for none), ``dry_run`` and
        ``duration_ms``.
    :raises DeltaError: the version can't be restored. After an error of the checkpoint the table is
        restored: a repetition with the same ``once`` finds that done.
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
    """Write a report into the log of a task, for people: a line for each fact.

    :param logger: the task's.
    :param what: what the report is of.
    :param report: what one of the functions here returns.
    """
    from airflow_delta.engine.maintenance.reports import report_lines
    from airflow_delta.engine.public_text import printable

    facts = {name: value for name, value in report.items() if name != "table_uri"}
    # A line of the report must not become two.
    lines = "\n".join(map(printable, report_lines(facts)))
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
