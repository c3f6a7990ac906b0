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

**Format of the top level.** Under the classic name it is Parquet. Under a name with a UUID it is lines of
JSON, which are the sooner read where there are few; the protocol wants readers to know both, and no table
property chooses. But where the newest such checkpoint of the log is Parquet, the new one is as well:
whoever has written that may have had a reason. So a user has the choice, by the engine that writes the
first one.

**If needed.** Whoever asks for a checkpoint only if one is due gets none before
``delta.checkpointInterval`` commits have come since the last one; unless the last one can't be opened,
which shows before anything is planned. Damage further inside isn't looked for then: that would be to
read all of it, each time that somebody asks. Readers that meet it go by an older one.

**From the previous one.** Where little has come since the previous checkpoint, what didn't change of it is
used again (`checkpoint_base`). Sidecars are shared only with the newest checkpoint of the log: an
older one, and with it its sidecars, may be taken by a cleanup while we write.

**Damaged checkpoints of the very version**, which the state of the version has found out, would be
preferred to a new one by some readers: names with UUIDs to all others, several parts to one file. So

* the one that is preferred to the others is written anew under its name, if that is one that we write;
* the files of the others are deleted when the new checkpoint is there. They hold nothing that it doesn't
  hold, and a reader that chooses them fails, now and ever. To one that is about to read them, they
  vanish as in a cleanup: it has to look at the log again. Of a version that ``checkpointProtection``
  protects it's no cleanup all the same: the version keeps a checkpoint, which it didn't have before, and
  which is written only by who knows its protocol.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from airflow_delta.engine.checkpoint.v2_write import CheckpointTarget
from airflow_delta.engine.errors import (
    CorruptLogError,
    InvalidArgumentError,
    ObjectNotFoundError,
    UnsupportedFeatureError,
)
from airflow_delta.engine.features.protocol import (
    Operation,
    check_writable,
    supported_features,
)
from airflow_delta.engine.log.files import (
    Checkpoint,
    ClassicCheckpoint,
    MultipartCheckpoint,
    V2Checkpoint,
    checkpoint_path,
    v2_checkpoint_path,
)
from airflow_delta.engine.log.listing import Listing, list_log
from airflow_delta.engine.maintenance.backfill.backfilled import check_backfilled
from airflow_delta.engine.maintenance.checkpoint.base import (
    find_classic_base,
    find_incremental_base,
    has_checkpoint,
    open_base_checkpoint,
)
from airflow_delta.engine.snapshot.snapshot import Snapshot

__all__ = [
    "CheckpointPlan",
    "Kind",
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
        incremental: whether it is to be made from the previous checkpoint, of which what didn't change
            is used again: sidecars, or row groups.
        deletes: damaged checkpoints of the version, as the paths of their files, which are to be
            deleted when the new one is there.
        replaces: whether ``path`` is a damaged checkpoint's, which is to be replaced.
    """

    table: str
    version: int
    path: str
    needed: bool
    commits_since: int
    kind: Kind = "classic"
    reason: str = ""
    incremental: bool = False
    deletes: tuple[str, ...] = ()
    replaces: bool = False

    @property
    def target(self) -> CheckpointTarget:
        """Where to write it, for who writes checkpoints of the V2 spec."""
        return CheckpointTarget(self.path, self.version, self.table, self.replaces)

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain JSON values.

        Returns:
            ``version``, ``kind`` and ``path`` of the checkpoint; ``needed``, with the ``reason`` why or
            why not; ``commits_since``, ``incremental``, ``replaces``, and ``deletes``: how many damaged
            files.
        """
        return {
            "version": self.version,
            "kind": self.kind,
            "path": self.path,
            "needed": self.needed,
            "reason": self.reason,
            "commits_since": self.commits_since,
            "incremental": self.incremental,
            "replaces": self.replaces,
            "deletes": len(self.deletes),
        }


def plan_checkpoint(
    snapshot: Snapshot,
    *,
    policy: Kind | None = None,
    if_needed: bool = False,
    read_through: Callable[[], None] | None = None,
) -> CheckpointPlan:
    """Plan a checkpoint of a snapshot. A checkpoint of its version is read to its end.

    Args:
        snapshot: of the version; for managed tables, opened by `open_backfilled`.
        policy: the spec to follow, instead of what ``delta.checkpointPolicy`` says.
        if_needed: plan none where fewer than ``delta.checkpointInterval`` commits have come since the
            last one, if that can be opened. It isn't read to its end then; see the module.
        read_through: reads the log of the snapshot to its end, and lets its state recover from damage,
            where that isn't to be done in this process.

    Raises:
        UnsupportedFeatureError: writing one needs a feature that the engine lacks, or that the table
            lacks: V2 is asked for, and the protocol has no ``v2Checkpoint``.
        NotBackfilledError: the snapshot has commits that aren't backfilled.
        InvalidArgumentError: there is no such policy.
        CorruptLogError: the log can't be read by any of its checkpoints.
    """
    check_writable(
        snapshot.protocol,
        snapshot.metadata,
        table=snapshot.table,
        operation=Operation.CHECKPOINT,
    )
    check_backfilled(snapshot)
    kind = _kind(snapshot, policy)
    while True:
        try:
            return _present(snapshot, kind, policy, if_needed, read_through) or _planned(
                snapshot, kind, _damaged(snapshot)
            )
        except ObjectNotFoundError as error:
            # A cleanup has taken the checkpoint that the snapshot starts from.
            snapshot.state.recover(error)


def _present(
    snapshot: Snapshot,
    kind: Kind,
    policy: Kind | None,
    if_needed: bool,
    read_through: Callable[[], None] | None,
) -> CheckpointPlan | None:
    """The plan to write none, where one isn't due or is there already."""
    commits, interval = len(snapshot.segment.commits), snapshot.properties.checkpoint_interval
    if if_needed and commits < interval and not _unreadable(snapshot):
        reason = (
            f"{commits} commits have come since the last checkpoint, and one is due after {interval} "
            "(delta.checkpointInterval)"
        )
        return _without(snapshot, kind, reason)
    if has_checkpoint(snapshot):
        # Opening it read the smallest part. If it's damaged elsewhere, the state starts from another
        # one after this.
        (read_through or snapshot.state.read_through)()
    if not has_checkpoint(snapshot) or _damaged(snapshot):
        return None
    plan = _without(snapshot, kind, f"version {snapshot.version} has a whole checkpoint already")
    return plan if policy in (None, plan.kind) else replace(plan, reason=_of_other_kind(plan))


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


def _has_feature(snapshot: Snapshot) -> bool:
    return _FEATURE in supported_features(snapshot.protocol)


def _kind(snapshot: Snapshot, policy: Kind | None) -> Kind:
    supported = _has_feature(snapshot)
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
            f"{snapshot.version} lacks; table.alter.set_properties({{'delta.checkpointPolicy': 'v2'}}) "
            "adds it, or write a classic checkpoint",
            table=snapshot.table,
            features=[_FEATURE],
        )
    return policy


