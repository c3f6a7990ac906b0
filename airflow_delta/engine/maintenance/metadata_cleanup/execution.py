"""Execute the plan of a metadata cleanup, in an order in which a crash does no damage.

First the checkpoint that the log will begin with is checked, and the hint is renewed. Then these are
deleted:

1. commits, ascending, then their checksums and compactions: after a crash the remaining old versions may or
   may not be readable, but nothing newer depends on them;
2. checkpoints, after the commits that they hide (RFC checkpoint-protection, rule d);
3. un-backfilled commits, sidecars, and what else is left over.

The next plan finds what a crash has left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from airflow_delta.engine.errors import ObjectNotFoundError
from airflow_delta.engine.log.files import Checkpoint, MultipartCheckpoint
from airflow_delta.engine.log.last_checkpoint import (
    LastCheckpointHint,
    read_last_checkpoint,
    write_last_checkpoint,
)
from airflow_delta.engine.log.listing import list_log
from airflow_delta.engine.maintenance.metadata_cleanup.expired_files import list_checkpoints
from airflow_delta.engine.maintenance.metadata_cleanup.plan import MetadataCleanupPlan
from airflow_delta.engine.maintenance.metadata_cleanup.sidecars import list_still_unneeded
from airflow_delta.engine.progress import Reporter, report_progress
from airflow_delta.engine.storage.base import Storage

__all__ = ["MetadataCleanupResult", "execute_metadata_cleanup"]

_BATCH = 1000
"""Files that are deleted by one call: as many as a request to S3 takes."""


@dataclass(frozen=True, slots=True)
class MetadataCleanupResult:
    """The result of a metadata cleanup.

    Attributes:
        plan: what was planned.
        num_deleted: how many files were deleted; 0 for a dry run.
        num_spared: sidecars that were planned to be deleted and stay, because a checkpoint written
            concurrently refers to them or may.
        hint_renewed: whether ``_last_checkpoint`` was pointed to a newer checkpoint.
    """

    plan: MetadataCleanupPlan
    num_deleted: int
    num_spared: int = 0
    hint_renewed: bool = False

    def to_dict(self) -> dict[str, Any]:
        """The report, as plain JSON values.

        Returns:
            What `MetadataCleanupPlan.to_dict` has, ``num_deleted`` and ``num_spared``.
        """
        return {
            **self.plan.to_dict(),
            "num_deleted": self.num_deleted,
            "num_spared": self.num_spared,
        }

    @property
    def earliest_version(self) -> int:
        """The first version that can be read from now on, with all later ones.

        After a dry run, the first that could be.
        """
        return self.plan.earliest_version


def execute_metadata_cleanup(storage: Storage, plan: MetadataCleanupPlan) -> MetadataCleanupResult:
    """Delete the files of a plan. May be interrupted and repeated: the next plan finds what is left.

    Args:
        storage: where the table is.
        plan: made by `plan_metadata_cleanup`.

    Raises:
        ObjectNotFoundError: the checkpoint that the log was to begin with is gone, or was replaced; nothing
            was deleted.
        StorageError: the store failed, or forbids deleting.
    """
    if not plan.needed or plan.begins_with is None:
        return MetadataCleanupResult(plan, 0)
    renewed = _renew_hint(storage, plan.begins_with)
    deleted = spared = 0
    # A store may delete the files of one call in any order, so each group gets calls of its own.
    with report_progress("delete", "files", plan.num_files) as reporter:
        for group in plan.deletes:
            paths = group.paths
            if group.kind == "sidecars" and plan.sidecars is not None:
                paths = list_still_unneeded(storage, plan.sidecars)
                spared = group.count - len(paths)
                reporter.advance(spared)
            _delete(storage, paths, reporter)
            deleted += len(paths)
    return MetadataCleanupResult(plan, deleted, spared, renewed)


def _delete(storage: Storage, paths: Sequence[str], reporter: Reporter) -> None:
    for start in range(0, len(paths), _BATCH):
        batch = list(paths[start : start + _BATCH])
        storage.delete(batch)
        reporter.advance(len(batch))


def _renew_hint(storage: Storage, checkpoint: Checkpoint) -> bool:
    """Check that a checkpoint is still as it was read, and rewrite a hint that points below it.

    Some readers fail on a hint to a checkpoint that doesn't exist.
    """
    version = checkpoint.version
    if checkpoint not in list_log(storage, start=version, end=version).checkpoints:
        raise ObjectNotFoundError(
            f"the checkpoint {checkpoint.path} of version {version}, which the log was to begin with, is "
            "gone or was replaced since the cleanup was planned; plan the cleanup again",
            table=storage.root,
            version=version,
            path=checkpoint.path,
        )
    hint = read_last_checkpoint(storage)
    if hint is None or hint.version >= version:
        return False
    newest = list_checkpoints(storage, start=version)[-1]
    parts = len(newest.parts) if isinstance(newest, MultipartCheckpoint) else None
    # -1: the number of its actions isn't known here.
    return write_last_checkpoint(storage, LastCheckpointHint(newest.version, -1, parts))
