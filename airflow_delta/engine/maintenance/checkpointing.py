"""Write a checkpoint of a version: as a plan, then in fact.

PROTOCOL.md, "Checkpoints" and "Last Checkpoint File"; checkpoint-protection.md, rule b: creating a
checkpoint is a write, so every writer feature of the protocol *at that version* must be known.

The checkpoint is streamed to a file that nobody sees until it is complete and its counts agree with
the snapshot; the hint is written after it. A crash in between leaves a table that is as readable as
before. A complete checkpoint of the version that is there already makes the operation a no-op.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from airflow_delta.engine.checkpoint.write import (
    CheckpointContent,
    CheckpointWritten,
    write_classic_checkpoint,
)
from airflow_delta.engine.errors import CorruptLogError, ObjectNotFoundError
from airflow_delta.engine.features.protocol import Operation, check_writable
from airflow_delta.engine.log.files import checkpoint_path
from airflow_delta.engine.log.last_checkpoint import LastCheckpointHint, write_last_checkpoint
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
        needed: whether there is anything to do; False where the version has a complete checkpoint.
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
    """Plan a checkpoint of a snapshot.

    Raises:
        UnsupportedFeatureError: writing one needs a feature that the engine lacks.
    """
    check_writable(
        snapshot.protocol,
        snapshot.metadata,
        table=snapshot.table,
        operation=Operation.CHECKPOINT,
    )
    segment = snapshot.segment
    there = segment.checkpoint is not None and segment.checkpoint.version == segment.version
    return CheckpointPlan(
        table=snapshot.table,
        version=snapshot.version,
        path=checkpoint_path(snapshot.version),
        needed=not there,
        commits_since=len(segment.commits),
    )


def execute_checkpoint(
    storage: Storage, snapshot: Snapshot, plan: CheckpointPlan, *, log_end: int
) -> CheckpointResult:
    """Do what a plan says.

    Args:
        storage: where the table is.
        snapshot: of the version in the plan.
        plan: made by `plan_checkpoint` from this snapshot.
        log_end: the newest version of the table: a hint beyond it is repaired.

    Raises:
        CorruptLogError: an action lacks what the protocol requires of it; nothing was published.
        InvalidTableError: the counts of what was written differ from the snapshot's; nothing was
            published.
        UnsupportedFeatureError: the table asks for a form of checkpoint that the engine can't write.
        StorageError: the store failed; nothing was published.
    """
    if not plan.needed:
        return CheckpointResult(plan, written=False)
    try:
        written = _write(storage, snapshot)
    except (CorruptLogError, ObjectNotFoundError) as error:
        # The checkpoint that this one was to start from is damaged: start from an older one.
        snapshot.state.retreat(error)
        written = _write(storage, snapshot)
    hint = LastCheckpointHint(
        version=plan.version,
        size=written.num_actions,
        size_in_bytes=written.size_in_bytes,
        num_of_add_files=written.num_adds,
    )
    write_last_checkpoint(storage, hint, log_end=log_end)
    return CheckpointResult(
        plan,
        written=True,
        size_in_bytes=written.size_in_bytes,
        num_actions=written.num_actions,
        num_files=written.num_adds,
    )


def _write(storage: Storage, snapshot: Snapshot) -> CheckpointWritten:
    # Counted first: that also finds out a damaged checkpoint before the new one is begun.
    num_files, size_in_bytes = snapshot.num_files, snapshot.size_in_bytes
    content = CheckpointContent(
        protocol=snapshot.protocol,
        metadata=snapshot.metadata,
        transactions=tuple(snapshot.transactions.values()),
        domains=tuple(snapshot.domains.values()),
        adds=snapshot.state.stream(adds=True),
        removes=_unexpired(snapshot),
        num_adds=num_files,
        adds_size=size_in_bytes,
    )
    return write_classic_checkpoint(
        storage, content, version=snapshot.version, table=snapshot.table
    )


def _unexpired(snapshot: Snapshot) -> Iterator[pa.Table]:
    for removes in snapshot.state.stream(adds=False):
        yield snapshot.unexpired(removes)
