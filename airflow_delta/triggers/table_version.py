"""The trigger of `TableVersionSensor`: wait for a version of a Delta table."""

from __future__ import annotations

from typing import Any

from airflow_delta.hooks.waits.version import VersionLook, VersionWatch
from airflow_delta.triggers.table_poll import TablePoll

__all__ = ["TableVersionTrigger"]


class TableVersionTrigger(TablePoll):
    """Fire once, when a table has reached a version.

    The event of success has ``table_uri`` and ``version``, the newest one. The table needn't exist yet. See
    `TablePoll` for the rest.

    :param min_version: the version to wait for.
    """

    def __init__(self, *, min_version: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.min_version = min_version
        self._watch = VersionWatch(min_version)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The class and the arguments from which Airflow creates this trigger again."""
        path, arguments = super().serialize()
        return path, {**arguments, "min_version": self.min_version}

    @property
    def wanted(self) -> str:
        """The state that is waited for, in words."""
        return self._watch.wanted

    def look(self, table: Any) -> VersionLook:
        """Check the log once; only the first check lists it.

        :raises DeltaError: the table can't be read.
        """
        return self._watch.look(table)
