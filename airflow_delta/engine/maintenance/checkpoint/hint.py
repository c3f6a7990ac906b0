"""Point readers to a checkpoint that is there, as far as the store lets us.

The hint is written after the checkpoint. One that can't be written is no more than a `DeltaWarning`:
readers find the checkpoint without it, they only list more of the log.

A hint that is there may also be to a checkpoint that was found damaged and has been replaced since, and
repeat what that one held. Readers that believe it fail, so it is written anew.

Spec: PROTOCOL.md, "Last Checkpoint File".
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from airflow_delta.engine.checkpoint.read import open_checkpoint
from airflow_delta.engine.errors import DeltaWarning, StorageError, TableStateError
from airflow_delta.engine.log.files import Checkpoint, MultipartCheckpoint
from airflow_delta.engine.log.last_checkpoint import (
    LastCheckpointHint,
    read_last_checkpoint,
    write_last_checkpoint,
)
from airflow_delta.engine.log.newest import find_latest_version
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.storage.base import Storage

__all__ = ["write_hint", "write_missing_hint"]


def write_missing_hint(storage: Storage, snapshot: Snapshot) -> None:
    """Make up for a hint that whoever wrote the checkpoint didn't come to write.

    Args:
        storage: where the table is.
        snapshot: of the version; nothing is done where that has no checkpoint.
    """
    checkpoint = snapshot.segment.checkpoint
    if checkpoint is None:
        return
    with _best_effort(storage, checkpoint.version):
        hint = read_last_checkpoint(storage)
        if hint is not None and _serves(hint, checkpoint, storage):
            return
        reader = open_checkpoint(storage, checkpoint, table=storage.root)
        num_non_file = len(reader.non_file_actions())
        num_removes = sum(removes.num_rows for removes in snapshot.state.stream(adds=False))
        num_files = snapshot.num_files
        if snapshot.segment.checkpoint != checkpoint:
            return  # counting has found out that it is damaged, and warned
        present = LastCheckpointHint(
            version=checkpoint.version,
            size=num_non_file + num_files + num_removes,
            parts=len(checkpoint.parts) if isinstance(checkpoint, MultipartCheckpoint) else None,
            num_of_add_files=num_files,
        )
        write_hint(storage, present)


def write_hint(storage: Storage, hint: LastCheckpointHint) -> None:
    """Point readers to a checkpoint, unless they are pointed to a newer one that is there.

    Args:
        storage: where the table is.
        hint: the checkpoint.
    """
    with _best_effort(storage, hint.version):
        write_last_checkpoint(storage, hint, log_end=lambda: find_latest_version(storage))


def _serves(hint: LastCheckpointHint, checkpoint: Checkpoint, storage: Storage) -> bool:
    """Whether a hint needn't be written anew, because it is newer, or true."""
    if hint.version == checkpoint.version:
        return _describes(hint, checkpoint, storage)
    return checkpoint.version < hint.version <= find_latest_version(storage)


def _describes(hint: LastCheckpointHint, checkpoint: Checkpoint, storage: Storage) -> bool:
    """Whether nothing that a hint says of a checkpoint of its version is wrong."""
    parts = len(checkpoint.parts) if isinstance(checkpoint, MultipartCheckpoint) else 1
    if (hint.parts or 1) != parts:
        return False
    content = hint.v2_checkpoint
    if content is None:
        return True
    if str(content.get("path")).rpartition("/")[2] != checkpoint.path.rpartition("/")[2]:
        return False
    sidecars = content.get("sidecarFiles")
    if not isinstance(sidecars, list):
        return True
    named = sorted(str(s.get("path")) if isinstance(s, dict) else "" for s in sidecars)
    reader = open_checkpoint(storage, checkpoint, table=storage.root)
    return sorted(sidecar.path for sidecar in reader.sidecars) == named


@contextmanager
def _best_effort(storage: Storage, version: int) -> Iterator[None]:
    """Let the hint fail with a warning: the checkpoint is there and will be found without it."""
    try:
        yield
    except (StorageError, TableStateError) as error:
        warnings.warn(
            f"{storage.root}: there is a checkpoint of version {version}, but _last_checkpoint can't "
            f"be pointed to it ({error.message}); readers list more of the log until the next one",
            DeltaWarning,
            stacklevel=4,
        )
