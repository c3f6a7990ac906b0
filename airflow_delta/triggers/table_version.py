"""Wait for a version of a Delta table in the triggerer, without a worker slot."""

from __future__ import annotations

from typing import Any

from airflow_delta.hooks.version_watch import VersionLook, VersionWatch, wanted_version
from airflow_delta.triggers.table_poll import TablePoll

__all__ = ["TableVersionTrigger"]


class TableVersionTrigger(TablePoll):
    """Fire once, when a table has reached a version.

    The event of success has ``table_uri`` and ``version``, the newest one. A table that doesn't exist
    yet is waited for. See `TablePoll` for the rest.

    :param min_version: the version to wait for.
    """

    def __init__(self, *, min_version: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.min_version = min_version
        self._watch = VersionWatch()

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The class and the arguments to build this trigger from again."""
        path, arguments = super().serialize()
        return path, {**arguments, "min_version": self.min_version}

    @property
    def wanted(self) -> str:
        """What is waited for, in words."""
        return wanted_version(self.min_version)

    def look(self, table: Any) -> VersionLook:
        """Look at the log once; only the first look lists it.

        :raises DeltaError: the table can't be read.
        """
        return self._watch.look(table, wanted=self.min_version)
