"""Find the checkpoint from which the next one can be made, so that unchanged parts are reused.

That is the previous checkpoint, together with the commits since. A V2 checkpoint reuses its sidecars
(``incremental_v2.py``), a V1 checkpoint the row groups of its files (``incremental_v1.py``). The actions of
those commits are held in memory, so there must not be too many of them.
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
"""The most text of commits whose actions are held in memory for an incremental checkpoint. With more, a
full checkpoint is streamed."""


def has_checkpoint(snapshot: Snapshot) -> bool:
    """Whether the snapshot's own version has a checkpoint that isn't known to be damaged."""
    checkpoint = snapshot.segment.checkpoint
    return checkpoint is not None and checkpoint.version == snapshot.version


def open_base_checkpoint(snapshot: Snapshot) -> CheckpointReader | None:
    """Open the checkpoint that a snapshot starts from; None if there is none."""
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
    """Find the checkpoint from which a new V2 checkpoint can be made; None if all must be written.

    Args:
        snapshot: of the version to checkpoint.
        listing: the newest part of the log, up to its end, if it is known.

    Raises:
        CorruptLogError: the previous checkpoint is damaged.
        ObjectNotFoundError: it is gone.
    """
    base = _find_base(snapshot)
    if base is None:
        return None
    checkpoint, reader = base
    if listing is None:
        listing = list_log(snapshot.storage, start=checkpoint.version)
    # Sidecars are shared only with the newest checkpoint: a cleanup may delete those of older ones
    # concurrently.
    if listing.checkpoints and listing.checkpoints[-1].version > checkpoint.version:
        return None
    return reader if has_all_in_sidecars(reader) else None


def find_classic_base(snapshot: Snapshot) -> Checkpoint | None:
    """Find the checkpoint from which a new one in one file can be made; None if all must be written.

    Args:
        snapshot: of the version to checkpoint.

    Raises:
        CorruptLogError: the previous checkpoint is damaged.
        ObjectNotFoundError: it is gone.
    """
    base = _find_base(snapshot)
    return base[0] if base is not None and has_files_inline(*base) else None


def _find_base(snapshot: Snapshot) -> tuple[Checkpoint, CheckpointReader] | None:
    """Open the previous checkpoint, if the commits since fit into memory."""
    segment, reader = snapshot.segment, open_base_checkpoint(snapshot)
    if segment.checkpoint is None or reader is None or has_checkpoint(snapshot):
        return None
    if sum(file.size for file in segment.plan()) > _COMMITS_BYTES:
        return None
    return segment.checkpoint, reader
