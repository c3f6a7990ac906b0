"""Plan a checkpoint: whether one is written, of which kind, under which name, and from which base.

PROTOCOL.md, "Checkpoints"; RFC checkpoint-protection, rule b. `plan_checkpoint` decides

* the kind: ``delta.checkpointPolicy``, or the caller's choice. V2 needs the feature ``v2Checkpoint``.
  Multi-part checkpoints are never written;
* whether one is due (`_plan_none`), and whether the version has one already, which is read to its end;
* the name and format (`needs_classic_name`, `_make_v2_path`);
* whether it is made from the previous one (``base.py``);
* which damaged checkpoints of the version it replaces (`_choose_replaced`).

``docs/explanation/checkpoints-in-proportion-to-the-change.md`` has the reasons.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from airflow_delta.engine import clock
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
"""The spec that a checkpoint follows: V1, which is written as one file with the classic name, or V2."""

_FEATURE = "v2Checkpoint"
_CLASSIC_EVERY = 10


@dataclass(frozen=True, slots=True)
class CheckpointPlan:
    """The plan of a checkpoint of a version.

    Attributes:
        table: the table's location.
        version: the version to checkpoint.
        path: the file to write, below the table's root; if none is to be written because there is one, the
            existing one.
        needed: whether a checkpoint is to be written.
        commits_since: commits that readers read after the checkpoint that they use now.
        kind: the spec that the checkpoint follows, the new or the existing one.
        reason: why it is written, or why not, as a sentence.
        incremental: whether it is made from the previous checkpoint, and reuses its sidecars or row groups.
        deletes: the files of damaged checkpoints of the version, which are deleted once the new one is
            published.
        replaces: whether ``path`` is that of a damaged checkpoint, which is replaced.
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
        """The location to write it to, for the writers of V2 checkpoints."""
        return CheckpointTarget(self.path, self.version, self.table, self.replaces)

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain JSON values.

        Returns:
            ``version``, ``kind`` and ``path`` of the checkpoint; ``needed``, with the ``reason`` why or why
            not; ``commits_since``, ``incremental``, ``replaces``, and ``deletes`` (how many damaged files).
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
    """Plan a checkpoint of a snapshot. If the version has one already, it is read to its end.

    Args:
        snapshot: of the version; for managed tables, opened by `open_backfilled`.
        policy: the spec to follow, instead of ``delta.checkpointPolicy``.
        if_needed: plan none if fewer than ``delta.checkpointInterval`` commits have come since the last one
            and that can be opened. Then nothing is read to its end.
        read_through: reads the log of the snapshot to its end, and lets its state recover from damage,
            instead of this process.

    Raises:
        UnsupportedFeatureError: the engine lacks a feature that writing one needs; or V2 is requested, and
            the protocol lacks ``v2Checkpoint``.
        NotBackfilledError: the snapshot has commits that aren't backfilled.
        InvalidArgumentError: there is no such policy.
        CorruptLogError: none of the log's checkpoints can be read.
    """
    check_writable(
        snapshot.protocol,
        snapshot.metadata,
        table=snapshot.table,
        operation=Operation.CHECKPOINT,
    )
    check_backfilled(snapshot)
    kind = _choose_kind(snapshot, policy)
    while True:
        try:
            return _plan_none(snapshot, kind, policy, if_needed, read_through) or _plan(
                snapshot, kind, _list_damaged(snapshot)
            )
        except ObjectNotFoundError as error:
            # A cleanup has deleted the checkpoint that the snapshot starts from.
            snapshot.state.recover(error)


def _plan_none(
    snapshot: Snapshot,
    kind: Kind,
    policy: Kind | None,
    if_needed: bool,
    read_through: Callable[[], None] | None,
) -> CheckpointPlan | None:
    """Plan to write none, if none is due or there is one already."""
    commits, interval = len(snapshot.segment.commits), snapshot.properties.checkpoint_interval
    # Only damage that opening the snapshot has found counts here. Looking for more would mean reading the
    # whole checkpoint at each call; readers that meet the damage use an older one.
    if if_needed and commits < interval and not _list_unreadable(snapshot):
        reason = (
            f"{commits} commits have been made since the last checkpoint, and one is due after {interval} "
            "(delta.checkpointInterval)"
        )
        return _without(snapshot, kind, reason)
    if has_checkpoint(snapshot):
        # Opening has read only its smallest part. If another part is damaged, the state recovers here and
        # starts from another checkpoint.
        (read_through or snapshot.state.read_through)()
    if not has_checkpoint(snapshot) or _list_damaged(snapshot):
        return None
    plan = _without(snapshot, kind, f"version {snapshot.version} already has a complete checkpoint")
    return plan if policy in (None, plan.kind) else replace(plan, reason=_explain_kind(plan))


