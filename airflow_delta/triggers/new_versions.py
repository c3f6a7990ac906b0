"""`DeltaTableVersionTrigger`: emit asset events for the new versions of a table, whoever commits them.

All watchers of a table that have the same connections and the same interval share one poll, which Airflow
runs as a shared stream. What a watcher has reported, its mark, is in the state store of its asset. So that
no version is lost in a crash, the mark is stored only after Airflow has stored the event: in between, a
restarted triggerer reports the versions again.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Hashable, Sequence
from typing import Any

from airflow_delta.hooks.argument_rules import check_location
from airflow_delta.hooks.delta import DeltaHook
from airflow_delta.hooks.failures import ArgumentError
from airflow_delta.hooks.table_locations import canonical_uri, split_connection
from airflow_delta.hooks.waits.look import WaitLog
from airflow_delta.hooks.waits.new_versions import Filters, Mark, VersionPoll, VersionWatcher
from airflow_delta.hooks.waits.version import VersionLook
from airflow_delta.version_compat import BaseEventTrigger, TriggerEvent, asset_states

__all__ = ["DeltaTableVersionTrigger"]

_LOGGER = logging.getLogger(__name__)
_WANTED = "new versions"
_LONGEST_PAUSE_SECONDS = 900.0
_LOOK_SECONDS = 300.0
"""A check that takes longer counts as failed."""

STORED_AFTER_SECONDS = 5.0
"""The least age of an event whose mark is stored. The triggerer passes events on about once a second."""


class DeltaTableVersionTrigger(BaseEventTrigger):
    """Emit an asset event whenever a table has new versions, for an ``AssetWatcher``.

    For example::

        SALES = delta_asset(
            "s3://lake/sales",
            name="sales",
            watchers=[
                AssetWatcher("versions", trigger=DeltaTableVersionTrigger(table_uri="s3://lake/sales"))
            ],
        )

    One poll makes one event at most, for all versions that are new. Its payload has ``table_uri``,
    ``table_id``, ``after_version`` and ``version`` (the new versions are those after the first, up to the
    second), ``timestamp``, ``operation`` and ``task_run`` of the newest, and ``table_change``: None, or

    ``restored``, ``replaced``
        One of the commits has restored an earlier version, or has replaced the table.
    ``recreated``, ``rolled_back``
        The table was deleted and created again, or was put back to an earlier state, for example from a
        backup. Versions are counted anew: ``after_version`` is -1.

    Each version is in at least one event, and may be in several after a crash. The watch begins at the
    version that is the newest at the first check; if there is no table yet, it waits for it,
    and reports all versions. Errors are logged and never become events; the poll goes on after a pause,
    which grows up to a quarter of an hour. Connections are looked up again after each error.

    The arguments aren't templated, and contain no secrets. Another filter is another watch, which begins
    where the watches of this table and asset have been.

    :param table_uri: the table's absolute path or URI.
    :param delta_conn_id: the connection with the credentials of the table's store.
    :param commit_owner_conn_id: the connection of the table's commit owner.
    :param poll_interval: seconds between two checks, at least 1; they vary by a tenth.
    :param operations: report only if one of the new versions is by one of these operations, such as
        ``["WRITE", "MERGE"]``; None: any.
    :param min_new_versions: report only if so many new versions pass the other filters.
    :param data_change_only: report only if a new version changes rows: an optimization doesn't.
    :raises ArgumentError: an argument is invalid.
    """

    def __init__(
        self,
        *,
        table_uri: str,
        delta_conn_id: str | None = None,
        commit_owner_conn_id: str | None = None,
        poll_interval: float = 60.0,
        operations: Sequence[str] | None = None,
        min_new_versions: int = 1,
        data_change_only: bool = False,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # untyped in Airflow
        _check(table_uri, poll_interval, operations, min_new_versions, data_change_only)
        self.table_uri = table_uri
        self.delta_conn_id = delta_conn_id
        self.commit_owner_conn_id = commit_owner_conn_id
        self.poll_interval = poll_interval
        self.operations = None if operations is None else sorted({*map(str.upper, operations)})
        self.min_new_versions = min_new_versions
        self.data_change_only = data_change_only

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The class and the arguments from which Airflow creates this trigger again."""
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {
                "table_uri": self.table_uri,
                "delta_conn_id": self.delta_conn_id,
                "commit_owner_conn_id": self.commit_owner_conn_id,
                "poll_interval": self.poll_interval,
                "operations": self.operations,
                "min_new_versions": self.min_new_versions,
                "data_change_only": self.data_change_only,
            },
        )

    def shared_stream_key(self) -> Hashable:
        """Watchers with equal keys share one poll."""
        connection, _ = split_connection(self.table_uri)
        return (
            type(self).__qualname__,
            canonical_uri(self.table_uri),
            self.delta_conn_id or connection,
            self.commit_owner_conn_id,
            self.poll_interval,
        )

    @classmethod
    async def open_shared_stream(cls, kwargs: dict[str, Any]) -> AsyncIterator[Any]:
        """Poll the table for ever; yields its newest snapshot after each check, or None for no table."""
        uri, interval = kwargs["table_uri"], kwargs["poll_interval"]
        log = WaitLog(_LOGGER, uri, _WANTED)
        poll, table, failures = VersionPoll(), None, 0
        # After a restart the triggerer starts all watchers at once.
        await asyncio.sleep(random.uniform(0, min(interval, 5.0)))  # noqa: S311 - to spread the load
        while True:
            try:
                if table is None:
                    hook = DeltaHook(kwargs["delta_conn_id"], kwargs["commit_owner_conn_id"])
                    table = await hook.table_async(uri)
                newest = await _in_time(asyncio.to_thread(poll.look, table))
            except Exception as error:  # noqa: BLE001 - Airflow would start a failed trigger again at once
                table, failures = None, failures + 1
                log.failed(error)
            else:
                failures = 0
                version = None if newest is None else newest.version
                log.found(VersionLook(reached=False, facts={"version": version}))
                yield newest
            await asyncio.sleep(_pause(interval, failures))

    async def filter_shared_stream(
        self, shared_stream: AsyncIterator[Any]
    ) -> AsyncIterator[TriggerEvent]:
        """Turn the results of the poll into the events of this watcher."""
        watch = _Watch(self)
        async for newest in shared_stream:
            payload = await watch.take(newest)
            if payload is not None:
                yield TriggerEvent(payload)  # type: ignore[no-untyped-call]  # untyped in Airflow
                watch.emitted()

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Poll without sharing, where Airflow has no shared streams."""
        _, kwargs = self.serialize()
        async for event in self.filter_shared_stream(self.open_shared_stream(kwargs)):
            yield event


class _Watch:
    """The state of one watcher while the triggerer runs it."""

    def __init__(self, trigger: DeltaTableVersionTrigger) -> None:
        filters = Filters(
            tuple(trigger.operations or ()),
            trigger.min_new_versions,
            trigger.data_change_only,
        )
        self._trigger = trigger
        self._watcher = VersionWatcher(trigger.table_uri, filters)
        self._key = f"airflow_delta.watch.{filters.key(trigger.table_uri)}"
        self._shared_key = f"airflow_delta.watched.{Filters().key(trigger.table_uri)}"
        self._log = WaitLog(_LOGGER, trigger.table_uri, _WANTED)
        self._mark: Mark | None = None
        # The marks of events that Airflow may not have stored yet, with the times of the events.
        self._unstored: list[tuple[float, Mark]] = []
        self._failures = 0
        self._pause_until = 0.0

    async def take(self, newest: Any) -> dict[str, Any] | None:
        """Compare a result with the mark; return the payload of an event, if there is one."""
        if time.monotonic() < self._pause_until:
            return None
        try:
            payload = await self._take(newest)
        except Exception as error:  # noqa: BLE001 - see `DeltaTableVersionTrigger.open_shared_stream`
            self._failures += 1
            self._log.failed(error)
            self._pause_until = time.monotonic() + _pause(
                self._trigger.poll_interval, self._failures
            )
            return None
        self._failures = 0
        return payload

    def emitted(self) -> None:
        """Remember when the event of the mark was handed over."""
        assert self._mark is not None
        self._unstored.append((time.monotonic(), self._mark))

    async def _take(self, newest: Any) -> dict[str, Any] | None:
        if self._mark is None:
            self._mark = await self._load()
        if self._mark is None:
            mark = await asyncio.to_thread(self._watcher.begin, newest)
            await self._store(mark)
            self._mark = mark
        await self._store_due()
        if newest is None or newest.version == self._mark.examined:
            return None
        mark, payload = await asyncio.to_thread(self._watcher.examine, newest, self._mark)
        if payload is None and not self._unstored:
            await self._store(mark)
        self._mark = mark
        return payload

    async def _load(self) -> Mark | None:
        """The stored mark; of several assets the earliest, so that none misses a version."""
        if own := await self._stored(self._key):
            return min(own, key=lambda mark: mark.version)
        if others := await self._stored(self._shared_key):
            return min(others, key=lambda mark: mark.examined).for_other_filters()
        return None

    async def _stored(self, key: str) -> list[Mark]:
        found = [Mark.from_json(await state.aget(key)) for state in self._states]
        return [mark for mark in found if mark is not None]

    async def _store(self, mark: Mark) -> None:
        for state in self._states:
            for key in (self._key, self._shared_key):
                await state.aset(key, mark.to_json())

    async def _store_due(self) -> None:
        now = time.monotonic()
        due = [entry for entry in self._unstored if now - entry[0] >= STORED_AFTER_SECONDS]
        if not due:
            return
        # The triggerer handles messages in rounds, and stores the events of a round at its end. The event
        # was sent long ago. So the round that answers this question is that of the event or a later one,
        # and the next message, which stores the mark, is handled after its end.
        for state in self._states:
            await state.aget(self._key)
        await self._store(due[-1][1])
        del self._unstored[: len(due)]

    @property
    def _states(self) -> list[Any]:
        return asset_states(self._trigger.asset_state_store)


async def _in_time(look: Awaitable[Any]) -> Any:
    try:
        return await asyncio.wait_for(look, _LOOK_SECONDS)
    except asyncio.TimeoutError:
        raise TimeoutError(f"the store hasn't answered for {_LOOK_SECONDS:.0f} seconds") from None


def _pause(interval: float, failures: int) -> float:
    """The seconds until the next check: the interval, or after failures more and more; with jitter."""
    if not failures:
        return interval * random.uniform(0.9, 1.1)  # noqa: S311 - to spread the load
    most = max(interval, _LONGEST_PAUSE_SECONDS)
    return min(interval * 2.0 ** min(failures, 20), most) * random.uniform(0.5, 1.0)  # noqa: S311


def _check(
    table_uri: Any,
    poll_interval: Any,
    operations: Any,
    min_new_versions: Any,
    data_change_only: Any,
) -> None:
    """Check the arguments, whose mistakes would show up only in the log of the triggerer.

    :raises ArgumentError: one is invalid.
    """
    try:
        check_location(table_uri)
    except ValueError as error:
        raise ArgumentError(str(error)) from None
    is_number = isinstance(poll_interval, int | float) and not isinstance(poll_interval, bool)
    if not is_number or not 1 <= poll_interval < 1e6:
        raise ArgumentError(
            f"poll_interval: expected a number of seconds from 1 on, found {poll_interval!r}"
        )
    is_list = isinstance(operations, list | tuple | set)
    if operations is not None and not (
        is_list and operations and all(isinstance(name, str) and name for name in operations)
    ):
        raise ArgumentError(
            f"operations: expected a list of names such as ['WRITE', 'MERGE'], or None for all, found "
            f"{operations!r}"
        )
    is_count = isinstance(min_new_versions, int) and not isinstance(min_new_versions, bool)
    if not is_count or min_new_versions < 1:
        raise ArgumentError(
            f"min_new_versions: expected a number of versions from 1 on, found {min_new_versions!r}"
        )
    if not isinstance(data_change_only, bool):
        raise ArgumentError(f"data_change_only: expected True or False, found {data_change_only!r}")
