"""What tasks do to get rid of a table feature: drop it, and wait until history may be truncated."""

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
"""A look costs as much as the log is long, and before its time brings little: whoever changes the table's
retention meanwhile is noticed after so long."""


@dataclass(frozen=True, slots=True)
class TruncationLook:
    """What one look at a table, whose history is to be truncated, has found.

    Attributes:
        reached: whether the feature can be dropped now, or has been.
        ready_at_ms: when that may be the case, in epoch ms; None where it isn't known.
        facts: ``table_uri``, ``version`` and ``feature``, whether it is ``dropped`` already, ``ready_at``
            (ISO-8601) and the ``reason``, as JSON values.
    """

    reached: bool
    ready_at_ms: int | None
    facts: dict[str, Any]

    @property
    def seen(self) -> str:
        """What was seen, in words."""
        return str(self.facts["reason"] or "it can be dropped")


class TruncationWatch:
    """The history of one table, looked at again and again, as seldom as makes sense.

    :param feature: the feature that is being dropped.
    :param not_before_ms: don't look before this time, in epoch ms, as an earlier watch has found; None:
        look at once.
    """

    def __init__(self, feature: str, *, not_before_ms: int | None = None) -> None:
        self.feature = feature
        self.not_before_ms = not_before_ms

    def look(self, table: DeltaTable) -> TruncationLook | None:
        """Look at the table, unless it is too early for that: None then.

        :param table: the table; another object for the same one will do.
        :raises DeltaError: see `look_at_truncation`. A look that fails doesn't count.
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
    """What is waited for, in words."""
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

    :param hook: reaches the table and its commit owner.
    :param feature: the feature's name, in any case.
    :param truncate_history: have the versions with the feature expire, instead of hiding them.
    :param rewrite: has the data files written anew in which there are traces of a feature, whose name it is
        given; None: nobody does.
    :param dry_run: only tell what would be done.
    :returns: ``table_uri``, what `DropFeatureResult.to_dict` has, ``dry_run`` and ``duration_ms``.
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
    """Whether the history that needs a feature may be truncated by now.

    That reads the log, and what it keeps of the time with the feature.

    :param table: the table.
    :param feature: the feature that is being dropped.
    :raises InvalidArgumentError: dropping it hasn't begun, or somebody uses it again, so that no waiting
        helps; or it isn't dropped that way.
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
