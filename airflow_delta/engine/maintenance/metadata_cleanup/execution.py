"""Do what the plan of a metadata cleanup says, in an order that no crash turns into damage.

Before anything goes, the checkpoint that the log will begin with must still be there, the very one that the
plan has read. ``_last_checkpoint`` is renewed if it points below that, as some readers fail when what it
points to is gone. Then:

1. commits, ascending, and after them their checksums and compactions: what is left of a cleanup that is
   broken off can't be rebuilt, or can still, and nothing newer depends on it;
2. checkpoints, after the commits that they hide (checkpoint-protection.md, rule d);
3. un-backfilled commits, sidecars, and what else is left over.

What a crash leaves is found by the next plan, which need not know of this one. Within one call a store may
delete in any order, so each step makes calls of its own.
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
from airflow_delta.engine.storage.base import Storage

__all__ = ["MetadataCleanupResult", "execute_metadata_cleanup"]

_BATCH = 1000
"""Files that are deleted by one call: as many as a request to S3 takes."""


@dataclass(frozen=True, slots=True)
class MetadataCleanupResult:
    """What was done.

    Attributes:
        plan: what was planned.
        num_deleted: how many files were deleted; 0 for a dry run.
        num_spared: sidecars that were to be deleted and are needed again by a checkpoint that was written
            meanwhile, or may be.
        hint_renewed: whether ``_last_checkpoint`` was pointed to a newer checkpoint.
    """

    plan: MetadataCleanupPlan
    num_deleted: int
    num_spared: int = 0
    hint_renewed: bool = False

    def to_dict(self) -> dict[str, Any]:
        """What was done as plain JSON values.

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
        """The first version that can be read now, with all later ones, or could be after the dry run."""
        return self.plan.earliest_version


def execute_metadata_cleanup(storage: Storage, plan: MetadataCleanupPlan) -> MetadataCleanupResult:
    """Do what a plan says. May be repeated, and broken off: what is left is for the next time.

    Args:
        storage: where the table is.
        plan: made by `plan_metadata_cleanup`.

    Raises:
        ObjectNotFoundError: the checkpoint that the log is to begin with is gone, or another one is in its
            place; nothing was deleted.
        StorageError: the store failed, or doesn't let files be deleted.
    """
    if not plan.needed or plan.begins_with is None:
        return MetadataCleanupResult(plan, 0)
    renewed = _renew_hint(storage, plan.begins_with)
    deleted = spared = 0
    for group in plan.deletes:
        paths = group.paths
        if group.kind == "sidecars" and plan.sidecars is not None:
            paths = list_still_unneeded(storage, plan.sidecars)
            spared = group.count - len(paths)
        _delete(storage, paths)
        deleted += len(paths)
    return MetadataCleanupResult(plan, deleted, spared, renewed)


def _delete(storage: Storage, paths: Sequence[str]) -> None:
    for start in range(0, len(paths), _BATCH):
        storage.delete(list(paths[start : start + _BATCH]))


def _renew_hint(storage: Storage, checkpoint: Checkpoint) -> bool:
    """Make sure that a checkpoint is there as it was read, and that no reader is pointed below it."""
    version = checkpoint.version
    if checkpoint not in list_log(storage, start=version, end=version).checkpoints:
        raise ObjectNotFoundError(
            f"the checkpoint {checkpoint.path} of version {version}, which the log was to begin with, is "
            "gone or was replaced since the cleanup was planned; plan it anew",
            table=storage.root,
            version=version,
            path=checkpoint.path,
        )
    hint = read_last_checkpoint(storage)
    if hint is None or hint.version >= version:
        return False
    newest = list_checkpoints(storage, start=version)[-1]
    parts = len(newest.parts) if isinstance(newest, MultipartCheckpoint) else None
    # How many actions it has isn't known here.
    return write_last_checkpoint(storage, LastCheckpointHint(newest.version, -1, parts))
