"""The looks of a shared poll, and whether Airflow has stored the events that came of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from airflow_delta.version_compat import SharedStreamProducer

__all__ = ["SharedLook", "SharedLooks"]


class SharedLook:
    """A look at a table, which all watchers of its poll get.

    :param newest: the table's newest snapshot; None if there is no table.
    """

    def __init__(self, newest: Any) -> None:
        self.newest = newest
        self.is_settled = False
        """Whether all watchers that still run are done with it, and Airflow has stored their events."""


class SharedLooks(SharedStreamProducer):
    """Yields the looks of a poll, and learns from Airflow when each is settled.

    Airflow settles the looks of a poll in their order. A watcher whose event it can't store gets an error
    instead of the next look. So whatever the outcome of a look, the events of a watcher that gets later
    looks are stored.

    :param newest: the results of the poll.
    """

    def __init__(self, newest: AsyncIterator[Any]) -> None:
        self._newest = newest

    async def open_stream(self) -> AsyncIterator[tuple[SharedLook, SharedLook]]:
        """Yield each look, once for the watchers, and once for `advance`."""
        async for newest in self._newest:
            look = SharedLook(newest)
            yield look, look

    async def advance(self, batch: Sequence[Any]) -> None:
        """Take note that looks are settled."""
        for item in batch:
            item.broker_payload.is_settled = True
