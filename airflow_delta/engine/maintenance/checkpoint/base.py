"""From what the checkpoint of a version can be made, so that what didn't change is used again.

That is the previous checkpoint, together with the commits since: its sidecars for one of the V2 spec
(`incremental_v2`), the row groups of its files for one of the V1 spec (`incremental_v1`). Memory holds all
actions of those commits, so there must not be too many of them.
"""

from __future__ import annotations

from airflow_delta.engine.checkpoint.incremental_v1 import has_files_inline
from airflow_delta.engine.checkpoint.incremental_v2 import has_all_in_sidecars
from airflow_delta.engine.checkpoint.read import CheckpointReader, open_checkpoint
from airflow_delta.engine.log.files import Checkpoint
from airflow_delta.engine.log.listing import Listing, list_log
from airflow_delta.engine.snapshot.snapshot import Snapshot

__all__ = ["find_classic_base", "find_incremental_base", "has_checkpoint", "open_base_checkpoint"]

_COMMITS_BYTES = 128 << 20
"""The most text of commits whose actions are held in memory, as is done to take a checkpoint up again.
More of it is streamed, with the checkpoint's rows after it."""


def has_checkpoint(snapshot: Snapshot) -> bool:
    """Whether there is a checkpoint of the snapshot's very version, as far as is known whole."""
    checkpoint = snapshot.segment.checkpoint
    return checkpoint is not None and checkpoint.version == snapshot.version


def open_base_checkpoint(snapshot: Snapshot) -> CheckpointReader | None:
    """A reader of the checkpoint that a snapshot starts from; None where there is none."""
    segment = snapshot.segment
    if segment.checkpoint is None:
        return None
    return open_checkpoint(
        snapshot.storage,
        segment.checkpoint,
        table=segment.table,
        actions=segment.checkpoint_actions,
    )


def find_incremental_base(
    snapshot: Snapshot, listing: Listing | None = None
) -> CheckpointReader | None:
    """The checkpoint that a new V2 checkpoint can be made from; None where all must be written.

    Args:
        snapshot: of the version to checkpoint.
        listing: the newest part of the log, up to its end, where it is known.

    Raises:
        CorruptLogError: the previous checkpoint is damaged.
        ObjectNotFoundError: it is gone.
    """
    base = _base(snapshot)
    if base is None:
        return None
    checkpoint, reader = base
    if listing is None:
        listing = list_log(snapshot.storage, start=checkpoint.version)
    if listing.checkpoints and listing.checkpoints[-1].version > checkpoint.version:
        return None
    return reader if has_all_in_sidecars(reader) else None


def find_classic_base(snapshot: Snapshot) -> Checkpoint | None:
    """The checkpoint that a new one in one file can be made from; None where all must be written.

    Args:
        snapshot: of the version to checkpoint.

    Raises:
        CorruptLogError: the previous checkpoint is damaged.
        ObjectNotFoundError: it is gone.
    """
    base = _base(snapshot)
    return base[0] if base is not None and has_files_inline(*base) else None


def _base(snapshot: Snapshot) -> tuple[Checkpoint, CheckpointReader] | None:
    """The previous checkpoint, where so little has come since that memory can hold it."""
    segment, reader = snapshot.segment, open_base_checkpoint(snapshot)
    if segment.checkpoint is None or reader is None or has_checkpoint(snapshot):
        return None
    if sum(file.size for file in segment.plan()) > _COMMITS_BYTES:
        return None
    return segment.checkpoint, reader
