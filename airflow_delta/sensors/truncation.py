"""Wait until the history of a Delta table may be truncated, so that a feature can be dropped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_delta.hooks.waits.truncation import TruncationLook, TruncationWatch
from airflow_delta.operators.table_task import with_readers
from airflow_delta.operators.template_values import as_required_text
from airflow_delta.sensors.table_wait import TableWait
from airflow_delta.triggers.truncation import TruncationTrigger
from airflow_delta.version_compat import Context, task_state

__all__ = ["TruncationSensor"]

_STATE_KEY = "not_before"


class TruncationSensor(TableWait):
    """Wait until a feature can be dropped together with the history that needs it.

    Use it between two tasks of `DropFeatureOperator` with ``truncate_history``: the first one
    prepares the table, and the second one truncates the history after
    ``delta.dropFeatureTruncateHistory.retentionDuration``, by default a day. The wait ends at once
    if the feature is already dropped. If the table isn't prepared, or somebody uses the feature
    again, the task fails.

    Before the expected time the table is checked only once an hour. Returns a dictionary with
    ``table_uri``, ``version``, ``feature``, ``dropped`` (whether it is already dropped),
    ``ready_at`` and ``reason``. For failures see `airflow_delta.sensors.table_wait`.

    :param table_uri: the table's path or URI. (templated)
    :param feature: the feature that is being dropped, in any case. (templated)
    :param delta_conn_id: the connection with the credentials of the table's store; None: the
        default connection of the URI's scheme. (templated)
    :param commit_owner_conn_id: the connection of the SQL commit owner, for managed tables; None:
        ``delta_commit_owner_default`` if it exists, else the environment variable
        ``AIRFLOW_DELTA_COMMIT_OWNER_URL``. (templated)
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
        """Forget the state of an earlier wait."""
        self._watch = None

    @property
    def wanted(self) -> str:
        """The state that is waited for, in words."""
        return TruncationWatch(self.feature).wanted

    def look(self, context: Context) -> TruncationLook | None:
        """Check the table once, unless it is too early for that.

        :raises InvalidArgumentError: the table isn't prepared for the drop.
        :raises DeltaError: the table can't be read.
        """
        if self._watch is None:
            self._watch = TruncationWatch(self.feature, not_before_ms=self._kept(context))
        # Opened at every check, because credentials may expire during a long wait.
        found = self._watch.look(self.hook().table(self.table_uri))
        if found is not None:
            self._keep(context, self._watch.not_before_ms)
        return found

    def trigger(self, **arguments: Any) -> TruncationTrigger:
        """The trigger that waits for the time."""
        not_before_ms = None if self._watch is None else self._watch.not_before_ms
        return TruncationTrigger(feature=self.feature, not_before_ms=not_before_ms, **arguments)

    def _kept(self, context: Context) -> int | None:
        """The stored time of the next check: each poke of a rescheduled wait has a new object."""
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
