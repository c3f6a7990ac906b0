"""Write ``_last_checkpoint``, the hint that points readers to a checkpoint.

Spec: PROTOCOL.md, "Last Checkpoint File". The hint is written after the checkpoint. If that fails it is a
`DeltaWarning`: readers find the checkpoint by listing more of the log. `write_missing_hint` also replaces a
hint that describes a checkpoint wrongly, such as a damaged one that was replaced: readers that rely on it
would fail.
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
    """Write the hint to the checkpoint of a snapshot's version, if it is missing or wrong.

    Args:
        storage: where the table is.
        snapshot: of the version; nothing is done if that has no checkpoint.
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
            return  # counting has found it damaged, and warned
        present = LastCheckpointHint(
            version=checkpoint.version,
            size=num_non_file + num_files + num_removes,
            parts=len(checkpoint.parts) if isinstance(checkpoint, MultipartCheckpoint) else None,
            num_of_add_files=num_files,
        )
        write_hint(storage, present)


def write_hint(storage: Storage, hint: LastCheckpointHint) -> None:
    """Write the hint, unless it already points to a newer checkpoint that exists.

    Args:
        storage: where the table is.
        hint: describes the checkpoint.
    """
    with _best_effort(storage, hint.version):
        write_last_checkpoint(storage, hint, log_end=lambda: find_latest_version(storage))


def _serves(hint: LastCheckpointHint, checkpoint: Checkpoint, storage: Storage) -> bool:
    """Whether a hint can stay, because it is newer, or correct."""
    if hint.version == checkpoint.version:
        return _describes(hint, checkpoint, storage)
    return checkpoint.version < hint.version <= find_latest_version(storage)


def _describes(hint: LastCheckpointHint, checkpoint: Checkpoint, storage: Storage) -> bool:
    """Whether a hint describes a checkpoint of its version correctly."""
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
    """Turn errors into warnings: the checkpoint exists and is found without the hint."""
    try:
        yield
    except (StorageError, TableStateError) as error:
        warnings.warn(
            f"{storage.root}: there is a checkpoint of version {version}, but _last_checkpoint can't "
            f"be written ({error.message}); readers list more of the log until the next checkpoint",
            DeltaWarning,
            stacklevel=4,
        )
