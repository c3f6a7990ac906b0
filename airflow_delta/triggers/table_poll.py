"""Look at a Delta table again and again in the triggerer: what its triggers have in common."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator
from typing import Any

from airflow_delta.hooks.delta import DeltaHook
from airflow_delta.version_compat import BaseTrigger, TriggerEvent

__all__ = ["TablePoll"]


class TablePoll(BaseTrigger):
    """Fire once, when a look at a table has found what is waited for.

    The event is ``{"status": "success", …}`` with the facts of that look, or
    ``{"status": "error", "error", "message"}``, the name of the error's class and its text, where the
    table can't be read.

    Connections are looked up when the wait begins, and again when a look at the table fails, so that
    credentials may expire or be corrected meanwhile.

    The arguments are text and numbers only, because Airflow stores them in its database: connections
    are named here and looked up where the trigger runs.

    :param table_uri: the table's path or URI.
    :param delta_conn_id: the connection with the credentials of the table's store.
    :param commit_owner_conn_id: the connection of the table's commit owner.
    :param poke_interval: seconds between two looks at the table.
    :param silent_fail: log that the table can't be read, and go on waiting.
    """

    def __init__(
        self,
        *,
        table_uri: str,
        delta_conn_id: str | None = None,
        commit_owner_conn_id: str | None = None,
        poke_interval: float = 60.0,
        silent_fail: bool = False,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # untyped in Airflow
        self.table_uri = table_uri
        self.delta_conn_id = delta_conn_id
        self.commit_owner_conn_id = commit_owner_conn_id
        self.poke_interval = poke_interval
        self.silent_fail = silent_fail

    @abstractmethod
    def look(self, table: Any) -> dict[str, Any] | None:
        """Look at the table once, in a thread.

        :param table: the table, as `DeltaHook.table` gives it.
        :returns: the facts, as JSON values, where that is what is waited for; else None.
        :raises DeltaError: the table can't be read.
        """

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The class and the arguments to build this trigger from again."""
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {
                "table_uri": self.table_uri,
                "delta_conn_id": self.delta_conn_id,
                "commit_owner_conn_id": self.commit_owner_conn_id,
                "poke_interval": self.poke_interval,
                "silent_fail": self.silent_fail,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look at the table until it is as is waited for; yields one event."""
        try:
            event = {"status": "success", **await self._wait()}
        except Exception as error:
            # Any error must become an event: a trigger that dies tells the task nothing.
            self.log.exception("%s: the wait has failed", self.table_uri)
            event = {"status": "error", "error": type(error).__name__, "message": str(error)}
        yield TriggerEvent(event)  # type: ignore[no-untyped-call]  # untyped in Airflow

    async def _wait(self) -> dict[str, Any]:
        table = None
        failure: Exception | None = None
        while True:
            opened_before = table is not None
            try:
                if table is None:
                    hook = DeltaHook(self.delta_conn_id, self.commit_owner_conn_id)
                    table = await hook.table_async(self.table_uri)
                # A look is blocking I/O, and the triggerer runs all its triggers on one event loop.
                found = await asyncio.to_thread(self.look, table)
            except Exception as error:
                table = None
                if opened_before:
                    # Its credentials may have expired, or the connection been corrected meanwhile:
                    # only with what the connection says now is it a failure.
                    self.log.warning("%s: to be opened anew, after %r", self.table_uri, error)
                    continue
                if not self.silent_fail:
                    raise
                self._log_failure(error, failure)
                failure = error
            else:
                failure = None
                if found is not None:
                    return found
            await asyncio.sleep(self.poke_interval)

    def _log_failure(self, error: Exception, before: Exception | None) -> None:
        """Log that a look has failed: where it came from once, and not at each look for hours."""
        message = "%s: a look at the table failed: %s: %s"
        facts = (self.table_uri, type(error).__name__, error)
        if type(error) is type(before):
            self.log.warning(message, *facts)
        else:
            self.log.error(message, *facts, exc_info=error)
