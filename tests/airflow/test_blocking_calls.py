"""Looks that hang hold up neither other triggers nor the loop's own threads, and aren't started again."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine.errors import StorageError
from airflow_delta.hooks import bounded_call
from airflow_delta.hooks.bounded_call import BoundedCall
from airflow_delta.hooks.delta import DeltaHook
from airflow_delta.hooks.waits.new_versions import VersionPoll, VersionWatcher
from airflow_delta.triggers import blocking_calls, new_versions, table_poll
from airflow_delta.triggers.blocking_calls import BlockingCalls
from airflow_delta.triggers.new_versions import DeltaTableVersionTrigger
from airflow_delta.triggers.table_version import TableVersionTrigger
from tests.airflow.waits import event_of
from tests.airflow.watched_tables import States, Variables, WatchedTable, Watching, no_pauses

SOON = 0.05
MANY = 40
"""More than Python's own pool of an event loop has threads."""


class Hanging:
    """Functions that hang until a test ends, or lets them go on."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.release = threading.Event()

    def __call__(self, result: Any) -> Any:
        self.calls.append(result)
        assert self.release.wait(60)
        return result


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    made = Hanging()
    yield made
    made.release.set()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocking_calls, "LOOK_SECONDS", SOON)
    monkeypatch.setattr(bounded_call, "SLOT_SECONDS", SOON / 5)


async def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)


async def no_answer(calls: BlockingCalls[Any], function: Callable[[], Any]) -> None:
    with pytest.raises(TimeoutError, match="no answer within"):
        await calls(function)


def test_a_call_that_hangs_is_not_started_again(hanging: Hanging) -> None:
    async def wait() -> None:
        calls: BlockingCalls[int] = BlockingCalls()
        for number in range(3):
            await no_answer(calls, partial(hanging, number))
            assert calls.hangs
        assert hanging.calls == [0]
        hanging.release.set()
        # Also if the result has come between two calls.
        await until(lambda: not calls.hangs)
        assert await calls(partial(hanging, 3)) == 0
        assert await calls(partial(hanging, 4)) == 4

    asyncio.run(wait())


def test_an_error_that_comes_late_is_raised_once(hanging: Hanging) -> None:
    def fail() -> None:
        hanging(None)
        raise StorageError("away")

    async def wait() -> None:
        calls: BlockingCalls[Any] = BlockingCalls()
        await no_answer(calls, fail)
        hanging.release.set()
        with pytest.raises(StorageError, match="away"):
            await calls(partial(hanging, 1))
        assert await calls(partial(hanging, 2)) == 2

    asyncio.run(wait())


def test_a_call_that_counts_as_lost_is_replaced(
    hanging: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_call, "_LOST_SECONDS", 0.0)

    async def wait() -> None:
        calls: BlockingCalls[int] = BlockingCalls()
        await no_answer(calls, partial(hanging, 1))
        assert not calls.hangs
        assert await calls(lambda: 2) == 2

    asyncio.run(wait())


def test_a_result_that_comes_late_is_not_kept_where_it_would_be_out_of_date(
    hanging: Hanging,
) -> None:
    async def wait() -> None:
        numbers = iter((1, 2))
        call = BoundedCall(lambda: hanging(next(numbers)))
        with pytest.raises(TimeoutError):
            await call.wait(SOON)
        hanging.release.set()
        await until(lambda: not call.is_running)
        assert await call.wait(20) == 2

    asyncio.run(wait())


def test_only_some_calls_run_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocking_calls, "LOOK_SECONDS", 20.0)
    monkeypatch.setattr(bounded_call, "SLOT_SECONDS", 20.0)
    monkeypatch.setattr(blocking_calls, "_MOST_AT_ONCE", 3)
    running, most, lock = 0, 0, threading.Lock()

    def look() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.001)
        with lock:
            running -= 1

    async def wait() -> None:
        await asyncio.gather(*(BlockingCalls[None]()(look) for _ in range(MANY)))

    # The second event loop has slots of its own.
    for _ in range(2):
        asyncio.run(wait())
    assert most == 3


def test_calls_that_hang_leave_places_and_threads_to_others(
    hanging: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocking_calls, "_MOST_AT_ONCE", 4)

    async def wait() -> None:
        hung = [BlockingCalls[int]() for _ in range(MANY)]
        waiting = [no_answer(calls, partial(hanging, n)) for n, calls in enumerate(hung)]
        await asyncio.gather(*waiting)
        assert len(hanging.calls) == MANY
        monkeypatch.setattr(blocking_calls, "LOOK_SECONDS", 20.0)
        assert await BlockingCalls[str]()(lambda: "healthy") == "healthy"
        # Airflow itself uses the threads of the loop.
        assert await asyncio.wait_for(asyncio.to_thread(lambda: "airflow"), 20) == "airflow"

    asyncio.run(wait())


def test_a_cancelled_caller_gives_its_place_back_and_stops_no_other(hanging: Hanging) -> None:
    async def wait() -> None:
        calls: BlockingCalls[int] = BlockingCalls()
        slot = asyncio.Semaphore(1)
        call = BoundedCall(partial(hanging, 1))
        first = asyncio.ensure_future(call.wait(20, slot))
        await until(lambda: bool(hanging.calls))
        second = asyncio.ensure_future(call.wait(20, slot))
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert not slot.locked()
        hanging.release.set()
        assert await second == 1
        assert await calls(partial(hanging, 2)) == 2

    asyncio.run(wait())


def test_a_cancelled_caller_ends_also_when_its_call_just_did(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(blocking_calls, "LOOK_SECONDS", 20.0)

    async def wait() -> None:
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()
        monkeypatch.setattr(asyncio, "wrap_future", lambda _: ended)
        task = asyncio.ensure_future(BlockingCalls[None]()(lambda: None))
        monkeypatch.setattr(bounded_call.Future, "done", lambda _: ended.done())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        ended.set_result(None)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(wait())


# In triggers


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WatchedTable:
    Variables().install(monkeypatch)
    no_pauses(monkeypatch)
    monkeypatch.setattr(new_versions.random, "uniform", lambda least, most: 0.0)
    return WatchedTable.created(tmp_path / "sales")


def test_a_poll_that_hangs_is_not_used_again(
    table: WatchedTable, hanging: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = VersionPoll.look
    polls: list[VersionPoll] = []

    def hang_once(poll: VersionPoll, opened: Any) -> Any:
        polls.append(poll)
        if len(polls) == 2:
            hanging(poll)
        return look(poll, opened)

    monkeypatch.setattr(blocking_calls, "LOOK_SECONDS", 20.0)
    monkeypatch.setattr(VersionPoll, "look", hang_once)
    _, kwargs = DeltaTableVersionTrigger(table_uri=table.uri).serialize()

    async def wait() -> None:
        stream = DeltaTableVersionTrigger.open_shared_stream(kwargs)
        assert (await anext(stream)).version == 0
        monkeypatch.setattr(blocking_calls, "LOOK_SECONDS", SOON)
        table.commit()
        following = asyncio.ensure_future(anext(stream))
        await until(lambda: bool(hanging.calls))
        await asyncio.sleep(4 * SOON)
        assert len(polls) == 2
        hanging.release.set()
        assert (await following).version == 1
        assert (await anext(stream)).version == 1

    asyncio.run(wait())
    assert polls[0] is polls[1]
    assert polls[2] is not polls[1]


def test_tables_that_hang_stop_no_watcher_of_another(
    table: WatchedTable, hanging: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While opening a table, as well as while looking at one."""
    open_table, look = DeltaHook.table, VersionPoll.look

    def slow_open(hook: DeltaHook, uri: str) -> Any:
        return hanging(uri) if "opening" in uri else open_table(hook, uri)

    def slow_look(poll: VersionPoll, opened: Any) -> Any:
        return hanging(opened.uri) if "looking" in opened.uri else look(poll, opened)

    monkeypatch.setattr(DeltaHook, "table", slow_open)
    monkeypatch.setattr(VersionPoll, "look", slow_look)

    async def watch() -> None:
        def events(uri: str) -> Any:
            trigger = DeltaTableVersionTrigger(table_uri=uri)
            trigger.asset_state_store = states = States()  # type: ignore[assignment]
            return asyncio.ensure_future(anext(trigger.run())), states  # type: ignore[arg-type]

        hung = [
            events(f"memory://lake/{what}-{n}")[0]
            for n in range(MANY)
            for what in ("opening", "looking")
        ]
        await until(lambda: len(hanging.calls) == len(hung))
        await asyncio.sleep(4 * SOON)
        assert len(hanging.calls) == len(hung), "none is started again"
        monkeypatch.setattr(blocking_calls, "LOOK_SECONDS", 20.0)
        event, states = events(table.uri)
        await until(lambda: bool(states._by_name["sales"].sets))
        table.commit()
        assert (await asyncio.wait_for(event, 20)).payload["version"] == 1
        for task in hung:
            task.cancel()

    asyncio.run(watch())


