"""The result of a run that drops a feature: how far it has come.

A run does as much as is possible now:

=================  ==============================================================================
status             meaning
=================  ==============================================================================
``planned``        nothing was done, as requested
``needs rewrite``  data files must be rewritten, and no rewriter was given; the feature is turned
                   off, and the next run continues
``waiting``        history must expire; come back at ``ready_at_ms``
``dropped``        the protocol is without the feature, by this run or an earlier one
=================  ==============================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from airflow_delta.engine.maintenance.drop_feature.plan import DropFeaturePlan, Way
from airflow_delta.engine.maintenance.drop_feature.rewrite import Rewrite
from airflow_delta.engine.model.plain import time_or_none
from airflow_delta.engine.model.sizes import size_text
from airflow_delta.engine.model.times import utc_datetime
from airflow_delta.engine.snapshot.timestamps import utc_text

__all__ = ["DropFeatureResult", "Status"]

Status = Literal["planned", "needs rewrite", "waiting", "dropped"]
"""How far a run has come; see the module."""


@dataclass(frozen=True, slots=True)
class DropFeatureResult:
    """The result of a run that drops a feature, or prepares that.

    Attributes:
        table: the table's location.
        feature: the feature's name.
        way: how it is dropped, or was by an earlier run; see `plan`.
        status: how far it has come.
        version: the version that dropped the feature; else the newest one after this run.
        plan: what is left to do; if all was done, the plan of the last step. None if an earlier run has
            dropped the feature.
        num_commits: how many commits this run has made, without those of a rewriter.
        first_version: the version of its first commit, or the one after which a rewriter began to commit
            plus one; None if nothing was committed.
        last_version: the version of its last commit, or the newest after a rewriter; None if nothing was
            committed.
    """

    table: str
    feature: str
    way: Way
    status: Status
    version: int
    plan: DropFeaturePlan | None
    num_commits: int = 0
    first_version: int | None = None
    last_version: int | None = None

    @property
    def rewrite(self) -> Rewrite | None:
        """The data files that must be rewritten before the next run; None if none must."""
        return None if self.plan is None or self.status == "dropped" else self.plan.rewrite

    @property
    def ready_at(self) -> datetime | None:
        """The time of the next run, in UTC; see `ready_at_ms`."""
        return utc_datetime(self.ready_at_ms)

    @property
    def ready_at_ms(self) -> int | None:
        """The time of the next run, in epoch ms; None if there is nothing to wait for, or if unknown."""
        return None if self.plan is None or self.status == "dropped" else self.plan.ready_at_ms

    @property
    def reason(self) -> str:
        """The progress, and what to do next, as a sentence."""
        match self.status:
            case "planned":
                return f"{self.feature} would be dropped {_WAYS[self.way]}"
            case "needs rewrite":
                assert self.rewrite is not None
                return (
                    f"{self.rewrite.num_files:,} data files of {size_text(self.rewrite.size_in_bytes)} "
                    f"need {self.feature}; have Spark rewrite them, and run the operation again"
                )
            case "waiting":
                return _explain_waiting(self)
            case "dropped":
                return f"version {self.version} has dropped {self.feature}"

    def to_dict(self) -> dict[str, Any]:
        """The report, as plain JSON values.

        Returns:
            ``version`` (the one that dropped it, else the newest one), ``feature``, ``way`` (``at once``,
            ``hidden`` or ``truncated``), ``status`` (``planned``, ``needs rewrite``, ``waiting`` or
            ``dropped``) with the ``reason``, ``steps`` that are left, ``ready_at`` (ISO-8601, when to come
            back to truncate the history; None if unknown), ``files_to_rewrite`` and ``bytes_to_rewrite``,
            ``cleanup`` (of history that is truncated now: ``files``, ``bytes`` and the ``earliest_version``
            that can be read then; else None), ``num_commits`` that were made, and the ``first_version`` and
            ``last_version`` that were committed, also by a rewriter (None for none).
        """
        steps = () if self.plan is None or self.status == "dropped" else self.plan.steps
        rewrite = self.rewrite
        return {
            "version": self.version,
            "feature": self.feature,
            "way": self.way,
            "status": self.status,
            "reason": self.reason,
            "steps": list(steps),
            "ready_at": time_or_none(self.ready_at_ms),
            "files_to_rewrite": 0 if rewrite is None else rewrite.num_files,
            "bytes_to_rewrite": 0 if rewrite is None else rewrite.size_in_bytes,
            "cleanup": None if self.plan is None else self.plan.cleanup_summary,
            "num_commits": self.num_commits,
            "first_version": self.first_version,
            "last_version": self.last_version,
        }


_WAYS: Mapping[Way, str] = {
    "at once": "at once",
    "hidden": "behind protected checkpoints",
    "truncated": "once the history with it has expired",
}


def _explain_waiting(result: DropFeatureResult) -> str:
    assert result.plan is not None
    assert result.plan.truncation is not None
    truncation = result.plan.truncation
    ready = truncation.ready_at_ms
    when = "later" if ready is None else f"at {utc_text(ready)} or later"
    # If it is known when to come back, the reason why nothing can be cleaned up yet doesn't matter.
    why = truncation.cleanup.reason if truncation.cleanup and ready is None else None
    return (
        f"the history up to version {truncation.last_use} needs {result.feature}, and must expire first; "
        f"come back {when}" + (f" ({why})" if why else "")
    )
