"""Wait until a managed Delta table is backfilled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_delta.hooks.managed_commits import BackfillLook, look_at_backfill, wanted_backfill
from airflow_delta.operators.table_task import with_readers
from airflow_delta.operators.template_values import as_version, switch
from airflow_delta.sensors.table_wait import TableWait
from airflow_delta.triggers.backfill import BackfillTrigger
from airflow_delta.version_compat import Context, task_state

__all__ = ["BackfillSensor"]

_STATE_KEY = "backfill_target"


class BackfillSensor(TableWait):
    """Wait until a version of a managed table is backfilled: its commit is in the log for everybody.

    Without a version it waits for all that was ratified when the wait started, however many commits
    follow meanwhile. That is decided once, by the first look that succeeds: it holds for all looks of a
    rescheduled or deferred wait and for retries, and is forgotten when the wait has succeeded.

    Returns a dictionary with ``table_uri``, ``version`` (the one that was waited for),
    ``ratified_version`` and ``backfilled_version`` (the newest of each when the wait ended) and ``lag``
    (how many versions there are between them). `airflow_delta.sensors.table_wait` tells what becomes of
    a wait that fails; that the commit owner can't be asked is such a failure.

    A table that the file system manages has all its versions in the log.

    :param table_uri: the table's path or URI. (templated)
    :param version: the version to wait for, which may be one that isn't committed yet; None: the newest
        that is ratified when the wait starts. (templated)
    :param trigger_backfill: have the commit owner backfill what is missing, at each look. By itself it
        does so as the table's policy says.
    :param delta_conn_id: the connection with the credentials of the table's store; None: the
        default connection of the URI's scheme. (templated)
    :param commit_owner_conn_id: the connection of the SQL commit owner; None:
        ``delta_commit_owner_default`` where that exists, else what the environment says. (templated)
    :param deferrable: wait in the triggerer and not in a worker slot.
    """

    template_fields: Sequence[str] = (*TableWait.template_fields, "version")
    arguments = with_readers(TableWait, version=as_version, trigger_backfill=switch(default=False))

    def __init__(
        self, *, version: int | str | None = None, trigger_backfill: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.version = version
        self.trigger_backfill = trigger_backfill
        self._target: int | None = None
        self.check_arguments()

    def begin(self) -> None:
        """Wait for something new."""
        self._target = None

    @property
    def wanted(self) -> str:
        """What is waited for, in words."""
        return wanted_backfill(
            self._target if self._target is not None else self.argument("version")
        )

    def look(self, context: Context) -> BackfillLook:
        """Look at the table and its commit owner once.

        :raises DeltaError: the table can't be read, or its owner can't be asked.
        """
        # Opened at every look, for credentials that expire during a long wait.
        found = look_at_backfill(
            self.hook().table(self.table_uri),
            version=self._known_target(context),
            trigger_backfill=self.argument("trigger_backfill"),
        )
        if found.reached:
            self._forget_target(context)
        else:
            self._keep_target(context, found.facts["version"])
        return found

    def trigger(self, **arguments: Any) -> BackfillTrigger:
        """The trigger that waits for the version."""
        # None only where the first look has failed, and `silent_fail` goes on all the same.
        return BackfillTrigger(
            version=self._target,
            trigger_backfill=self.argument("trigger_backfill"),
            **arguments,
        )

    def execute_complete(
        self, context: Context, event: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Take over from the triggerer.

        :raises DeltaError: the trigger could not read the table or ask its owner.
        """
        found = super().execute_complete(context, event)
        self._forget_target(context)
        return found

    def _known_target(self, context: Context) -> int | None:
        """What to wait for; None where the first look is still to decide it."""
        asked = self.argument("version")
        if asked is not None:
            self._target = asked
        if self._target is None:
            # Each look of a rescheduled wait is made by another object than the one before.
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
        if state is not None and self.argument("version") is None:
            state.delete(_STATE_KEY)
