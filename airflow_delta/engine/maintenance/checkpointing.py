"""Write a checkpoint of a version: as a plan, then in fact.

PROTOCOL.md, "Checkpoints" and "Last Checkpoint File"; checkpoint-protection.md, rule b: creating a
checkpoint is a write, so every writer feature of the protocol *at that version* must be known.

The checkpoint is streamed to a file that nobody sees until it is complete and its counts agree with
the snapshot; the hint is written after it. A crash in between leaves a table that is as readable as
before, and a hint that can't be written is no more than a `DeltaWarning`: readers then list the log.

A checkpoint of the version that is there already is kept, if it can be read to its end; planning
reads it to find out. The hint to it may still be missing: it is made up for.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow.compute as pc

from airflow_delta.engine.checkpoint.action_rows import FileActionTable
from airflow_delta.engine.checkpoint.write import (
    CheckpointContent,
    CheckpointWritten,
    write_classic_checkpoint,
)
from airflow_delta.engine.errors import (
    CorruptLogError,
    DeltaWarning,
    ObjectNotFoundError,
    StorageError,
    TableStateError,
)
from airflow_delta.engine.features.protocol import Operation, check_writable
from airflow_delta.engine.log.files import MultipartCheckpoint, checkpoint_path
from airflow_delta.engine.log.last_checkpoint import (
    LastCheckpointHint,
    read_last_checkpoint,
    write_last_checkpoint,
)
from airflow_delta.engine.log.newest import find_latest_version
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.storage.base import Storage

__all__ = ["CheckpointPlan", "CheckpointResult", "execute_checkpoint", "plan_checkpoint"]


@dataclass(frozen=True, slots=True)
class CheckpointPlan:
    """What writing a checkpoint of a version will do.

    Attributes:
        table: the table's location.
        version: the version to checkpoint.
        path: the file to write, below the table's root.
        needed: whether a checkpoint is to be written; False where the version has a whole one.
        commits_since: commits that readers have to read after the checkpoint they use now.
    """

    table: str
    version: int
    path: str
    needed: bool
    commits_since: int


@dataclass(frozen=True, slots=True)
class CheckpointResult:
    """What was done.

    Attributes:
        plan: what was planned.
        written: whether a checkpoint was written now; False for a dry run and where none was needed.
        size_in_bytes: of the new checkpoint.
        num_actions: actions in it.
        num_files: live files in it.
    """

    plan: CheckpointPlan
    written: bool
    size_in_bytes: int | None = None
    num_actions: int | None = None
    num_files: int | None = None

    @property
    def version(self) -> int:
        """The version that has a checkpoint now, or would have after the dry run."""
        return self.plan.version


def plan_checkpoint(snapshot: Snapshot) -> CheckpointPlan:
    """Plan a checkpoint of a snapshot. A checkpoint of its version is read to its end.

    Raises:
        UnsupportedFeatureError: writing one needs a feature that the engine lacks.
        CorruptLogError: the log can't be read by any of its checkpoints.
    """
    check_writable(
        snapshot.protocol,
        snapshot.metadata,
        table=snapshot.table,
        operation=Operation.CHECKPOINT,
    )
    if _has_checkpoint(snapshot):
        # Opening it read the smallest part. If it's damaged elsewhere, the state starts from an
        # older one after this.
        snapshot.state.read_through()
    return CheckpointPlan(
        table=snapshot.table,
        version=snapshot.version,
        path=checkpoint_path(snapshot.version),
        needed=not _has_checkpoint(snapshot),
        commits_since=len(snapshot.segment.commits),
    )


def execute_checkpoint(
    storage: Storage, snapshot: Snapshot, plan: CheckpointPlan
) -> CheckpointResult:
    """Do what a plan says.

    Args:
        storage: where the table is.
        snapshot: of the version in the plan.
        plan: made by `plan_checkpoint` from this snapshot.

    Raises:
        CorruptLogError: an action lacks what the protocol requires of it, or the log can't be read
            by any of its checkpoints; nothing was published.
        InvalidTableError: the counts of what was written differ from the snapshot's; nothing was
            published.
        StorageError: the store failed; nothing was published.
    """
    if not plan.needed:
        _point_to_present(storage, snapshot)
        return CheckpointResult(plan, written=False)
    written = _written(storage, snapshot)
    _point_to(
        storage,
        LastCheckpointHint(
            version=plan.version,
            size=written.num_actions,
            size_in_bytes=written.size_in_bytes,
            num_of_add_files=written.num_adds,
        ),
    )
    return CheckpointResult(
        plan,
        written=True,
        size_in_bytes=written.size_in_bytes,
        num_actions=written.num_actions,
        num_files=written.num_adds,
    )


def _has_checkpoint(snapshot: Snapshot) -> bool:
    checkpoint = snapshot.segment.checkpoint
    return checkpoint is not None and checkpoint.version == snapshot.version


def _written(storage: Storage, snapshot: Snapshot) -> CheckpointWritten:
    while True:
        try:
            return _write(storage, snapshot)
        except (CorruptLogError, ObjectNotFoundError) as error:
            # What this checkpoint was to be made from is damaged: make it from something older.
            snapshot.state.recover(error)


def _write(storage: Storage, snapshot: Snapshot) -> CheckpointWritten:
    # Counted first: that also finds out a damaged checkpoint before the new one is begun. And counted
    # anew each time, because what was left out since the last time may have counted too.
    sizes = snapshot.state.live_adds(("size",))["size"]
    content = CheckpointContent(
        protocol=snapshot.protocol,
        metadata=snapshot.metadata,
        transactions=tuple(snapshot.transactions.values()),
        domains=tuple(snapshot.domains.values()),
        files=_files(snapshot),
        num_adds=len(sizes),
        adds_size=pc.sum(sizes, min_count=0).as_py(),
    )
    return write_classic_checkpoint(
        storage, content, version=snapshot.version, table=snapshot.table
    )


def _files(snapshot: Snapshot) -> Iterator[FileActionTable]:
    for adds in snapshot.state.stream(adds=True):
        yield "add", adds
    for removes in snapshot.state.stream(adds=False):
        yield "remove", snapshot.unexpired(removes)


def _point_to_present(storage: Storage, snapshot: Snapshot) -> None:
    """Make up for a hint that whoever wrote the checkpoint didn't come to write."""
    checkpoint = snapshot.segment.checkpoint
    if checkpoint is None:
        return
    with _best_effort(storage, checkpoint.version):
        hint = read_last_checkpoint(storage)
        if hint is not None and hint.version >= checkpoint.version:
            return
        small = snapshot.state.small
        num_small = 2 + len(small.transactions) + len(small.domains)  # protocol and metadata too
        num_removes = sum(removes.num_rows for removes in snapshot.state.stream(adds=False))
        parts = len(checkpoint.parts) if isinstance(checkpoint, MultipartCheckpoint) else None
        present = LastCheckpointHint(
            version=checkpoint.version,
            size=num_small + snapshot.num_files + num_removes,
            parts=parts,
            num_of_add_files=snapshot.num_files,
        )
        _point_to(storage, present)


def _point_to(storage: Storage, hint: LastCheckpointHint) -> None:
    with _best_effort(storage, hint.version):
        write_last_checkpoint(storage, hint, log_end=lambda: find_latest_version(storage))


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
