"""`TablePoll`, the base class of triggers: poll a Delta table in the triggerer."""

from __future__ import annotations

import asyncio
import math
import time
from abc import abstractmethod
from collections.abc import AsyncIterator, Sequence
from typing import Any

from airflow_delta.hooks.failures import is_permanent
from airflow_delta.hooks.table_locations import as_locations
from airflow_delta.hooks.waits.look import TableLook, WaitLog
from airflow_delta.triggers import blocking_calls
from airflow_delta.triggers.blocking_calls import BlockingCalls
from airflow_delta.triggers.table_opening import OpenedTable
from airflow_delta.version_compat import BaseTrigger, TriggerEvent

__all__ = ["TablePoll"]

FIRST_LOOK_SECONDS = 15.0
"""The wait before the first check. The task itself has just checked. And Airflow must first notice that
the task is deferred: it fails a task whose trigger fires sooner ("executor reported success, but state is
queued"). Its supervisor may take five seconds (``[workers] min_heartbeat_interval``) to see that the
process has ended, and the scheduler a loop or two more."""

_LAST_LOOK_SECONDS = 30.0
"""A check takes no longer after the deadline."""


class TablePoll(BaseTrigger):
    """Fire once, when a check of a table finds the wanted state.

    The event is ``{"status": "success", …}`` with the facts of that check; ``{"status": "timeout",
    "message"}`` after ``deadline``; or ``{"status": "error", "error", "message"}``, with the name of the
    error's class and its text, if the table can't be read.

    Connections are looked up when the wait begins, and again after a failed check, because credentials may
    have expired or been corrected. A check that hangs isn't started again: after ten minutes it has failed.

    The arguments are only text and numbers, because Airflow stores them in its database. So they have the
    names of connections, which are looked up where the trigger runs.

    :param table_uri: the table's absolute path or URI.
    :param delta_conn_id: the connection with the credentials of the table's store.
    :param commit_owner_conn_id: the connection of the table's commit owner.
    :param allowed_outside: locations outside of the table below which it may read.
    :param poke_interval: seconds between two checks.
    :param silent_fail: log temporary errors, and go on waiting; see `airflow_delta.hooks.failures`.
    :param deadline: the end of the wait, in seconds since 1970; None: wait for ever.
    """

    def __init__(
        self,
        *,
        table_uri: str,
        delta_conn_id: str | None = None,
        commit_owner_conn_id: str | None = None,
        allowed_outside: Sequence[str] | str | None = None,
        poke_interval: float = 60.0,
        silent_fail: bool = False,
        deadline: float | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # untyped in Airflow
        self.table_uri = table_uri
        self.delta_conn_id = delta_conn_id
        self.commit_owner_conn_id = commit_owner_conn_id
        self.allowed_outside = as_locations(allowed_outside)
        self.poke_interval = poke_interval
        self.silent_fail = silent_fail
        self.deadline = deadline

    @property
    @abstractmethod
    def wanted(self) -> str:
        """The state that is waited for, in words."""

    @abstractmethod
    def look(self, table: Any) -> TableLook | None:
        """Check the table once, in another thread than the event loop's.

        :param table: the table, from `DeltaHook.table`.
        :returns: the result; None if it is too early for a check.
        :raises DeltaError: the table can't be read.
        """

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The class and the arguments from which Airflow creates this trigger again."""
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {
                "table_uri": self.table_uri,
                "delta_conn_id": self.delta_conn_id,
                "commit_owner_conn_id": self.commit_owner_conn_id,
                "allowed_outside": list(self.allowed_outside),
                "poke_interval": self.poke_interval,
                "silent_fail": self.silent_fail,
                "deadline": self.deadline,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Check the table until it has the wanted state; yields one event."""
        log = WaitLog(self.log, self.table_uri, self.wanted)
        try:
            found = await self._wait(log)
            if found is None:
                event = {"status": "timeout", "message": log.standing}
            else:
                event = {"status": "success", **found}
        except Exception as error:
            # Any error must become an event: otherwise the task doesn't get its message.
            self.log.exception("%s: the wait has failed", self.table_uri)
            event = {"status": "error", "error": type(error).__name__, "message": str(error)}
        yield TriggerEvent(event)  # type: ignore[no-untyped-call]  # untyped in Airflow

    async def _wait(self, log: WaitLog) -> dict[str, Any] | None:
        """The facts of the successful check; None after the deadline."""
        calls: BlockingCalls[TableLook | None] = BlockingCalls()
        table: OpenedTable[TableLook | None] | None = None
        await asyncio.sleep(FIRST_LOOK_SECONDS)
        is_last = self._seconds_left() <= 0
        while True:
            opened_before = table is not None and table.is_open
            if table is None:
                table = OpenedTable(
                    self.look,
                    self.table_uri,
                    self.delta_conn_id,
                    self.commit_owner_conn_id,
                    self.allowed_outside,
                )
            seconds = min(
                blocking_calls.LOOK_SECONDS, max(self._seconds_left(), _LAST_LOOK_SECONDS)
            )
            try:
                found = await calls(table.look, seconds)
            except Exception as error:
                table = None
                if calls.hangs:
                    log.failed(error)
                    if self._seconds_left() <= 0:
                        return None
                    # Wait for the same check, until it counts as lost.
                    continue
                if opened_before:
                    # The credentials may have expired, or the connection may have been corrected. So the
                    # table is opened again, and only a second error is a failure.
                    self.log.warning("%s: opening it again after %r", self.table_uri, error)
                    continue
                if is_permanent(error) or not self.silent_fail:
                    raise
                log.failed(error)
            else:
                if found is not None:
                    log.found(found)
                    if found.reached:
                        return found.facts
            if is_last:
                return None
            left = self._seconds_left()
            is_last = left <= self.poke_interval
            await asyncio.sleep(min(self.poke_interval, left))

    def _seconds_left(self) -> float:
        if self.deadline is None:
            return math.inf
        return max(self.deadline - time.time(), 0.0)
