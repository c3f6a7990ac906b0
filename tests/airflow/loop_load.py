"""``python -m tests.airflow.loop_load``: run triggers in a fresh process, and measure what holds its loop.

As in Airflow's triggerer, the loop itself imports the classes of the triggers and creates them, and
watchers subscribe to shared streams. Each watcher has stored that it has reported version 0.

Standard input has JSON: ``succeeding``, the triggers that emit an event, and ``failing``, those that log an
error, each as a class path and arguments. The last line of the output is a `Report` as JSON.
"""

from __future__ import annotations

import asyncio
import builtins
import gc
import importlib
import importlib.util
import json
import logging
import os
import sys
import threading
import time
from asyncio import base_events
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import wraps
from pathlib import Path
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
        slow: the callbacks that took more than `MOST_SECONDS` of processor time: the kind of each, and how
            asyncio describes it.
        waiting: the callbacks that waited for more than `MOST_SECONDS`, in the same form: for a socket, a
            file, a lock or another thread, and not for a processor.
        late_imports: the import statements of this package in the thread of the loop, in a cold start, for
            modules that neither the triggerer nor the classes of the triggers have imported. Such a
            statement holds the loop only if no other thread has imported the module before. It counts in
            any case, so that the order of the threads makes no difference.
        store_calls: the requests to stores that were made in the thread of the loop, in the second start.
        debug_log: the warnings of asyncio's debug mode about slow callbacks. They are about time on the
            clock: processor time, waits, and the time without a processor on a busy machine.
    """

    events: list[Any] = field(default_factory=list)
    slow: list[tuple[str, str]] = field(default_factory=list)
    waiting: list[tuple[str, str]] = field(default_factory=list)
    late_imports: list[str] = field(default_factory=list)
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


class _Delays:
    """The time for which this thread, that of the loop, was ready to run and had no processor.

    Only Linux counts it. Elsewhere it is part of the waits.
    """

    def __init__(self) -> None:
        file = Path("/proc/thread-self/schedstat")
        self._file = os.open(file, os.O_RDONLY) if file.exists() else None

    def seconds(self) -> float:
        """The time so far."""
        if self._file is None:
            return 0.0
        _, delay, _ = os.pread(self._file, 100, 0).split()
        return int(delay) / 1e9


def _measure_callbacks(report: Report) -> None:
    """Have all callbacks of loops measured."""
    run = asyncio.Handle._run  # type: ignore[attr-defined]
    delays = _Delays()

    def measured(handle: Any) -> None:
        begin = time.monotonic(), time.thread_time(), delays.seconds()
        run(handle)
        on_clock, seconds, delay = (
            end - start
            for end, start in zip(
                (time.monotonic(), time.thread_time(), delays.seconds()), begin, strict=True
            )
        )
        for found, measure in (
            (report.slow, seconds),
            (report.waiting, on_clock - seconds - delay),
        ):
            if measure > MOST_SECONDS:
                described = base_events._format_handle(handle)  # type: ignore[attr-defined]
                found.append((_kind(handle._callback), f"{measure:.3f} s: {described}"))

    asyncio.Handle._run = measured  # type: ignore[attr-defined]


def _kind(callback: Any) -> str:
    """A name that is the same in each process: of the function, for a step of a task of its coroutine."""
    task = getattr(callback, "__self__", None)
    function = task.get_coro() if isinstance(task, asyncio.Task) else callback
    # The step of an asynchronous generator has no name.
    return str(getattr(function, "__qualname__", type(function).__qualname__))


class _LateImports:
    """Notes the import statements in the thread of the loop, except those of the classes of triggers."""

    def __init__(self, found: list[str]) -> None:
        self._found = found
        self._loop = threading.get_ident()
        self._known = {*sys.modules}
        self._in_class = False
        self._import = builtins.__import__
        builtins.__import__ = self._note  # type: ignore[assignment]

    @contextmanager
    def of_class(self) -> Iterator[None]:
        """Import the class of a trigger in the block, with all that its module imports."""
        before, self._in_class = {*sys.modules}, True
        try:
            yield
        finally:
            self._in_class = False
            self._known |= {*sys.modules} - before

    def stop(self) -> None:
        """Note no more."""
        builtins.__import__ = self._import

    def _note(
        self,
        name: str,
        globals: Any = None,  # noqa: A002 - Python's names
        locals: Any = None,  # noqa: A002
        fromlist: Any = (),
        level: int = 0,
    ) -> Any:
        imported = self._import(name, globals, locals, fromlist, level)
        importer = str((globals or {}).get("__name__"))
        is_late = threading.get_ident() == self._loop and not self._in_class
        # What Airflow itself imports, such as to look up a connection, it imports for every trigger.
        if is_late and importer.startswith("airflow_delta."):
            module = importlib.util.resolve_name("." * level + name, (globals or {})["__package__"])
            # What is imported from a package may be a module.
            modules = {module, *(f"{module}.{part}" for part in fromlist or ())}
            late = sorted(modules & {*sys.modules} - self._known)
            self._found += [f"{module} in {importer}" for module in late]
        return imported


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

    def __init__(self, imports: _LateImports) -> None:
        from airflow.triggers.shared_stream import SharedStreamManager

        self._imports = imports
        self._manager = SharedStreamManager()
        self._streams: list[Any] = []

    async def start(self, path: str, arguments: dict[str, Any]) -> Any:
        """Create a trigger, and return its stream of events."""
        from airflow.sdk.module_loading import import_string
        from airflow.triggers.base import BaseEventTrigger

        with self._imports.of_class():
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
    imports = _LateImports(report.late_imports)
    for is_cold in (True, False):
        if not is_cold:
            imports.stop()
            _watch_stores(report.store_calls)
        triggers = _Triggers(imports)
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
    _measure_callbacks(report)
    # Otherwise a callback may have to look for garbage among all that Airflow has made.
    gc.collect()
    gc.freeze()
    asyncio.run(_run(json.load(sys.stdin), report), debug=True)
    print(json.dumps(asdict(report)))


if __name__ == "__main__":
    main()
