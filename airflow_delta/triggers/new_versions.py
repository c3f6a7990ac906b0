"""`DeltaTableVersionTrigger`: emit asset events for the new versions of a table, of any writer.

All watchers of a table that have the same connections share one poll, which Airflow runs as a shared
stream. `WatchState` turns its looks into the events of one watcher.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Hashable, Sequence
from typing import Any

from airflow_delta.hooks.argument_rules import check_location
from airflow_delta.hooks.failures import ArgumentError, TableFailure
from airflow_delta.hooks.table_locations import canonical_uri, split_connection
from airflow_delta.hooks.waits.look import WaitLog
from airflow_delta.hooks.waits.new_versions import Filters, VersionPoll
from airflow_delta.hooks.waits.version import VersionLook
from airflow_delta.triggers import shared_pace
from airflow_delta.triggers.blocking_calls import BlockingCalls
from airflow_delta.triggers.shared_looks import SharedLook, SharedLooks
from airflow_delta.triggers.table_opening import OpenedTable
from airflow_delta.triggers.watch_state import WANTED, WatchState
from airflow_delta.version_compat import BaseEventTrigger, TriggerEvent

__all__ = ["DeltaTableVersionTrigger"]

_LOGGER = logging.getLogger(__name__)


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
    version that is the newest at the first check; if there is no table yet, it reports all versions. Errors
    are logged and never become events; the poll goes on after a pause of up to a quarter of an hour, with
    the connections as they are then. A check that hangs counts as failed after five minutes, and isn't
    started again for ten.

    The arguments aren't templated, and contain no secrets. Another filter is another watch, which begins
    after the last version that the watches of this table and asset have reported.

    :param table_uri: the table's absolute path or URI.
    :param delta_conn_id: the connection with the credentials of the table's store.
    :param commit_owner_conn_id: the connection of the table's commit owner.
    :param poll_interval: seconds between two checks, at least 1; they vary by a tenth. Watchers that share
        a poll may have different ones.
    :param operations: report only if one of the new versions is by one of these operations, such as
        ``["WRITE", "MERGE"]``; None: any.
    :param min_new_versions: report only if at least this many new versions pass the other
        filters.
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
        )

    @classmethod
    async def open_shared_stream(cls, kwargs: dict[str, Any]) -> AsyncIterator[Any]:
        """Poll the table for ever; yields its newest snapshot after each check, or None for no table."""
        uri, own = kwargs["table_uri"], kwargs["poll_interval"]
        key = cls(**kwargs).shared_stream_key()
        log = WaitLog(_LOGGER, uri, WANTED)
        calls: BlockingCalls[Any] = BlockingCalls()
        table: OpenedTable[Any] | None = None
        failures = 0
        # After a restart the triggerer starts all watchers at once.
        await asyncio.sleep(random.uniform(0, min(own, 5.0)))  # noqa: S311 - to spread the load
        while True:
            try:
                if table is None:
                    # With a poll of its own, because a look that hangs still uses the former one.
                    table = OpenedTable(
                        VersionPoll().look,
                        uri,
                        kwargs["delta_conn_id"],
                        kwargs["commit_owner_conn_id"],
                    )
                newest = await calls(table.look)
            except Exception as error:  # noqa: BLE001 - Airflow would start a failed trigger again at once
                table, failures = None, failures + 1
                log.failed(error)
            else:
                failures = 0
                version = None if newest is None else newest.version
                log.found(VersionLook(reached=False, facts={"version": version}))
                yield newest
            interval = min(shared_pace.intervals_of(key), default=own)
            await shared_pace.sleep_until_due(key, shared_pace.pause_seconds(interval, failures))

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> SharedLooks:
        """Have Airflow say when it has stored the events of a look."""
        return SharedLooks(cls.open_shared_stream(kwargs))

    async def filter_shared_stream(
        self, shared_stream: AsyncIterator[SharedLook]
    ) -> AsyncIterator[TriggerEvent]:
        """Turn the looks of the poll into the events of this watcher."""
        filters = Filters(
            tuple(self.operations or ()), self.min_new_versions, self.data_change_only
        )
        watch = WatchState(self.table_uri, filters, self.poll_interval, self.asset_state_store)
        with shared_pace.subscribed(self.shared_stream_key(), self.poll_interval):
            try:
                async for look in shared_stream:
                    payload = await watch.take(look.newest)
                    if payload is not None:
                        yield TriggerEvent(payload)  # type: ignore[no-untyped-call]  # untyped in Airflow
                        watch.emitted(look)
            finally:
                watch.stop()

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Poll without sharing; the triggerer doesn't do so.

        Then nobody says when Airflow has stored an event. So after a restart all events are repeated.
        """
        _, kwargs = self.serialize()
        looks = (
            look async for look, _ in SharedLooks(self.open_shared_stream(kwargs)).open_stream()
        )
        async for event in self.filter_shared_stream(looks):
            yield event


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
        canonical_uri(table_uri)
    except (ValueError, TableFailure) as error:
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