def _unreadable(snapshot: Snapshot) -> list[str]:
    """The checkpoints that opening the snapshot, or more, has found out to be damaged."""
    return sorted(path for path in snapshot.state.excluded if ".checkpoint." in path)


def _damaged(snapshot: Snapshot) -> tuple[Checkpoint, ...]:
    """The checkpoints of the version that the state couldn't read and that are still there."""
    excluded, version = snapshot.state.excluded, snapshot.version
    if not excluded:
        return ()
    listing = list_log(snapshot.storage, start=version, end=version)
    return tuple(found for found in listing.checkpoints if found.path in excluded)


def _planned(snapshot: Snapshot, kind: Kind, damaged: tuple[Checkpoint, ...]) -> CheckpointPlan:
    version, commits = snapshot.version, len(snapshot.segment.commits)
    anew = _written_anew(snapshot, damaged)
    if isinstance(anew, V2Checkpoint):
        kind = "v2"
    listing = _recent_log(snapshot) if kind == "v2" else None
    if anew is not None:
        path = anew.path
    else:
        path = checkpoint_path(version) if listing is None else _v2_path(snapshot, listing)
    deletes = tuple(
        file.path for checkpoint in damaged if checkpoint != anew for file in checkpoint.files
    )
    reason = f"{commits} commits have come since the last checkpoint"
    unreadable = [checkpoint.path for checkpoint in damaged] or _unreadable(snapshot)
    if unreadable:
        reason = f"the checkpoint {unreadable[-1]} is damaged"
    if deletes:
        reason += f"; when there is a new one, {', '.join(deletes)} will be deleted as damaged"
    return CheckpointPlan(
        table=snapshot.table,
        version=version,
        path=path,
        needed=True,
        commits_since=commits,
        kind=kind,
        reason=reason,
        incremental=_is_incremental(snapshot, listing),
        deletes=deletes,
        replaces=anew is not None,
    )


def _written_anew(snapshot: Snapshot, damaged: tuple[Checkpoint, ...]) -> Checkpoint | None:
    """The best of damaged checkpoints whose name is one that we write."""
    not_ours: tuple[type[Checkpoint], ...] = (MultipartCheckpoint,)
    if not _has_feature(snapshot):
        not_ours = (MultipartCheckpoint, V2Checkpoint)
    ours = [checkpoint for checkpoint in damaged if not isinstance(checkpoint, not_ours)]
    return ours[-1] if ours else None


def _is_incremental(snapshot: Snapshot, listing: Listing | None) -> bool:
    while True:
        try:
            if listing is None:
                return find_classic_base(snapshot) is not None
            return find_incremental_base(snapshot, listing) is not None
        except (CorruptLogError, ObjectNotFoundError) as error:
            snapshot.state.recover(error)


def _recent_log(snapshot: Snapshot) -> Listing:
    """The log from where on it must have a checkpoint of the classic name."""
    reach = _CLASSIC_EVERY * snapshot.properties.checkpoint_interval
    return list_log(snapshot.storage, start=max(0, snapshot.version - reach))


def _v2_path(snapshot: Snapshot, listing: Listing) -> str:
    version, properties = snapshot.version, snapshot.properties
    classic = needs_classic_name(
        listing,
        version=version,
        interval=properties.checkpoint_interval,
        retention_ms=properties.log_retention_ms,
        now_ms=time.time_ns() // 1_000_000,
    )
    if classic:
        return checkpoint_path(version)
    before = [
        checkpoint.format
        for checkpoint in listing.checkpoints
        if isinstance(checkpoint, V2Checkpoint) and checkpoint.version < version
    ]
    return v2_checkpoint_path(version, str(uuid.uuid4()), before[-1] if before else "json")


def _of_other_kind(plan: CheckpointPlan) -> str:
    """Why there won't be a second checkpoint, of the kind that was asked for."""
    asked = "v2" if plan.kind == "classic" else "classic"
    return (
        f"{plan.reason}, which is {plan.kind} where {asked} was asked for: they hold the same, and one "
        f"of them serves all readers that can read the table; take a later version for {asked}"
    )


def _without(snapshot: Snapshot, kind: Kind, reason: str) -> CheckpointPlan:
    path = checkpoint_path(snapshot.version)
    present = snapshot.segment.checkpoint
    if present is not None and has_checkpoint(snapshot):
        reader = open_base_checkpoint(snapshot)
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
