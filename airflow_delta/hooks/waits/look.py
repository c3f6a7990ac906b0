"""The checks of sensors and triggers that wait for a table, and their log."""

from __future__ import annotations

import time
from typing import Any, Protocol

__all__ = ["TableLook", "WaitLog"]

_EVERY_SECONDS = 600.0
"""The time between two log lines of a wait in which nothing changes."""


class TableLook(Protocol):
    """The result of one check of a table."""

    @property
    def reached(self) -> bool:
        """Whether the table has the wanted state."""

    @property
    def facts(self) -> dict[str, Any]:
        """The return value of the task, as JSON values."""

    @property
    def seen(self) -> str:
        """The state that was found, in words."""


class WaitLog:
    """Logs the state of a wait when it changes, every ten minutes, and when the wait is over.

    :param logger: the logger of the task or the trigger.
    :param table_uri: the table.
    :param wanted: the state that is waited for, in words.
    """

    def __init__(self, logger: Any, table_uri: str, wanted: str) -> None:
        self._logger = logger
        self._table_uri = table_uri
        self.wanted = wanted
        self.last = "nothing yet"
        self._logged_at: float | None = None

    @property
    def standing(self) -> str:
        """The table, the wanted state and the last state found."""
        return f"{self._table_uri}: waiting for {self.wanted}, last seen: {self.last}"

    def found(self, look: TableLook) -> None:
        """Log the result of a check, if a line is due or the table has the wanted state."""
        is_due = self._is_due(look.seen)
        if look.reached:
            self._logger.info(
                "%s: the wait for %s is over, found: %s", self._table_uri, self.wanted, self.last
            )
        elif is_due:
            self._logger.info("%s", self.standing)

    def failed(self, error: Exception) -> None:
        """Log a failed check, if a line is due; the traceback is logged once."""
        before = self.last
        what = f"a check that failed: {type(error).__name__}: {error}"
        if self._is_due(what):
            self._logger.error("%s", self.standing, exc_info=error if what != before else None)

    def _is_due(self, what: str) -> bool:
        now = time.monotonic()
        due = self._logged_at is None or now - self._logged_at >= _EVERY_SECONDS
        due = due or what != self.last
        self.last = what
        if due:
            self._logged_at = now
        return due
