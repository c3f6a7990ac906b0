"""Wait for a version of a Delta table in the triggerer, without a worker slot."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from airflow_delta.hooks.delta import DeltaHook
from airflow_delta.hooks.version_watch import VersionWatch
from airflow_delta.version_compat import BaseTrigger, TriggerEvent

__all__ = ["TableVersionTrigger"]


class TableVersionTrigger(BaseTrigger):
    """Fire once, when a table has reached a version.

    The event is ``{"status": "success", "table_uri", "version"}`` with the newest version, or
    ``{"status": "error", "error", "message"}``, the name of the error's class and its text, where
    the table can't be read. A table that doesn't exist yet is waited for.

    The connection is looked up when the wait begins, and again when a look at the log fails, so that
    credentials may expire or be corrected meanwhile.

    The arguments are text and numbers only, because Airflow stores them in its database: the
    connection is named here and looked up where the trigger runs.

    :param table_uri: the table's path or URI.
    :param min_version: the version to wait for.
    :param delta_conn_id: the connection with the credentials of the table's store.
    :param poke_interval: seconds between two looks at the log.
    :param silent_fail: log that the table can't be read, and go on waiting.
    """

    def __init__(
        self,
        *,
        table_uri: str,
        min_version: int,
        delta_conn_id: str | None = None,
        poke_interval: float = 60.0,
        silent_fail: bool = False,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # untyped in Airflow
        self.table_uri = table_uri
        self.min_version = min_version
        self.delta_conn_id = delta_conn_id
        self.poke_interval = poke_interval
        self.silent_fail = silent_fail

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The class and the arguments to build this trigger from again."""
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {
                "table_uri": self.table_uri,
                "min_version": self.min_version,
                "delta_conn_id": self.delta_conn_id,
                "poke_interval": self.poke_interval,
                "silent_fail": self.silent_fail,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look at the log until the version is there; yields one event."""
        try:
            latest = await self._wait()
        except Exception as error:
            # Any error must become an event: a trigger that dies tells the task nothing.
            self.log.exception("%s: waiting for version %s", self.table_uri, self.min_version)
            event: dict[str, Any] = {
                "status": "error",
                "error": type(error).__name__,
                "message": str(error),
            }
        else:
            event = {"status": "success", "table_uri": self.table_uri, "version": latest}
        yield TriggerEvent(event)  # type: ignore[no-untyped-call]  # untyped in Airflow

    async def _wait(self) -> int:
        watch = VersionWatch()
        table = None
        while True:
            opened_before = table is not None
            try:
                if table is None:
                    table = await DeltaHook(self.delta_conn_id).table_async(self.table_uri)
                # Listing is blocking I/O, and the triggerer runs all its triggers on one event loop.
                latest = await asyncio.to_thread(watch.look, table)
            except Exception:
                table = None
                if opened_before:
                    # Its credentials may have expired, or the connection been corrected meanwhile:
                    # only with what the connection says now is it a failure.
                    self.log.warning("%s: to be opened anew", self.table_uri, exc_info=True)
                    continue
                if not self.silent_fail:
                    raise
                self.log.exception("%s: a look at the log failed", self.table_uri)
            else:
                if latest is not None and latest >= self.min_version:
                    return latest
            await asyncio.sleep(self.poke_interval)
