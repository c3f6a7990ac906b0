"""Looks at a table that is waited for: what one has found, and what is logged of many."""

from __future__ import annotations

import time
from typing import Any, Protocol

__all__ = ["TableLook", "WaitLog"]

_EVERY_SECONDS = 600.0
"""Between two lines of the log about a wait in which nothing changes."""


class TableLook(Protocol):
    """What one look at a table has found."""

    @property
    def reached(self) -> bool:
        """Whether the table is as is waited for."""

    @property
    def facts(self) -> dict[str, Any]:
        """What the task returns, as JSON values."""

    @property
    def seen(self) -> str:
        """What was seen, in words."""


class WaitLog:
    """Log what is waited for and what was seen: when it changes, and now and then.

    :param logger: of the task or the trigger.
    :param table_uri: the table.
    :param wanted: what is waited for, in words.
    """

    def __init__(self, logger: Any, table_uri: str, wanted: str) -> None:
        self._logger = logger
        self._table_uri = table_uri
        self.wanted = wanted
        self.last = "nothing yet"
        self._logged_at: float | None = None

    @property
    def standing(self) -> str:
        """The table, what is waited for and what was seen last."""
        return f"{self._table_uri}: waiting for {self.wanted}, last seen: {self.last}"

    def seen(self, what: str) -> None:
        """Take note of what a look has found."""
        if self._is_due(what):
            self._logger.info("%s", self.standing)

    def failed(self, error: Exception) -> None:
        """Take note of a look that has failed: where the error came from is logged once."""
        before = self.last
        what = f"a look that failed: {type(error).__name__}: {error}"
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
