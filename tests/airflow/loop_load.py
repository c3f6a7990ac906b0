"""``python -m tests.airflow.loop_load``: run triggers in a fresh process, and measure what holds its loop.

As in Airflow's triggerer, the loop itself imports the classes of the triggers and creates them, and
watchers subscribe to shared streams. Each watcher has stored that it has reported version 0.

Standard input has JSON: ``succeeding``, the triggers that emit an event, and ``failing``, those that log an
error, each as a class path and arguments. The last line of the output is a `Report` as JSON.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import logging
import sys
import threading
import time
from asyncio import base_events
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import wraps
from types import SimpleNamespace
from typing import Any

__all__ = ["MOST_SECONDS", "Report"]

MOST_SECONDS = 0.05
"""The longest time for which a callback may hold the loop."""

_TRIGGERER = ("airflow.jobs.triggerer_job_runner", "airflow.sdk.execution_time.task_runner")
"""What a triggerer has imported before it runs triggers."""

_QUIET_SECONDS = 2.5
"""How long the watchers go on after the events: two checks that find nothing."""


@dataclass
class Report:
    """What has happened.

    Attributes:
        events: the payloads, in the order of the triggers, twice: of a cold start, and of a second one.
        slow: the callbacks that took more than `MOST_SECONDS` of processor time, as asyncio names them.
        store_calls: the requests to stores that were made in the thread of the loop, in the second start.
        debug_log: the warnings of asyncio's debug mode. They are about time on the clock, so a busy machine
            causes some.
    """

    events: list[Any] = field(default_factory=list)
    slow: list[str] = field(default_factory=list)
    store_calls: list[str] = field(default_factory=list)
    debug_log: list[str] = field(default_factory=list)


class _Log(logging.Handler):
    """Keeps the texts of a logger."""

    def __init__(self, texts: list[str]) -> None:
        super().__init__()
        self._texts = texts

    def emit(self, record: logging.LogRecord) -> None:
        self._texts.append(record.getMessage())


class _Store:
    """The state of an asset whose watcher has reported version 0."""

    async def aget(self, key: str, default: Any = None) -> Any:
        await asyncio.sleep(0)
        return {"version": 0, "examined": 0, "matched": 0, "table_id": "1", "commit": None}

    async def aset(self, key: str, value: Any) -> None:
        await asyncio.sleep(0)


async def _set_variable(key: str, value: str, description: str) -> None:
    await asyncio.sleep(0)


def _measure_callbacks(slow: list[str]) -> None:
    """Have all callbacks of loops measured."""
    run = asyncio.Handle._run  # type: ignore[attr-defined]

    def measured(handle: Any) -> None:
        begin = time.thread_time()
        run(handle)
        seconds = time.thread_time() - begin
        if seconds > MOST_SECONDS:
            slow.append(f"{seconds:.3f} s: {base_events._format_handle(handle)}")  # type: ignore[attr-defined]

    asyncio.Handle._run = measured  # type: ignore[attr-defined]


def _watch_stores(calls: list[str]) -> None:
    """Note each call of a store in this thread, that of the loop."""
    from airflow_delta.engine.storage.local import LocalStorage
    from airflow_delta.engine.storage.object_store import ObjectStorage

    loop = threading.get_ident()

    def noting(method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def noted(*arguments: Any, **named: Any) -> Any:
            if threading.get_ident() == loop:
                calls.append(f"{method.__qualname__}{arguments[1:]}")
            return method(*arguments, **named)

        return noted

    for storage in (LocalStorage, ObjectStorage):
        for name in (
            "read",
            "read_many",
            "open",
            "list",
            "walk",
            "level",
            "head",
            "create",
            "replace",
        ):
            setattr(storage, name, noting(getattr(storage, name)))


class _Triggers:
    """Triggers as a triggerer runs them."""

    def __init__(self) -> None:
        from airflow.triggers.shared_stream import SharedStreamManager

        self._manager = SharedStreamManager()
        self._streams: list[Any] = []

    async def start(self, path: str, arguments: dict[str, Any]) -> Any:
        """Create a trigger, and return its stream of events."""
        from airflow.sdk.module_loading import import_string
        from airflow.triggers.base import BaseEventTrigger

        trigger_class = import_string(path)
        if path.startswith("airflow_delta.") and "new_versions" not in path:
            sys.modules["airflow_delta.triggers.table_poll"].FIRST_LOOK_SECONDS = 0.0  # type: ignore[attr-defined]
        await asyncio.sleep(0)
        trigger = trigger_class(**arguments)
        await asyncio.sleep(0)
        if isinstance(trigger, BaseEventTrigger):
            sys.modules["airflow_delta.triggers.watch_state"].set_variable = _set_variable  # type: ignore[attr-defined]
            trigger.asset_state_store = SimpleNamespace(_by_name={"sales": _Store()}, _by_uri={})  # type: ignore[assignment]
            key = trigger.shared_stream_key()
            assert key is not None
            shared = self._manager.subscribe(
                trigger_id=len(self._streams), trigger=trigger, key=key
            )
            stream = trigger.filter_shared_stream(shared)
        else:
            stream = trigger.run()
        self._streams.append(stream)
        return stream

    async def first_event(self, path: str, arguments: dict[str, Any]) -> Any:
        """The payload of the first event of a trigger."""
        stream = await self.start(path, arguments)
        return (await asyncio.wait_for(anext(stream), 120)).payload

    async def stop(self) -> None:
        """End all of them."""
        for stream in self._streams:
            await stream.aclose()
        await self._manager.stop_all()


async def _run(given: dict[str, Any], report: Report) -> None:
    asyncio.get_running_loop().slow_callback_duration = MOST_SECONDS
    for is_cold in (True, False):
        if not is_cold:
            _watch_stores(report.store_calls)
        triggers = _Triggers()
        failing = [
            asyncio.ensure_future(triggers.first_event(path, arguments))
            for path, arguments in given["failing"]
        ]
        report.events += await asyncio.gather(
            *(triggers.first_event(path, arguments) for path, arguments in given["succeeding"])
        )
        await asyncio.sleep(_QUIET_SECONDS)
        for task in failing:
            task.cancel()
        await asyncio.gather(*failing, return_exceptions=True)
        await triggers.stop()


def main() -> None:
    """Run the triggers, and print the report."""
    for module in _TRIGGERER:
        importlib.import_module(module)
    report = Report()
    logging.getLogger("asyncio").addHandler(_Log(report.debug_log))
    _measure_callbacks(report.slow)
    # Otherwise a callback may have to look for garbage among all that Airflow has made.
    gc.collect()
    gc.freeze()
    asyncio.run(_run(json.load(sys.stdin), report), debug=True)
    print(json.dumps(asdict(report)))


if __name__ == "__main__":
    main()