@pytest.mark.parametrize("method", ["begin", "examine"])
def test_a_comparison_that_hangs_is_not_started_again(
    table: WatchedTable, hanging: Hanging, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    compare = getattr(VersionWatcher, method)

    def slow(watcher: VersionWatcher, *arguments: Any) -> Any:
        if not hanging.release.is_set():
            hanging(arguments[0].version)
        return compare(watcher, *arguments)

    monkeypatch.setattr(blocking_calls, "LOOK_SECONDS", 20.0)
    watching = Watching(table)
    if method == "examine":
        assert watching.look() is None
        table.commit()
    begin = table.version
    monkeypatch.setattr(VersionWatcher, method, slow)
    monkeypatch.setattr(blocking_calls, "LOOK_SECONDS", SOON)
    for _ in range(3):
        assert watching.look() is None
        table.commit()
    assert hanging.calls == [begin]
    hanging.release.set()
    monkeypatch.setattr(blocking_calls, "LOOK_SECONDS", 20.0)
    # It begins at the version that was the newest at the first check.
    ranges = [(0, 1), (1, begin + 3)] if method == "examine" else [(begin, begin + 3)]
    assert [watching.range() for _ in ranges] == ranges


@pytest.mark.parametrize("silent_fail", [False, True])
def test_a_sensor_whose_check_hangs_times_out(
    table: WatchedTable, hanging: Hanging, monkeypatch: pytest.MonkeyPatch, silent_fail: bool
) -> None:
    monkeypatch.setattr(table_poll, "_LAST_LOOK_SECONDS", SOON)
    monkeypatch.setattr(TableVersionTrigger, "look", lambda trigger, opened: hanging(opened.uri))
    trigger = TableVersionTrigger(
        table_uri=table.uri,
        min_version=9,
        poke_interval=0.01,
        deadline=time.time() + 4 * SOON,
        silent_fail=silent_fail,
    )
    event = event_of(trigger)
    assert event["status"] == "timeout"
    assert "last seen: a check that failed: TimeoutError: no answer within" in event["message"]
    assert hanging.calls == [table.uri]


def test_a_sensor_whose_check_never_ends_fails(
    table: WatchedTable, hanging: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_call, "_LOST_SECONDS", 2 * SOON)
    monkeypatch.setattr(TableVersionTrigger, "look", lambda trigger, opened: hanging(opened.uri))
    event = event_of(TableVersionTrigger(table_uri=table.uri, min_version=9))
    assert (event["status"], event["error"]) == ("error", "TimeoutError")
    assert hanging.calls == [table.uri]
