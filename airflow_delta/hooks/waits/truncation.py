"""Check whether the history of a table may be truncated, for sensors and triggers."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_delta.engine import DeltaTable

__all__ = ["TruncationLook", "TruncationWatch"]

_PAUSE_MS = 60 * 60 * 1000
"""The longest time between two checks. A check reads the whole log, so there are few before the expected
time; they only notice a changed retention of the table."""


@dataclass(frozen=True, slots=True)
class TruncationLook:
    """The result of one check of a table whose history will be truncated.

    Attributes:
        reached: whether the feature can be dropped now, or has been dropped.
        ready_at_ms: when it can be dropped, in epoch ms; None if that isn't known.
        facts: ``table_uri``, ``version`` and ``feature``, whether it is ``dropped`` already, ``ready_at``
            (ISO-8601) and the ``reason``, as JSON values.
    """

    reached: bool
    ready_at_ms: int | None
    facts: dict[str, Any]

    @property
    def seen(self) -> str:
        """The state that was found, in words."""
        return str(self.facts["reason"] or "it can be dropped")


class TruncationWatch:
    """Checks the history of a table repeatedly, but no more often than useful.

    :param feature: the feature that is being dropped.
    :param not_before_ms: the time of the first check, in epoch ms, from an earlier watch; None: at once.
    """

    def __init__(self, feature: str, *, not_before_ms: int | None = None) -> None:
        self.feature = feature
        self.not_before_ms = not_before_ms

    @property
    def wanted(self) -> str:
        """The state that is waited for, in words."""
        return f"the history with the feature {self.feature} to expire"

    def look(self, table: DeltaTable) -> TruncationLook | None:
        """Check the table; return None if it is too early for that.

        :param table: the table; it may be a new object for the same table.
        :raises InvalidArgumentError: waiting doesn't help: the drop hasn't begun, somebody uses the feature
            again, or it isn't dropped in this way.
        :raises DeltaError: the table can't be read. A failed check is repeated.
        """
        now_ms = time.time_ns() // 1_000_000
        if self.not_before_ms is not None and now_ms < self.not_before_ms:
            return None
        found = _look_at_truncation(table, self.feature)
        self.not_before_ms = None
        if found.ready_at_ms is not None and now_ms < found.ready_at_ms:
            self.not_before_ms = min(found.ready_at_ms, now_ms + _PAUSE_MS)
        return found


def _look_at_truncation(table: DeltaTable, feature: str) -> TruncationLook:
    """Check whether the history that needs a feature may be truncated now.

    This reads the log, including the retained history with the feature.

    :param table: the table.
    :param feature: the feature that is being dropped.
    :raises InvalidArgumentError: waiting doesn't help: the drop hasn't begun, somebody uses the feature
        again, or it isn't dropped in this way.
    :raises DeltaError: the table can't be read.
    """
    from airflow_delta.engine.errors import InvalidArgumentError

    result = table.drop_feature(feature, truncate_history=True, dry_run=True)
    plan = result.plan
    truncation = None if plan is None else plan.truncation
    if plan is not None and (
        plan.preparations or truncation is None or truncation.needs_checkpoint
    ):
        raise InvalidArgumentError(
            f"there is nothing to wait for, because version {plan.version} isn't prepared for the drop of "
            f"{plan.feature}: {'; '.join(plan.steps)}. Run DropFeatureOperator with truncate_history",
            table=table.uri,
            feature=plan.feature,
        )
    report = result.to_dict()
    names = ("version", "feature", "ready_at", "reason")
    facts = {"table_uri": table.uri, "dropped": result.status == "dropped"}
    return TruncationLook(
        truncation is None or not truncation.waits,
        result.ready_at_ms,
        {**facts, **{name: report[name] for name in names}},
    )
