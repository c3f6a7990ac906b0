"""Wait until a managed Delta table is backfilled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_delta.hooks.waits.backfill import BackfillLook, BackfillWatch
from airflow_delta.operators.table_task import with_readers
from airflow_delta.operators.template_values import TRIGGERING_EVENT, as_pinned_version, switch
from airflow_delta.operators.triggering_event import requested_version
from airflow_delta.sensors.table_wait import TableWait
from airflow_delta.triggers.backfill import BackfillTrigger
from airflow_delta.version_compat import Context, task_state

__all__ = ["BackfillSensor"]

_STATE_KEY = "backfill_target"


class BackfillSensor(TableWait):
    """Wait until a version of a managed table is backfilled, so that its commit is in ``_delta_log``.

    Without a version it waits for the newest version that was ratified when the wait started. The
    first successful check decides on it, for all checks of a rescheduled or deferred wait and for
    retries; it is forgotten when the wait has succeeded.

    Returns a dictionary with ``table_uri``, ``version`` (the wanted one), ``ratified_version`` and
    ``backfilled_version`` (the newest of each at the end of the wait) and ``lag`` (the number of
    versions between them). For failures see `airflow_delta.sensors.table_wait`; a commit owner that
    can't be reached is one.

    All versions of a table that isn't managed count as backfilled.

    :param table_uri: the table's path or URI. (templated)
    :param version: the version to wait for, which may not be committed yet; None: the newest that is
        ratified when the wait starts; ``triggering_event``: that of the asset event that has started the
        DAG run, or the same as None if none has. (templated)
    :param trigger_backfill: have the commit owner backfill missing versions at each check. Otherwise it
        does this by the table's policy.
    :param delta_conn_id: the connection with the credentials of the table's store; None: the
        default connection of the URI's scheme. (templated)
    :param commit_owner_conn_id: the connection of the SQL commit owner; None:
        ``delta_commit_owner_default`` if it exists, else the environment variable
        ``AIRFLOW_DELTA_COMMIT_OWNER_URL``. (templated)
    :param deferrable: wait in the triggerer and not in a worker slot.
    """

    template_fields: Sequence[str] = (*TableWait.template_fields, "version")
    arguments = with_readers(
        TableWait, version=as_pinned_version, trigger_backfill=switch(default=False)
    )

    def __init__(
        self, *, version: int | str | None = None, trigger_backfill: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.version = version
        self.trigger_backfill = trigger_backfill
        self._target: int | None = None
        self.check_arguments()

    def begin(self) -> None:
        """Forget the version of an earlier wait."""
        self._target = None

    @property
    def wanted(self) -> str:
        """The state that is waited for, in words."""
        version = self.argument("version") if self._target is None else self._target
        return BackfillWatch(None if version == TRIGGERING_EVENT else version).wanted

    def look(self, context: Context) -> BackfillLook:
        """Check the table and its commit owner once.

        :raises DeltaError: the table can't be read, or its owner can't be reached.
        """
        watch = BackfillWatch(
            self._known_target(context), trigger_backfill=self.argument("trigger_backfill")
        )
        # Opened at every check, because credentials may expire during a long wait.
        found = watch.look(self.hook().table(self.table_uri))
        if found.reached:
            self._forget_target(context)
        else:
            self._keep_target(context, found.facts["version"])
        return found

    def trigger(self, **arguments: Any) -> BackfillTrigger:
        """The trigger that waits for the version."""
        # The target is None only if the first check has failed and `silent_fail` is set.
        return BackfillTrigger(
            version=self._target,
            trigger_backfill=self.argument("trigger_backfill"),
            **arguments,
        )

    def execute_complete(
        self, context: Context, event: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Resume the task after the trigger has fired.

        :raises DeltaError: the trigger couldn't read the table or reach its owner.
        """
        found = super().execute_complete(context, event)
        self._forget_target(context)
        return found

    def _known_target(self, context: Context) -> int | None:
        """The version to wait for; None if the first check has to decide on it."""
        version = requested_version(context, self.table_uri, self.argument("version"))
        if version is not None:
            self._target = version
        if self._target is None:
            # Each check of a rescheduled wait has a new object.
            state = task_state(context)
            kept = state.get(_STATE_KEY) if state is not None else None
            if kept and kept["table_uri"] == self.table_uri:
                self._target = kept["version"]
        return self._target

    def _keep_target(self, context: Context, target: int) -> None:
        state = task_state(context)
        if self._target is None and state is not None:
            state.set(_STATE_KEY, {"table_uri": self.table_uri, "version": target})
        self._target = target

    def _forget_target(self, context: Context) -> None:
        state = task_state(context)
        if state is not None and not isinstance(self.argument("version"), int):
            state.delete(_STATE_KEY)
