"""Decide which checkpoint of a version to write: its kind, its name, and whether from the previous one.

**Kind.** ``delta.checkpointPolicy`` names the spec that checkpoints follow, ``classic`` or ``v2``; V2 needs
the feature ``v2Checkpoint``. A caller may ask for the other one. Multi-part checkpoints are never
written.

**Name.** V2 checkpoints have names with UUIDs, which readers from before the feature overlook: to them a
log whose older commits were cleaned up looks truncated. So "writers should create classic checkpoints
often enough to allow older clients to discover them and fail gracefully" (PROTOCOL.md, "Handling
Backward compatibility while moving to UUID-named v2 Checkpoints"). Our rule: a V2 checkpoint gets the
classic name unless there is another of that name

* among the last ten checkpoints' worth of versions (ten times ``delta.checkpointInterval``), so that an
  old reader never has far to go, and
* not older than half of ``delta.logRetentionDuration``, so that a cleanup that takes it finds a younger
  one, as long as checkpoints come that often.

It is decided from a listing of those versions alone. Files of a classic name hold Parquet of the V2 spec,
with the same content; to readers that know the feature the name makes no difference.

**Incremental.** Where the previous checkpoint keeps its file actions in sidecars, the new one is made from
it (`incremental_v2`), provided that it is the newest checkpoint of the log: an older one, and with it
its sidecars, may be taken by a cleanup while we write.

**A damaged checkpoint of the very version** that has a name with a UUID is written anew under its name,
for readers prefer it to one of the classic name.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from airflow_delta.engine.checkpoint.incremental_v2 import has_all_in_sidecars
from airflow_delta.engine.checkpoint.read import CheckpointReader, open_checkpoint
from airflow_delta.engine.errors import InvalidArgumentError, UnsupportedFeatureError
from airflow_delta.engine.features.protocol import (
    Operation,
    check_writable,
    supported_features,
)
from airflow_delta.engine.log.files import (
    Checkpoint,
    ClassicCheckpoint,
    V2Checkpoint,
    checkpoint_path,
    v2_checkpoint_path,
)
from airflow_delta.engine.log.listing import Listing, list_log
from airflow_delta.engine.snapshot.snapshot import Snapshot

__all__ = [
    "CheckpointPlan",
    "Kind",
    "checkpoint_reader",
    "has_checkpoint",
    "incremental_base",
    "needs_classic_name",
    "plan_checkpoint",
]

Kind = Literal["classic", "v2"]
"""The spec that a checkpoint follows: V1, which is always in one file of the classic name here, or V2."""

_FEATURE = "v2Checkpoint"
_CLASSIC_EVERY = 10


@dataclass(frozen=True, slots=True)
class CheckpointPlan:
    """What writing a checkpoint of a version will do.

    Attributes:
        table: the table's location.
        version: the version to checkpoint.
        path: the file to write, below the table's root; where none is to be written because there is
            one, the one that is there.
        needed: whether a checkpoint is to be written.
        commits_since: commits that readers have to read after the checkpoint they use now.
        kind: the spec that it follows, or that the one that is there does.
        reason: why it is to be written, or why not, as a sentence.
        incremental: whether the sidecars of the previous checkpoint are to be used again.
    """

    table: str
    version: int
    path: str
    needed: bool
    commits_since: int
    kind: Kind = "classic"
    reason: str = ""
    incremental: bool = False


def plan_checkpoint(
    snapshot: Snapshot,
    *,
    policy: Kind | None = None,
    if_needed: bool = False,
    read_through: Callable[[], None] | None = None,
) -> CheckpointPlan:
    """Plan a checkpoint of a snapshot. A checkpoint of its version is read to its end.

    Args:
        snapshot: of the version.
        policy: the spec to follow, instead of what ``delta.checkpointPolicy`` says.
        if_needed: plan none where fewer than ``delta.checkpointInterval`` commits have come since the
            last one.
        read_through: reads the log of the snapshot to its end, and lets its state recover from damage,
            where that isn't to be done in this process.

    Raises:
        UnsupportedFeatureError: writing one needs a feature that the engine lacks, or that the table
            lacks: V2 is asked for, and the protocol has no ``v2Checkpoint``.
        InvalidArgumentError: there is no such policy.
        CorruptLogError: the log can't be read by any of its checkpoints.
    """
    check_writable(
        snapshot.protocol,
        snapshot.metadata,
        table=snapshot.table,
        operation=Operation.CHECKPOINT,
    )
    kind = _kind(snapshot, policy)
    commits, interval = len(snapshot.segment.commits), snapshot.properties.checkpoint_interval
    if if_needed and commits < interval:
        reason = (
            f"{commits} commits have come since the last checkpoint, and one is due after {interval} "
            "(delta.checkpointInterval)"
        )
        return _without(snapshot, kind, reason)
    present = snapshot.segment.checkpoint if has_checkpoint(snapshot) else None
    if present is not None:
        # Opening it read the smallest part. If it's damaged elsewhere, the state starts from an
        # older one after this.
        (read_through or snapshot.state.read_through)()
        if has_checkpoint(snapshot):
            return _without(
                snapshot, kind, f"version {snapshot.version} has a whole checkpoint already"
            )
    return _planned(snapshot, kind, damaged=present)


def has_checkpoint(snapshot: Snapshot) -> bool:
    """Whether there is a checkpoint of the snapshot's very version, as far as is known whole."""
    checkpoint = snapshot.segment.checkpoint
    return checkpoint is not None and checkpoint.version == snapshot.version


