"""The trigger of `BackfillSensor`: wait for the backfill of a managed table."""

from __future__ import annotations

from typing import Any

from airflow_delta.hooks.waits.backfill import BackfillLook, BackfillWatch
from airflow_delta.triggers.table_poll import TablePoll

__all__ = ["BackfillTrigger"]


class BackfillTrigger(TablePoll):
    """Fire once, when a version of a table is backfilled.

    The event of success has ``table_uri``, ``version`` (the wanted one), ``ratified_version``,
    ``backfilled_version`` and ``lag``. See `TablePoll` for the rest.

    :param version: the version to wait for; None: the newest ratified one at the first successful check,
        which isn't kept over a restart of the triggerer.
    :param trigger_backfill: have the commit owner backfill missing versions at each check.
    """

    def __init__(
        self, *, version: int | None = None, trigger_backfill: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.trigger_backfill = trigger_backfill
        self._watch = BackfillWatch(version, trigger_backfill=trigger_backfill)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The class and the arguments from which Airflow creates this trigger again."""
        path, arguments = super().serialize()
        arguments |= {"version": self.version, "trigger_backfill": self.trigger_backfill}
        return path, arguments

    @property
    def version(self) -> int | None:
        """The version to wait for; None until the first check has decided on it."""
        return self._watch.version

    @property
    def wanted(self) -> str:
        """The state that is waited for, in words."""
        return self._watch.wanted

    def look(self, table: Any) -> BackfillLook:
        """Check the table and its commit owner once.

        :raises DeltaError: the table can't be read, or its owner can't be reached.
        """
        return self._watch.look(table)
