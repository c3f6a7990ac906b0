"""The trigger of `TruncationSensor`: wait until the history of a Delta table may be truncated."""

from __future__ import annotations

from typing import Any

from airflow_delta.hooks.waits.truncation import TruncationLook, TruncationWatch
from airflow_delta.triggers.table_poll import TablePoll

__all__ = ["TruncationTrigger"]


class TruncationTrigger(TablePoll):
    """Fire once, when the history that needs a feature may be truncated, or the feature is gone.

    The event of success has ``table_uri``, ``version``, ``feature``, ``dropped``, ``ready_at`` and
    ``reason``. See `TablePoll` for the rest.

    :param feature: the feature that is being dropped.
    :param not_before_ms: the time of the first check, in epoch ms; None: at once.
    """

    def __init__(self, *, feature: str, not_before_ms: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.feature = feature
        self.not_before_ms = not_before_ms
        self._watch = TruncationWatch(feature, not_before_ms=not_before_ms)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The class and the arguments from which Airflow creates this trigger again."""
        path, arguments = super().serialize()
        return path, {**arguments, "feature": self.feature, "not_before_ms": self.not_before_ms}

    @property
    def wanted(self) -> str:
        """The state that is waited for, in words."""
        return self._watch.wanted

    def look(self, table: Any) -> TruncationLook | None:
        """Check the table once, unless it is too early for that.

        :raises DeltaError: the table can't be read, or isn't prepared for the drop.
        """
        return self._watch.look(table)
