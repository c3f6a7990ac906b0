"""Plan the steps that drop a feature of a table.

There are three ways:

* ``"at once"``, for features whose former versions do no harm to readers without them: when the newest
  version doesn't use the feature, one commit takes it out of the protocol;
* ``"hidden"``, for the others (`Drop.hides_history`): checkpoints after the last version with
  the feature hide the earlier ones, so readers of later versions never need their commits. The feature
  ``checkpointProtection`` keeps these checkpoints (RFC checkpoint-protection);
* ``"truncated"``, for the same features: versions with the feature must expire and be cleaned up before it
  is dropped, so it takes two runs (`truncation`). This is the only way for
  ``checkpointProtection``.

A plan lists what is left to do from the newest version on. Each step is planned again when its turn comes.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.features.dropping import (
    PROTECTION,
    check_droppable,
    how_to_drop,
    protocol_without,
)
from airflow_delta.engine.features.protocol import supported_features
from airflow_delta.engine.maintenance.drop_feature.barriers import BARRIERS, count_missing_barriers
from airflow_delta.engine.maintenance.drop_feature.preparation import Preparation, plan_preparations
from airflow_delta.engine.maintenance.drop_feature.rewrite import Rewrite
from airflow_delta.engine.maintenance.drop_feature.truncation import Truncation, plan_truncation
from airflow_delta.engine.model.actions import Protocol
from airflow_delta.engine.model.plain import time_or_none
from airflow_delta.engine.model.times import utc_datetime
from airflow_delta.engine.snapshot.snapshot import Snapshot
from airflow_delta.engine.storage.file_access import FileAccess

__all__ = ["DropFeaturePlan", "Way", "choose_way", "plan_drop_feature"]

Way = Literal["at once", "hidden", "truncated"]
"""How a feature is dropped; see the module."""


@dataclass(frozen=True, slots=True)
class DropFeaturePlan:
    """The plan of dropping a feature.

    Attributes:
        table: the table's location.
        feature: the feature's name.
        way: how it is dropped.
        version: the newest version, for which the plan was made.
        preparations: the steps after which the newest version doesn't use it, in order.
        barriers: how many versions with checkpoints are made after that, to hide the others.
        truncation: what happens to the history; None if it isn't truncated.
        protocol: the protocol afterwards.
        dropped: the features that the protocol loses.
    """

    table: str
    feature: str
    way: Way
    version: int
    preparations: tuple[Preparation, ...]
    barriers: int
    truncation: Truncation | None
    protocol: Protocol
    dropped: frozenset[str]

    @property
    def rewrite(self) -> Rewrite | None:
        """The data files that must be rewritten; None if none must."""
        return next((step.rewrite for step in self.preparations if step.rewrite is not None), None)

    @property
    def ready_at(self) -> datetime | None:
        """The time from which history can be truncated, in UTC; see `ready_at_ms`."""
        return utc_datetime(self.ready_at_ms)

    @property
    def ready_at_ms(self) -> int | None:
        """The time from which history can be truncated, in epoch ms.

        None if there is nothing to wait for, or if it isn't known yet, because the newest version still
        uses the feature.
        """
        return None if self.truncation is None else self.truncation.ready_at_ms

    @property
    def steps(self) -> tuple[str, ...]:
        """All steps in order, as sentences without a full stop."""
        steps = [step.description for step in self.preparations]
        if self.barriers:
            steps.append(
                f"make {self.barriers} empty commits, each with a checkpoint, that hide the versions with "
                f"{self.feature}"
            )
        if self.truncation is not None:
            steps += self.truncation.steps
        if all(step.kind != "hand back" for step in self.preparations):
            features = " and ".join(sorted(self.dropped))
            steps.append(f"take {features} out of the protocol")
        if self.way == "hidden":
            steps.append("write the checkpoint of that version, and protect those before it")
        return tuple(steps)

    @property
    def cleanup_summary(self) -> dict[str, Any] | None:
        """The cleanup of history that is due now; None for none.

        It has the keys ``files``, ``bytes`` and ``earliest_version``.
        """
        cleanup = None if self.truncation is None else self.truncation.cleanup
        if cleanup is None:
            return None
        return {
            "files": cleanup.num_files,
            "bytes": cleanup.size_in_bytes,
            "earliest_version": cleanup.earliest_version,
        }

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain JSON values, with the names of `DropFeatureResult.to_dict`."""
        rewrite = self.rewrite
        return {
            "version": self.version,
            "feature": self.feature,
            "way": self.way,
            "steps": list(self.steps),
            "ready_at": time_or_none(self.ready_at_ms),
            "files_to_rewrite": 0 if rewrite is None else rewrite.num_files,
            "bytes_to_rewrite": 0 if rewrite is None else rewrite.size_in_bytes,
            "cleanup": self.cleanup_summary,
        }


def choose_way(feature: str, *, truncate_history: bool, table: str) -> Way:
    """Choose how a feature is dropped.

    Args:
        feature: its name, as in the registry.
        truncate_history: whether history is to be truncated.
        table: the table's location, for messages.

    Raises:
        InvalidArgumentError: the feature can't be dropped, or not that way.
    """
    drop = how_to_drop(feature, table=table)
    if feature == PROTECTION and not truncate_history:
        raise InvalidArgumentError(
            f"the feature {PROTECTION} can only be dropped together with the history that it protects; set "
            "truncate_history=True",
            table=table,
            feature=feature,
        )
    if truncate_history and not (drop.hides_history or feature == PROTECTION):
        raise InvalidArgumentError(
            f"the feature {feature} is dropped at once, and needs no truncation of the history; leave "
            "truncate_history out",
            table=table,
            feature=feature,
        )
    if truncate_history:
        return "truncated"
    return "hidden" if drop.hides_history else "at once"


def plan_drop_feature(
    access: FileAccess,
    base: Snapshot,
    feature: str,
    *,
    way: Way,
    now_ms: int,
    barriers_made: int = 0,
) -> DropFeaturePlan:
    """Plan the steps that drop a feature.

    Args:
        access: opens the table's files.
        base: the newest version, which supports the feature.
        feature: its name, as in the registry.
        way: how it is dropped, by `choose_way`.
        now_ms: the time, in epoch ms.
        barriers_made: how many barriers this run has made since the last version that uses the feature.

    Raises:
        ConstraintViolationError: the table still needs the feature; see `check_droppable`.
        InvalidTableError: the schema or a property can't be read; or columns have names that only column
            mapping allows.
        CorruptLogError: the log is damaged.
        StorageError: the store failed.
    """
    check_droppable(feature, base.protocol, base.metadata, table=base.table)
    storage = access.storage
    steps = tuple(plan_preparations(base, feature, access))
    barriers = 0
    if way == "hidden":
        barriers = BARRIERS if steps else count_missing_barriers(storage, base, made=barriers_made)
    dropped, added, truncation = frozenset({feature}), frozenset[str](), None
    if way == "truncated":
        truncation = plan_truncation(storage, base, feature, prepared=not steps, now_ms=now_ms)
        # Nothing is left for `checkpointProtection` to protect, so drop it too.
        if truncation.unprotects and PROTECTION in supported_features(base.protocol):
            dropped |= {PROTECTION}
    elif way == "hidden":
        added = frozenset({PROTECTION})
    return DropFeaturePlan(
        table=base.table,
        feature=feature,
        way=way,
        version=base.version,
        preparations=steps,
        barriers=barriers,
        truncation=truncation,
        protocol=protocol_without(dropped, base.protocol, added=added),
        dropped=dropped,
    )
