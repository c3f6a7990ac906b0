"""Make barriers: empty commits with checkpoints that hide older versions from readers without a feature.

RFC checkpoint-protection: readers of a version after the drop start from a checkpoint that is newer than
the last version that uses the feature, so they never replay a commit that they don't understand. The
checkpoint of the version that drops the feature is enough for that. Three more are made before it, as in
Delta Spark and under the same name: if a reader misses that one, it still finds one after the last version
that uses the feature. Each checkpoint is read to its end before anything relies on it.
"""

from __future__ import annotations

import json
from contextlib import suppress

from airflow_delta.engine.commit.registry import CommitOwners
from airflow_delta.engine.errors import (
    CorruptLogError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from airflow_delta.engine.log.files import commit_path
from airflow_delta.engine.log.listing import list_log
from airflow_delta.engine.maintenance.backfill.backfilled import open_backfilled
from airflow_delta.engine.maintenance.backfill.execution import ensure_backfilled
from airflow_delta.engine.maintenance.checkpoint.execution import (
    execute_checkpoint,
    plan_checkpoint,
)
from airflow_delta.engine.maintenance.metadata_cleanup.checkpoint_protection import (
    read_protection_boundary,
)
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.storage.base import Storage
from airflow_delta.engine.transaction.intent import EmptyVersion
from airflow_delta.engine.transaction.transaction import OptimisticTransaction

__all__ = [
    "BARRIERS",
    "OPERATION",
    "add_barrier",
    "count_missing_barriers",
    "hide_versions_below_boundary",
    "write_checked_checkpoint",
]

BARRIERS = 3
"""How many barriers are made before the version that drops a feature, as in Delta Spark."""

_LARGEST_EMPTY = 64 * 1024
"""The largest empty commit, in bytes."""

OPERATION = "Empty Commit"
"""Delta Spark's name for such a commit."""


def count_missing_barriers(storage: Storage, base: Snapshot, *, made: int) -> int:
    """Count the barriers that are still to be made.

    Barriers of a former run count if they are the newest versions: an empty commit has the state of the one
    before it, so they don't use the feature either. If there are other commits after them, that is unknown.

    Args:
        storage: where the table is.
        base: the newest version, which doesn't use the feature.
        made: how many this run has made since the last version that uses the feature, whatever others have
            committed since.
    """
    return max(0, BARRIERS - max(made, _count_existing(storage, base)))


def _count_existing(storage: Storage, base: Snapshot) -> int:
    oldest = max(1, base.version - BARRIERS + 1)
    listing = list_log(storage, start=oldest, end=base.version)
    checkpointed = {checkpoint.version for checkpoint in listing.checkpoints}
    count = 0
    for version in range(base.version, oldest - 1, -1):
        if version not in checkpointed or not _is_empty_commit(storage, version):
            break
        count += 1
    return count


def _is_empty_commit(storage: Storage, version: int) -> bool:
    """Whether a commit has only ``commitInfo``, whatever its operation."""
    content = storage.read(commit_path(version), length=_LARGEST_EMPTY + 1)
    if len(content) > _LARGEST_EMPTY:
        return False
    try:
        actions = [json.loads(line) for line in content.splitlines() if line.strip()]
    except (ValueError, RecursionError):
        return False
    return bool(actions) and all(
        isinstance(action, dict) and action.keys() == {"commitInfo"} for action in actions
    )


def add_barrier(storage: Storage, owners: CommitOwners, base: Snapshot) -> int:
    """Make an empty commit and its checkpoint.

    Returns:
        The version.

    Raises:
        DeltaError: see `OptimisticTransaction.commit` and `write_checked_checkpoint`.
    """
    transaction = OptimisticTransaction(storage, base, OPERATION, owners=owners)
    transaction.declare(EmptyVersion())
    version = transaction.commit().version
    write_checked_checkpoint(storage, owners, version)
    return version


def hide_versions_below_boundary(storage: Storage, owners: CommitOwners, base: Snapshot) -> None:
    """Write the checkpoint at the table's protection boundary, if it doesn't exist.

    A run that dropped a feature may have died before. If the log doesn't reach back to the boundary, there
    is nothing to hide; if the engine doesn't know the protocol of that version, it can't write the
    checkpoint.

    Args:
        storage: where the table is.
        owners: the known commit owners.
        base: the newest version.

    Raises:
        DeltaError: see `write_checked_checkpoint`.
    """
    boundary = read_protection_boundary(base)
    if not 0 < boundary <= base.version:
        return
    if list_log(storage, start=boundary, end=boundary).checkpoints:
        return
    with suppress(VersionNotFoundError, UnsupportedFeatureError):
        write_checked_checkpoint(storage, owners, boundary)


def write_checked_checkpoint(storage: Storage, owners: CommitOwners, version: int) -> None:
    """Write the checkpoint of a version, unless it exists, and read it to its end.

    Args:
        storage: where the table is.
        owners: the known commit owners. The version of a managed table is backfilled first.
        version: the version.

    Raises:
        CorruptLogError: the log is damaged, or what was written can't be read.
        VersionNotFoundError: the log can't rebuild the version.
        InvalidTableError: the counts don't agree.
        CommitOwnerError: the version can't be backfilled.
        StorageError: the store failed.
    """
    ensure_backfilled(storage, owners, version)
    snapshot = open_backfilled(storage, version)
    execute_checkpoint(storage, snapshot, plan_checkpoint(snapshot))
    # Planning another one reads the existing one to its end.
    check = plan_checkpoint(open_backfilled(storage, version))
    if check.needed:
        raise CorruptLogError(
            f"the checkpoint of version {version} was written, but is unreliable: {check.reason}; run the "
            "operation again",
            table=storage.root,
            version=version,
            path=check.path,
        )
