"""What tasks do with managed tables: backfill them, wait for that, and change who owns their commits."""

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
    """What one look at the backfill of a table has found.

    Attributes:
        reached: whether the version that is waited for is backfilled.
        facts: ``table_uri``, ``version`` (the one that is waited for), ``ratified_version``,
            ``backfilled_version`` and ``lag``, as JSON values.
    """

    reached: bool
    facts: dict[str, Any]

    @property
    def seen(self) -> str:
        """What was seen, in words."""
        backfilled, ratified = self.facts["backfilled_version"], self.facts["ratified_version"]
        return f"version {backfilled} backfilled, version {ratified} ratified"


def backfill(hook: DeltaHook, table_uri: str, *, version: int | None = None) -> dict[str, Any]:
    """Have the commit owner of a managed table backfill it.

    :param hook: reaches the table and its owner.
    :param version: the last version to be backfilled; None: all that are ratified by now.
    :returns: ``table_uri``, what `BackfillResult.to_dict` has, and ``duration_ms``.
    :raises DeltaError: the file system manages the table, the owner hasn't ratified the version or
        can't be asked, or the store fails.
    """
    began = time.monotonic()
    result = hook.table(table_uri).backfill(version)
    duration = round((time.monotonic() - began) * 1000)
    return {"table_uri": table_uri, **result.to_dict(), "duration_ms": duration}


def look_at_backfill(
    table: DeltaTable, *, version: int | None = None, trigger_backfill: bool = False
) -> BackfillLook:
    """How far a table is backfilled, and whether that is far enough.

    Of a table that the file system manages every version is, as soon as it is there.

    :param table: the table.
    :param version: the version that is waited for; None: the newest that is ratified now.
    :param trigger_backfill: have the owner backfill what is missing.
    :raises InvalidArgumentError: the version can't be one.
    :raises DeltaError: the table can't be read, or its owner can't be asked.
    """
    from airflow_delta.engine.log.segment import check_version

    check_version(version, table=table.uri)
    status = table.commit_status()
    wanted = status.ratified_version if version is None else version
    backfilled = status.backfilled_version
    # The owner can't backfill what nobody has committed yet.
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
    """What is waited for, in words.

    :param version: the version; None: the newest that is ratified when the first look succeeds.
    """
    which = "all versions that are ratified now" if version is None else f"version {version}"
    return f"{which} to be backfilled"


def backfill_missing(hook: DeltaHook, table_uri: str, version: int | None = None) -> None:
    """Make sure that a version is in the log's directory, for jobs that look nowhere else.

    The commit owner is asked only where it has to be: of a table that the file system manages, and of
    a version that is backfilled, nothing is to be done.

    :param hook: reaches the table and its owner.
    :param version: the version; None: all that are ratified by now.
    :raises DeltaError: the table can't be read, or it can't be backfilled.
    """
    table = hook.table(table_uri)
    newest = _backfilled_snapshot(table)
    if _owner_name(newest) is not None and (version is None or version > newest.version):
        table.backfill(version)


def owner_url_for_job(hook: DeltaHook, table_uri: str) -> str | None:
    """The database of the commit owner, for a job that commits to a table; None: it needs none from us.

    That is so where there is no table yet or the file system manages it, and where no connection names
    the database: the job finds its owner in the environment then, as the worker does.

    :param hook: reaches the table and its owner.
    :raises CommitOwnerError: the table is managed, and its owner doesn't have it or can't be reached
        from here. That is told before anything starts.
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
    """Hand the commits of a table over to a commit owner.

    Where the owner can't be reached, and the log says that it has the table, there is nothing to be done
    but to trust in that; unless a configuration is asked for.

    :param owner: what the owner is called.
    :param conf: its configuration, which everybody may read who may read the table; None: whatever the
        table has, and that of the owner's defaults where it is handed over.
    :returns: ``table_uri``, ``version``, ``owner`` and ``converted``: false where it had them already.
    :raises DeltaError: the table can't be read or handed over.
    """
    from airflow_delta.engine.errors import CommitOwnerUnavailableError, NoBooksError
    from airflow_delta.engine.transaction.conversion import ConversionResult

    table = hook.table(table_uri)
    try:
        result = table.convert_to_managed(owner, conf)
    except NoBooksError:
        # Somebody answers, and it isn't the owner of this table.
        raise
    except CommitOwnerUnavailableError as error:
        newest = _backfilled_snapshot(table)
        if conf is not None or _owner_name(newest) != owner:
            raise
        _LOG.warning("%s: by its log it has the commit owner %r; %s", table_uri, owner, error)
        unchanged = ConversionResult(newest.version, owner, converted=False)
        return {"table_uri": table_uri, **unchanged.to_dict()}
    return {"table_uri": table_uri, **result.to_dict()}


def convert_to_file_system(
    hook: DeltaHook, table_uri: str, *, keep_in_commit_timestamps: bool = True
) -> dict[str, Any]:
    """Give the commits of a managed table back to the file system.

    :param keep_in_commit_timestamps: leave the feature ``inCommitTimestamp`` in the protocol.
    :returns: as `convert_to_managed`; ``owner`` is None.
    :raises DeltaError: the table can't be read, or its owner doesn't give it back.
    """
    result = hook.table(table_uri).convert_to_file_system(
        keep_in_commit_timestamps=keep_in_commit_timestamps
    )
    return {"table_uri": table_uri, **result.to_dict()}


def _backfilled_snapshot(table: DeltaTable) -> Snapshot:
    """The newest version that the log's directory has; no commit owner is asked."""
    from airflow_delta.engine.maintenance.backfill.backfilled import open_backfilled

    return open_backfilled(table.storage)


def _owner_name(snapshot: Snapshot) -> str | None:
    from airflow_delta.engine.features.managed_commits import commit_owner
    from airflow_delta.engine.features.protocol import supported_features

    return commit_owner(supported_features(snapshot.protocol), snapshot.properties)
