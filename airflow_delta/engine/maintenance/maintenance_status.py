"""Report which maintenance a table had last, and which is due: checkpoint, metadata cleanup, vacuum.

For ``airflow-delta describe``. It must be cheap, and must not fail if the table can be read. So it lists
the log and not the table's directory, and what it can't find out is unknown, with the reason. `check` looks
closer.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from airflow_delta.engine import clock
from airflow_delta.engine.errors import (
    ObjectNotFoundError,
    TableStateError,
    UnsupportedFeatureError,
)
from airflow_delta.engine.maintenance.metadata_cleanup.plan import (
    open_backfilled_part,
    plan_metadata_cleanup,
)
from airflow_delta.engine.maintenance.vacuum.last_vacuum import LAST_VACUUM, read_last_vacuum
from airflow_delta.engine.maintenance.vacuum.plan import find_expired_versions
from airflow_delta.engine.maintenance.vacuum.retention import choose_retention
from airflow_delta.engine.model.plain import time_or_none
from airflow_delta.engine.model.times import utc_datetime
from airflow_delta.engine.snapshot.snapshot import Snapshot

__all__ = [
    "CheckpointStatus",
    "CleanupStatus",
    "MaintenanceStatus",
    "VacuumStatus",
    "read_maintenance_status",
]


@dataclass(frozen=True, slots=True)
class CheckpointStatus:
    """The newest checkpoint, and whether the next one is due.

    Attributes:
        version: the version of the newest checkpoint; None for none.
        commits_since: how many commits readers read after it.
        interval: ``delta.checkpointInterval``; None if it can't be read.
        is_due: whether at least that many commits have been made since; None if unknown.
    """

    version: int | None
    commits_since: int
    interval: int | None
    is_due: bool | None


@dataclass(frozen=True, slots=True)
class CleanupStatus:
    """Whether a metadata cleanup is due.

    Attributes:
        num_files: how many files of the log a cleanup would delete; None if unknown.
        is_due: whether there are any; None if unknown.
        reason: why a cleanup wouldn't delete more, or why that is unknown; None for none.
    """

    num_files: int | None
    is_due: bool | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class VacuumStatus:
    """The last vacuum, and whether a vacuum is due.

    Attributes:
        vacuumed_version: the last version whose removed files have been vacuumed; None if no vacuum has
            recorded it: there was none, or the last one was a full vacuum of an engine that doesn't record
            it.
        noted_at_ms: when it was recorded, in epoch ms. A vacuum that covers no later version doesn't record
            it again.
        is_due: whether later versions are older than the retention, so that the files that they removed may
            be vacuumed; None if unknown.
        reason: why it is unknown; None for none.
    """

    vacuumed_version: int | None
    noted_at_ms: int | None
    is_due: bool | None
    reason: str | None

    @property
    def noted_at(self) -> datetime | None:
        """The time at which it was recorded, in UTC; None if it wasn't."""
        return utc_datetime(self.noted_at_ms)


@dataclass(frozen=True, slots=True)
class MaintenanceStatus:
    """The maintenance that a table had last, and that is due.

    Attributes:
        version: the newest version.
        checkpoint: the status of checkpoints.
        cleanup: the status of metadata cleanups.
        vacuum: the status of vacuums.
    """

    version: int
    checkpoint: CheckpointStatus
    cleanup: CleanupStatus
    vacuum: VacuumStatus

    def to_dict(self) -> dict[str, Any]:
        """The status as plain JSON values.

        Returns:
            ``version``; ``checkpoint`` (``version``, ``commits_since``, ``interval``, ``due``), ``cleanup``
            (``files``, ``due``, ``reason``) and ``vacuum`` (``vacuumed_version``, ``noted_at``, ``due``,
            ``reason``).
        """
        checkpoint, cleanup, vacuum = self.checkpoint, self.cleanup, self.vacuum
        return {
            "version": self.version,
            "checkpoint": {
                "version": checkpoint.version,
                "commits_since": checkpoint.commits_since,
                "interval": checkpoint.interval,
                "due": checkpoint.is_due,
            },
            "cleanup": {
                "files": cleanup.num_files,
                "due": cleanup.is_due,
                "reason": cleanup.reason,
            },
            "vacuum": {
                "vacuumed_version": vacuum.vacuumed_version,
                "noted_at": time_or_none(vacuum.noted_at_ms),
                "due": vacuum.is_due,
                "reason": vacuum.reason,
            },
        }


def read_maintenance_status(newest: Snapshot, *, now_ms: int | None = None) -> MaintenanceStatus:
    """Find out which maintenance a table had last, and which is due.

    Args:
        newest: the newest version.
        now_ms: the time, in epoch ms; by the clock unless given.

    Raises:
        StorageError: the store failed.
    """
    now_ms = clock.now_ms() if now_ms is None else now_ms
    return MaintenanceStatus(
        newest.version,
        _read_checkpoint_status(newest),
        _read_cleanup_status(newest, now_ms),
        _read_vacuum_status(newest, now_ms),
    )


def _read_checkpoint_status(newest: Snapshot) -> CheckpointStatus:
    checkpoint = newest.segment.checkpoint
    version = None if checkpoint is None else checkpoint.version
    since = newest.version - (-1 if version is None else version)
    try:
        interval = newest.properties.checkpoint_interval
    except TableStateError:
        return CheckpointStatus(version, since, None, None)
    return CheckpointStatus(version, since, interval, since >= interval)


def _read_cleanup_status(newest: Snapshot, now_ms: int) -> CleanupStatus:
    try:
        plan = plan_metadata_cleanup(
            newest.storage, open_backfilled_part(newest), newest=newest, now_ms=now_ms
        )
    except (TableStateError, UnsupportedFeatureError) as unknown:
        return CleanupStatus(None, None, unknown.message)
    return CleanupStatus(plan.num_files, plan.needed, plan.reason)


def _read_vacuum_status(newest: Snapshot, now_ms: int) -> VacuumStatus:
    storage = newest.storage
    version = read_last_vacuum(storage)
    noted_ms = None
    if version is not None:
        try:
            noted_ms = storage.head(LAST_VACUUM).modified_ms
        except ObjectNotFoundError:
            version = None  # a vacuum of another engine has deleted it concurrently
    try:
        retention = choose_retention(newest.properties, None, now_ms=now_ms, enforce=True)
    except TableStateError as unknown:
        return VacuumStatus(version, noted_ms, None, unknown.message)
    return VacuumStatus(version, noted_ms, bool(find_expired_versions(newest, retention)), None)