def checkpoint_reader(snapshot: Snapshot) -> CheckpointReader | None:
    """A reader of the checkpoint that a snapshot starts from; None where there is none."""
    segment = snapshot.segment
    if segment.checkpoint is None:
        return None
    return open_checkpoint(
        snapshot.state.storage,
        segment.checkpoint,
        table=segment.table,
        actions=segment.checkpoint_actions,
    )


def incremental_base(snapshot: Snapshot, listing: Listing | None = None) -> CheckpointReader | None:
    """The checkpoint that a new V2 checkpoint can be made from; None where all must be written.

    Args:
        snapshot: of the version to checkpoint.
        listing: the newest part of the log, up to its end, where it is known.

    Raises:
        CorruptLogError: the previous checkpoint is damaged.
        ObjectNotFoundError: it is gone.
    """
    checkpoint, reader = snapshot.segment.checkpoint, checkpoint_reader(snapshot)
    if checkpoint is None or reader is None or checkpoint.version >= snapshot.version:
        return None
    storage = snapshot.state.storage
    if listing is None:
        listing = list_log(storage, start=checkpoint.version)
    if listing.checkpoints and listing.checkpoints[-1].version > checkpoint.version:
        return None
    return reader if has_all_in_sidecars(storage, checkpoint, reader) else None


def needs_classic_name(
    listing: Listing, *, version: int, interval: int, retention_ms: int, now_ms: int
) -> bool:
    """Whether a V2 checkpoint gets the classic name. See the module for the rule.

    Args:
        listing: of the log, from ``version - 10 * interval`` on or from earlier.
        version: the version of the checkpoint.
        interval: ``delta.checkpointInterval``.
        retention_ms: ``delta.logRetentionDuration``, in ms.
        now_ms: the time, in epoch ms.
    """
    first = version - _CLASSIC_EVERY * interval
    return not any(
        isinstance(checkpoint, ClassicCheckpoint)
        and first < checkpoint.version <= version
        and checkpoint.modified_ms >= now_ms - retention_ms // 2
        for checkpoint in listing.checkpoints
    )


def _kind(snapshot: Snapshot, policy: Kind | None) -> Kind:
    supported = _FEATURE in supported_features(snapshot.protocol)
    if policy is None:
        return "v2" if supported and snapshot.properties.checkpoint_policy == "v2" else "classic"
    if policy not in ("classic", "v2"):
        raise InvalidArgumentError(
            f"there is no checkpoint policy {policy!r}: expected 'classic' or 'v2'",
            table=snapshot.table,
        )
    if policy == "v2" and not supported:
        raise UnsupportedFeatureError(
            f"a V2 checkpoint needs the table feature {_FEATURE!r}, which the protocol of version "
            f"{snapshot.version} lacks; set delta.checkpointPolicy to 'v2' with an engine that adds the "
            "feature, or write a classic checkpoint",
            table=snapshot.table,
            features=[_FEATURE],
        )
    return policy


def _planned(snapshot: Snapshot, kind: Kind, *, damaged: Checkpoint | None) -> CheckpointPlan:
    version, commits = snapshot.version, len(snapshot.segment.commits)
    path, incremental = checkpoint_path(version), False
    reason = f"{commits} commits have come since the last checkpoint"
    if isinstance(damaged, V2Checkpoint):
        kind, path = "v2", damaged.path
    elif kind == "v2":
        path, incremental = _planned_v2(snapshot)
    if damaged is not None:
        reason = f"the checkpoint {damaged.path} is damaged"
    return CheckpointPlan(
        table=snapshot.table,
        version=version,
        path=path,
        needed=True,
        commits_since=commits,
        kind=kind,
        reason=reason,
        incremental=incremental,
    )


def _planned_v2(snapshot: Snapshot) -> tuple[str, bool]:
    """Where a V2 checkpoint goes, and whether it is made from the previous one."""
    version, properties = snapshot.version, snapshot.properties
    interval = properties.checkpoint_interval
    listing = list_log(snapshot.state.storage, start=max(0, version - _CLASSIC_EVERY * interval))
    classic = needs_classic_name(
        listing,
        version=version,
        interval=interval,
        retention_ms=properties.log_retention_ms,
        now_ms=time.time_ns() // 1_000_000,
    )
    named = checkpoint_path(version) if classic else _uuid_path(version, listing)
    return named, incremental_base(snapshot, listing) is not None


def _uuid_path(version: int, listing: Listing) -> str:
    # One of that version that is there and isn't used has been found damaged.
    for checkpoint in reversed(listing.checkpoints):
        if isinstance(checkpoint, V2Checkpoint) and checkpoint.version == version:
            return checkpoint.path
    return v2_checkpoint_path(version, str(uuid.uuid4()), "json")


def _without(snapshot: Snapshot, kind: Kind, reason: str) -> CheckpointPlan:
    path = checkpoint_path(snapshot.version)
    present = snapshot.segment.checkpoint
    if present is not None and has_checkpoint(snapshot):
        reader = checkpoint_reader(snapshot)
        path = present.path
        kind = "v2" if reader is not None and reader.metadata is not None else "classic"
    return CheckpointPlan(
        table=snapshot.table,
        version=snapshot.version,
        path=path,
        needed=False,
        commits_since=len(snapshot.segment.commits),
        kind=kind,
        reason=reason,
    )