def needs_classic_name(
    listing: Listing, *, version: int, interval: int, retention_ms: int, now_ms: int
) -> bool:
    """Whether a V2 checkpoint gets the classic name.

    Readers without the feature ignore names with UUIDs: to them a log whose older commits were cleaned up
    looks truncated. So "writers should create classic checkpoints often enough to allow older clients to
    discover them and fail gracefully" (PROTOCOL.md, "Handling Backward compatibility while moving to
    UUID-named v2 Checkpoints"). The classic name is used unless another checkpoint has it

    * among the last ten checkpoints' worth of versions (ten times ``delta.checkpointInterval``), so that an
      old reader never has to look far, and
    * not older than half of ``delta.logRetentionDuration``, so that a cleanup that deletes it finds a
      younger one, as long as checkpoints are made that often.

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


def _choose_kind(snapshot: Snapshot, policy: Kind | None) -> Kind:
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


def _list_unreadable(snapshot: Snapshot) -> list[str]:
    """List the checkpoints, of any version, that the state has found damaged."""
    return sorted(path for path in snapshot.state.excluded if ".checkpoint." in path)


def _list_damaged(snapshot: Snapshot) -> tuple[Checkpoint, ...]:
    """List the checkpoints of the snapshot's version that the state couldn't read and that still exist."""
    excluded, version = snapshot.state.excluded, snapshot.version
    if not excluded:
        return ()
    listing = list_log(snapshot.storage, start=version, end=version)
    return tuple(found for found in listing.checkpoints if found.path in excluded)


def _plan(snapshot: Snapshot, kind: Kind, damaged: tuple[Checkpoint, ...]) -> CheckpointPlan:
    version, commits = snapshot.version, len(snapshot.segment.commits)
    replaced = _choose_replaced(snapshot, damaged)
    if isinstance(replaced, V2Checkpoint):
        kind = "v2"
    listing = _list_recent_log(snapshot) if kind == "v2" else None
    if replaced is not None:
        path = replaced.path
    else:
        path = checkpoint_path(version) if listing is None else _make_v2_path(snapshot, listing)
    deletes = tuple(
        file.path for checkpoint in damaged if checkpoint != replaced for file in checkpoint.files
    )
    reason = f"{commits} commits have been made since the last checkpoint"
    unreadable = [checkpoint.path for checkpoint in damaged] or _list_unreadable(snapshot)
    if unreadable:
        reason = f"the checkpoint {unreadable[-1]} is damaged"
    if deletes:
        reason += f"; once a new one is written, {', '.join(deletes)} will be deleted as damaged"
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
        replaces=replaced is not None,
    )


def _choose_replaced(snapshot: Snapshot, damaged: tuple[Checkpoint, ...]) -> Checkpoint | None:
    """Choose the damaged checkpoint of the version that is replaced; the others are deleted afterwards.

    Some readers prefer a damaged checkpoint to a new one of the same version: names with UUIDs to all
    others, several parts to one file. So the most preferred one, if this engine writes that kind of name,
    is written again under its name. The files of the others are deleted once the new one is published: they
    hold nothing more, and readers that choose them fail. A reader about to open them sees them vanish as in
    a cleanup, and lists the log again. This isn't a cleanup in the sense of ``checkpointProtection``: the
    version gets a readable checkpoint, which it lacked before.
    """
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


def _list_recent_log(snapshot: Snapshot) -> Listing:
    """List the part of the log that must have a checkpoint with the classic name."""
    reach = _CLASSIC_EVERY * snapshot.properties.checkpoint_interval
    return list_log(snapshot.storage, start=max(0, snapshot.version - reach))


def _make_v2_path(snapshot: Snapshot, listing: Listing) -> str:
    version, properties = snapshot.version, snapshot.properties
    classic = needs_classic_name(
        listing,
        version=version,
        interval=properties.checkpoint_interval,
        retention_ms=properties.log_retention_ms,
        now_ms=clock.now_ms(),
    )
    if classic:
        return checkpoint_path(version)
    # Lines of JSON are faster to read if there are few. But if another writer has used Parquet for its last
    # one, it may have had a reason, so the new one is Parquet too. No table property decides this.
    before = [
        checkpoint.format
        for checkpoint in listing.checkpoints
        if isinstance(checkpoint, V2Checkpoint) and checkpoint.version < version
    ]
    return v2_checkpoint_path(version, str(uuid.uuid4()), before[-1] if before else "json")


def _explain_kind(plan: CheckpointPlan) -> str:
    """Explain why there won't be a second checkpoint, of the requested kind."""
    requested = "v2" if plan.kind == "classic" else "classic"
    return (
        f"{plan.reason}, of kind {plan.kind} instead of {requested}: both have the same content, and one "
        f"is enough for all readers that can read the table; choose a later version for {requested}"
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
