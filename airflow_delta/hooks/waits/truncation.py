"""Drop a table feature, and wait until the history may be truncated, for tasks."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_delta.engine import DeltaTable
    from airflow_delta.hooks.delta import DeltaHook

__all__ = [
    "TruncationLook",
    "TruncationWatch",
    "drop_feature",
    "look_at_truncation",
    "wanted_truncation",
]

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

    def look(self, table: DeltaTable) -> TruncationLook | None:
        """Check the table; return None if it is too early for that.

        :param table: the table; it may be a new object for the same table.
        :raises DeltaError: see `look_at_truncation`. A failed check is repeated.
        """
        now_ms = time.time_ns() // 1_000_000
        if self.not_before_ms is not None and now_ms < self.not_before_ms:
            return None
        found = look_at_truncation(table, self.feature)
        self.not_before_ms = None
        if found.ready_at_ms is not None and now_ms < found.ready_at_ms:
            self.not_before_ms = min(found.ready_at_ms, now_ms + _PAUSE_MS)
        return found


def wanted_truncation(feature: str) -> str:
    """The state that is waited for, in words."""
    return f"the history with the feature {feature} to expire"


def drop_feature(
    hook: DeltaHook,
    table_uri: str,
    feature: str,
    *,
    truncate_history: bool = False,
    rewrite: Callable[[str], object] | None = None,
    dry_run: bool = False,
) -> dict[str, Any]:
    """Drop a feature, as far as that can be done now.

    :param hook: gives access to the table and its commit owner.
    :param feature: the feature's name, in any case.
    :param truncate_history: let the versions with the feature expire, instead of protecting them with
        checkpoints.
    :param rewrite: rewrites the data files that use the feature whose name it gets; None: nothing does.
    :param dry_run: only report what would be done.
    :returns: ``table_uri``, the entries of `DropFeatureResult.to_dict`, ``dry_run`` and ``duration_ms``.
    :raises DeltaError: the feature can't be dropped.
    """
    began = time.monotonic()
    result = hook.table(table_uri).drop_feature(
        feature,
        truncate_history=truncate_history,
        rewriter=None if rewrite is None else lambda _, files: rewrite(files.feature),
        dry_run=dry_run,
    )
    duration = round((time.monotonic() - began) * 1000)
    report = result.to_dict()
    return {"table_uri": table_uri, **report, "dry_run": dry_run, "duration_ms": duration}


def look_at_truncation(table: DeltaTable, feature: str) -> TruncationLook:
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
