"""Tables that are watched: their commits, their watchers, and what Airflow stores for these."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from airflow.triggers.shared_stream import SharedStreamManager

from airflow_delta.engine import DeltaTable
from airflow_delta.hooks.waits.new_versions import Filters, VersionPoll
from airflow_delta.triggers import shared_pace
from airflow_delta.triggers.shared_looks import SharedLook
from airflow_delta.triggers.watch_state import WatchState
from tests.log_builder import PROTOCOL, add, metadata, write_commit

__all__ = ["AssetStore", "States", "Variables", "WatchedTable", "Watching", "fired", "no_pauses"]


class WatchedTable:
    """A table that others write to."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.uri = str(root)
        self.number = 0
        self.version = -1

    @classmethod
    def created(cls, root: Path) -> WatchedTable:
        """The table with version 0."""
        made = cls(root)
        made.commit("CREATE TABLE")
        return made

    def open(self) -> DeltaTable:
        return DeltaTable(self.uri)

    def commit(
        self,
        operation: str = "WRITE",
        *actions: Any,
        table_id: str | None = None,
        provenance: Mapping[str, Any] | None = None,
    ) -> int:
        """Make a commit as others do; ``provenance`` has more fields of its ``commitInfo``."""
        self.number += 1
        self.version += 1
        info = {
            "timestamp": 1_700_000_000_000 + self.number,
            "txnId": f"txn {self.number}",
            "operation": operation,
            **(provenance or {}),
        }
        written = list(actions) or [add(f"file {self.number}")]
        if self.version == 0 or table_id is not None:
            definition = metadata()
            definition["metaData"]["id"] = table_id or "1"
            written = [PROTOCOL, definition, *written]
        write_commit(self.root, self.version, {"commitInfo": info}, *written)
        return self.version

    def delete_after(self, version: int) -> None:
        """Put the log back to a version; -1 deletes all of it."""
        for gone in range(version + 1, self.version + 1):
            (self.root / "_delta_log" / f"{gone:020}.json").unlink(missing_ok=True)
        self.version = version


class AssetStore:
    """The state of one asset, as a watcher finds it."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.sets = 0

    async def aget(self, key: str, default: Any = None) -> Any:
        return json.loads(self.values[key]) if key in self.values else default

    async def aset(self, key: str, value: Any) -> None:
        self.sets += 1
        self.values[key] = json.dumps(value)


class States:
    """The states of the assets of a watcher."""

    def __init__(self, *names: str) -> None:
        self._by_name = {name: AssetStore() for name in names or ("sales",)}
        self._by_uri: dict[str, AssetStore] = {}


class Variables:
    """The Variables of Airflow, as watchers find them.

    Attributes:
        values: their values by key.
        descriptions: their descriptions by key.
        failures: what finding them raises instead, one after the other.
    """

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.descriptions: dict[str, str] = {}
        self.failures: list[Exception] = []

    def install(self, monkeypatch: pytest.MonkeyPatch) -> Variables:
        """Have watchers use these."""
        monkeypatch.setattr("airflow_delta.triggers.watch_state.find_variables", self.find)
        monkeypatch.setattr("airflow_delta.triggers.watch_state.set_variable", self.set)
        return self

    async def find(self, prefix: str) -> dict[str, str]:
        if self.failures:
            raise self.failures.pop(0)
        return {key: value for key, value in self.values.items() if key.startswith(prefix)}

    async def set(self, key: str, value: str, description: str) -> None:
        assert len(key) <= 250, "the longest key that Airflow stores"
        self.values[key], self.descriptions[key] = value, description


def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have watchers take each look."""
    monkeypatch.setattr(shared_pace, "pause_seconds", lambda interval, failures: 0.0)


async def fired(trigger: Any, *, are_stored: bool = True) -> AsyncIterator[Any]:
    """The events of a watcher, by Airflow's shared streams, as its triggerer takes them.

    :param trigger: the trigger.
    :param are_stored: whether Airflow stores them, at once.
    """
    manager, key = SharedStreamManager(), trigger.shared_stream_key()
    looks = manager.subscribe(trigger_id=1, trigger=trigger, key=key)
    try:
        async with aclosing(trigger.filter_shared_stream(looks)) as events:
            async for event in events:
                number = manager.bind_pending_event(trigger_id=1, key=key)
                assert number is not None
                if are_stored:
                    manager.confirm_persisted([number])
                yield event
    finally:
        await manager.unsubscribe(1, key)


class Watching:
    """A watcher, and a poll whose looks a test asks for.

    :param table: the table.
    :param states: the states of its assets.
    :param filters: its filters.
    """

    def __init__(self, table: WatchedTable, states: States | None = None, **filters: Any) -> None:
        self.table = table
        self.states = states or States()
        self._filters = Filters(**filters)
        self.restart()

    def restart(self, **filters: Any) -> None:
        """Have another triggerer go on, perhaps with other filters."""
        if filters:
            self._filters = Filters(**filters)
        self.opened = self.table.open()
        self._poll = VersionPoll()
        self.state = WatchState(self.table.uri, self._filters, 1.0, self.states)

    def poll(self) -> Any:
        """What the poll finds."""
        return self._poll.look(self.opened)

    def look(self) -> dict[str, Any] | None:
        """The payload of the event after a look, which Airflow stores at once."""
        look = SharedLook(self.poll())
        payload = asyncio.run(self.state.take(look.newest))
        if payload is not None:
            self.state.emitted(look)
        look.is_settled = True
        return payload

    def range(self) -> tuple[int, int] | None:
        """The versions of the event after a look."""
        found = self.look()
        return None if found is None else (found["after_version"], found["version"])
