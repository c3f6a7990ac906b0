"""Backfill managed tables, wait for backfills, and change the commit owner, for tasks."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_delta.engine import DeltaTable, Snapshot
    from airflow_delta.hooks.delta import DeltaHook

__all__ = [
    "BackfillLook",
    "backfill",
    "backfill_missing",
    "convert_to_file_system",
    "convert_to_managed",
    "look_at_backfill",
    "owner_url_for_job",
    "wanted_backfill",
]

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BackfillLook:
    """The result of one check of the backfill of a table.

    Attributes:
        reached: whether the wanted version is backfilled.
        facts: ``table_uri``, ``version`` (the wanted one), ``ratified_version``, ``backfilled_version`` and
            ``lag``, as JSON values.
    """

    reached: bool
    facts: dict[str, Any]

    @property
    def seen(self) -> str:
        """The state that was found, in words."""
        backfilled, ratified = self.facts["backfilled_version"], self.facts["ratified_version"]
        return f"version {backfilled} backfilled, version {ratified} ratified"


def backfill(hook: DeltaHook, table_uri: str, *, version: int | None = None) -> dict[str, Any]:
    """Have the commit owner of a managed table backfill it.

    :param hook: gives access to the table and its owner.
    :param version: the last version to be backfilled; None: all ratified versions.
    :returns: ``table_uri``, the entries of `BackfillResult.to_dict`, and ``duration_ms``.
    :raises DeltaError: the table isn't managed, the owner hasn't ratified the version or can't be reached,
        or the store fails.
    """
    began = time.monotonic()
    result = hook.table(table_uri).backfill(version)
    duration = round((time.monotonic() - began) * 1000)
    return {"table_uri": table_uri, **result.to_dict(), "duration_ms": duration}


def look_at_backfill(
    table: DeltaTable, *, version: int | None = None, trigger_backfill: bool = False
) -> BackfillLook:
    """Check whether a version of a table is backfilled.

    Every version of a table that isn't managed counts as backfilled.

    :param table: the table.
    :param version: the wanted version; None: the newest ratified one.
    :param trigger_backfill: have the owner backfill missing versions.
    :raises InvalidArgumentError: the version is invalid.
    :raises DeltaError: the table can't be read, or its owner can't be reached.
    """
    from airflow_delta.engine.log.segment import check_version

    check_version(version, table=table.uri)
    status = table.commit_status()
    wanted = status.ratified_version if version is None else version
    backfilled = status.backfilled_version
    # The owner can only backfill ratified versions.
    missing = min(wanted, status.ratified_version)
    if trigger_backfill and backfilled < missing:
        backfilled = table.backfill(missing).backfilled_version
    return BackfillLook(
        backfilled >= wanted,
        {
            "table_uri": table.uri,
            "version": wanted,
            "ratified_version": status.ratified_version,
            "backfilled_version": backfilled,
            "lag": max(status.ratified_version - backfilled, 0),
        },
    )


def wanted_backfill(version: int | None) -> str:
    """The state that is waited for, in words.

    :param version: the version; None: the newest ratified one at the first successful check.
    """
    which = "all versions that are ratified now" if version is None else f"version {version}"
    return f"{which} to be backfilled"


def backfill_missing(hook: DeltaHook, table_uri: str, version: int | None = None) -> None:
    """Make sure that a version is backfilled, for jobs that read only ``_delta_log``.

    This makes no request to a commit owner if the table isn't managed or the version is already backfilled.

    :param hook: gives access to the table and its owner.
    :param version: the version; None: all ratified versions.
    :raises DeltaError: the table can't be read, or it can't be backfilled.
    """
    table = hook.table(table_uri)
    newest = _backfilled_snapshot(table)
    if _owner_name(newest) is not None and (version is None or version > newest.version):
        table.backfill(version)


def owner_url_for_job(hook: DeltaHook, table_uri: str) -> str | None:
    """The database URL of the commit owner, for a job that commits to a table; None if the job needs none.

    It needs none if the table doesn't exist yet or isn't managed, or if no connection names the
    database: then the job finds it in the environment, like the worker.

    :param hook: gives access to the table and its owner.
    :raises CommitOwnerError: the table is managed, and its owner doesn't have it or can't be
        reached; this is checked before the job is submitted.
    :raises DeltaError: the table can't be read.
    """
    from airflow_delta.engine.errors import TableNotFoundError

    table = hook.table(table_uri)
    try:
        newest = _backfilled_snapshot(table)
    except TableNotFoundError:
        return None
    if _owner_name(newest) is None:
        return None
    table.commit_status()
    return hook.commit_owner.url()


def convert_to_managed(
    hook: DeltaHook, table_uri: str, *, owner: str, conf: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Convert a table to a managed table of a commit owner.

    If the owner can't be reached, but the log says that it owns the table already, the conversion
    counts as done, unless ``conf`` is given.

    :param owner: the owner's name.
    :param conf: its configuration, which everybody may read who may read the table; None: that of
        the table, or the owner's defaults for a new conversion.
    :returns: ``table_uri``, ``version``, ``owner`` and ``converted`` (false if it was converted before).
    :raises DeltaError: the table can't be read or converted.
    """
    from airflow_delta.engine.errors import CommitOwnerUnavailableError, NoBooksError
    from airflow_delta.engine.transaction.conversion import ConversionResult

    table = hook.table(table_uri)
    try:
        result = table.convert_to_managed(owner, conf)
    except NoBooksError:
        # The owner can be reached, but doesn't have this table.
        raise
    except CommitOwnerUnavailableError as error:
        newest = _backfilled_snapshot(table)
        if conf is not None or _owner_name(newest) != owner:
            raise
        _LOG.warning(
            "%s: according to its log it has the commit owner %r; %s", table_uri, owner, error
        )
        unchanged = ConversionResult(newest.version, owner, converted=False)
        return {"table_uri": table_uri, **unchanged.to_dict()}
    return {"table_uri": table_uri, **result.to_dict()}


def convert_to_file_system(
    hook: DeltaHook, table_uri: str, *, keep_in_commit_timestamps: bool = True
) -> dict[str, Any]:
    """Convert a managed table back to a table that the file system manages.

    :param keep_in_commit_timestamps: keep the feature ``inCommitTimestamp`` in the protocol.
    :returns: like `convert_to_managed`; ``owner`` is None.
    :raises DeltaError: the table can't be read, or its owner doesn't release it.
    """
    result = hook.table(table_uri).convert_to_file_system(
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
