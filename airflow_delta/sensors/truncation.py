"""Wait until the history of a Delta table may be truncated, so that a feature can be dropped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_delta.hooks.drop_feature import TruncationLook, TruncationWatch, wanted_truncation
from airflow_delta.operators.table_task import with_readers
from airflow_delta.operators.template_values import as_required_text
from airflow_delta.sensors.table_wait import TableWait
from airflow_delta.triggers.truncation import TruncationTrigger
from airflow_delta.version_compat import Context, task_state

__all__ = ["TruncationSensor"]

_STATE_KEY = "not_before"


class TruncationSensor(TableWait):
    """Wait until a feature can be dropped together with the history that needs it.

    It stands between two tasks of `DropFeatureOperator` with ``truncate_history``: the first one prepares
    the table, and the second one truncates the history, a day later unless
    ``delta.dropFeatureTruncateHistory.retentionDuration`` says otherwise. The wait ends at once where the
    feature is gone already. Where the table isn't prepared, or somebody uses the feature again, no waiting
    helps, and the task fails.

    Before its time the table is looked at once an hour, and the clock at each poke. Returns a dictionary
    with ``table_uri``, ``version``, ``feature``, ``dropped`` (whether it is gone already), ``ready_at``
    and ``reason``. `airflow_delta.sensors.table_wait` tells what becomes of a wait that fails.

    :param table_uri: the table's path or URI. (templated)
    :param feature: the feature that is being dropped, in any case. (templated)
    :param delta_conn_id: the connection with the credentials of the table's store; None: the
        default connection of the URI's scheme. (templated)
    :param commit_owner_conn_id: the connection of the SQL commit owner, for managed tables; None:
        ``delta_commit_owner_default`` where that exists, else what the environment says. (templated)
    :param deferrable: wait in the triggerer and not in a worker slot.
    """

    template_fields: Sequence[str] = (*TableWait.template_fields, "feature")
    arguments = with_readers(TableWait, feature=as_required_text)

    def __init__(self, *, feature: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.feature = feature
        self._watch: TruncationWatch | None = None
        self.check_arguments()

    def begin(self) -> None:
        """Look at the table as for the first time."""
        self._watch = None

    @property
    def wanted(self) -> str:
        """What is waited for, in words."""
        return wanted_truncation(self.feature)

    def look(self, context: Context) -> TruncationLook | None:
        """Look at the table once, unless it is too early for that.

        :raises InvalidArgumentError: the table isn't prepared for the drop.
        :raises DeltaError: the table can't be read.
        """
        if self._watch is None:
            self._watch = TruncationWatch(self.feature, not_before_ms=self._kept(context))
        # Opened at every look, for credentials that expire during a long wait.
        found = self._watch.look(self.hook().table(self.table_uri))
        if found is not None:
            self._keep(context, self._watch.not_before_ms)
        return found

    def trigger(self, **arguments: Any) -> TruncationTrigger:
        """The trigger that waits for the time."""
        not_before_ms = None if self._watch is None else self._watch.not_before_ms
        return TruncationTrigger(feature=self.feature, not_before_ms=not_before_ms, **arguments)

    def _kept(self, context: Context) -> int | None:
        """Before when not to look: each poke of a rescheduled wait is made by another object."""
        state = task_state(context)
        kept = state.get(_STATE_KEY) if state is not None else None
        if kept and (kept["table_uri"], kept["feature"]) == (self.table_uri, self.feature):
            return int(kept["not_before_ms"])
        return None

    def _keep(self, context: Context, not_before_ms: int | None) -> None:
        state = task_state(context)
        if state is None:
            return
        if not_before_ms is None:
            state.delete(_STATE_KEY)
            return
        facts = {"table_uri": self.table_uri, "feature": self.feature}
        state.set(_STATE_KEY, {**facts, "not_before_ms": not_before_ms})
