"""Ask a table for its newest version again and again: what sensors and triggers have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_delta.hooks.delta import DeltaHook

if TYPE_CHECKING:
    from airflow_delta.engine import DeltaTable

__all__ = ["VersionWatch"]

_CONFIRM_EVERY = 100
"""At one look of so many it is made sure that the version seen last is still there."""


class VersionWatch:
    """The newest version of one table, asked for again and again.

    The first look lists the log. Later ones ask for the next commit by its name, which is one small
    request however long the log is.
    """

    def __init__(self) -> None:
        self._latest: int | None = None
        self._looks = 0

    def look(self, table: DeltaTable) -> int | None:
        """The newest version now, or None where there is no table yet.

        A look that fails doesn't count.

        :param table: the table; another object for the same one will do.
        :raises DeltaError: the table can't be read.
        """
        confirm = self._looks % _CONFIRM_EVERY == 0
        self._latest = DeltaHook.latest_version(table, self._latest, confirm=confirm)
        self._looks += 1
        return self._latest
