"""The trigger of watchers: events for every version, over crashes, errors and several watchers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import Asset, AssetWatcher
from airflow.serialization.encoders import encode_trigger
from airflow.triggers.base import BaseEventTrigger
from airflow.triggers.shared_stream import SharedStreamManager

from airflow_delta.assets import delta_asset
from airflow_delta.hooks.delta import DeltaHook
from airflow_delta.hooks.failures import ArgumentError
from airflow_delta.triggers import new_versions, shared_pace, watch_state
from airflow_delta.triggers.new_versions import DeltaTableVersionTrigger
from tests.airflow.watched_tables import States, Variables, WatchedTable, fired


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the triggers look often."""
    monkeypatch.setattr(shared_pace, "pause_seconds", lambda interval, failures: 0.01)
    monkeypatch.setattr(new_versions.random, "uniform", lambda least, most: 0.0)


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> Variables:
    return Variables().install(monkeypatch)


@pytest.fixture
def table(tmp_path: Path) -> WatchedTable:
    return WatchedTable.created(tmp_path / "sales")


def watcher(table: WatchedTable, states: States | None = None, **arguments: Any) -> Any:
    """The trigger as the triggerer has it: created again from what is stored."""
    given = DeltaTableVersionTrigger(table_uri=table.uri, **arguments)
    path, stored = given.serialize()
    assert path == f"{DeltaTableVersionTrigger.__module__}.{DeltaTableVersionTrigger.__name__}"
    made = DeltaTableVersionTrigger(**stored)
    made.asset_state_store = states or States()  # type: ignore[assignment]
    return made


async def next_range(events: AsyncIterator[Any]) -> tuple[int, int]:
    payload = (await asyncio.wait_for(anext(events), 20)).payload
    return payload["after_version"], payload["version"]


async def started(events: AsyncIterator[Any], states: States) -> asyncio.Task[tuple[int, int]]:
    """Have a watcher begin, and wait for its next event."""
    task = asyncio.ensure_future(next_range(events))
    for _ in range(2000):
        if any(store.sets for store in states._by_name.values()):
            return task
        await asyncio.sleep(0.01)
    raise AssertionError("the watcher hasn't begun")


def test_each_new_version_is_in_one_event(table: WatchedTable) -> None:
    async def watch() -> None:
        states = States()
        events = fired(watcher(table, states))
        first = await started(events, states)
        table.commit()
        assert await first == (0, 1)
        second = asyncio.ensure_future(next_range(events))
        table.commit()
        assert await second == (1, 2)
        await events.aclose()

    asyncio.run(watch())


def test_a_crash_before_the_mark_repeats_versions_and_loses_none(table: WatchedTable) -> None:
    async def watch() -> None:
        states = States()
        events = fired(watcher(table, states))
        first = await started(events, states)
        table.commit()
        assert await first == (0, 1)
        # Killed: the mark of the event isn't stored.
        await events.aclose()
        table.commit()
        events = fired(watcher(table, states))
        assert await next_range(events) == (0, 2)
        second = asyncio.ensure_future(next_range(events))
        await asyncio.sleep(0.2)
        await cancel(second)
        # Killed after the mark was stored.
        table.commit()
        assert await next_range(fired(watcher(table, states))) == (2, 3)

    asyncio.run(watch())


async def cancel(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_a_mark_is_not_stored_before_airflow_has_the_event(table: WatchedTable) -> None:
    async def watch() -> None:
        states = States()
        events = fired(watcher(table, states), are_stored=False)
        first = await started(events, states)
        sets = states._by_name["sales"].sets
        for version in (1, 2):
            table.commit()
            assert await first == (version - 1, version)
            first = asyncio.ensure_future(next_range(events))
        await asyncio.sleep(0.1)
        assert states._by_name["sales"].sets == sets
        await cancel(first)
        assert await next_range(fired(watcher(table, states))) == (0, 2)

    asyncio.run(watch())


def test_a_watcher_that_airflow_hardly_answers_lets_the_looks_of_others_go_on(
    table: WatchedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow would stop a watcher that isn't done with a look after its time."""
    monkeypatch.setattr(watch_state, "_TAKE_SECONDS", 0.05)
    answers = asyncio.Event()

    async def watch() -> None:
        states = States()
        store = states._by_name["sales"]
        aget, asked = store.aget, []

        async def slow(key: str, default: Any = None) -> Any:
            asked.append(key)
            await answers.wait()
            return await aget(key, default)

        monkeypatch.setattr(store, "aget", slow)
        manager = SharedStreamManager(ack_timeout=4.0)
        trigger = watcher(table, states)
        looks = manager.subscribe(trigger_id=1, trigger=trigger, key=trigger.shared_stream_key())
        first = asyncio.ensure_future(next_range(trigger.filter_shared_stream(looks)))
        await asyncio.sleep(5.0)
        assert not first.done()
        assert len(asked) == 1
        answers.set()
        for _ in range(2000):
            if store.sets:
                break
            await asyncio.sleep(0.01)
        table.commit()
        assert await first == (0, 1)
        await manager.stop_all()

    asyncio.run(watch())


def test_the_baseline_is_stored_so_that_a_table_that_appears_in_a_crash_is_reported(
    tmp_path: Path,
) -> None:
    table = WatchedTable(tmp_path / "later")

    async def watch() -> None:
        states = States()
        waiting = await started(fired(watcher(table, states)), states)
        await cancel(waiting)
        table.commit("CREATE TABLE")
        assert await next_range(fired(watcher(table, states))) == (-1, 0)

    asyncio.run(watch())


def test_a_watcher_with_other_filters_begins_where_the_others_have_been(
    table: WatchedTable,
) -> None:
    async def watch() -> None:
        states = States()
        waiting = await started(fired(watcher(table, states)), states)
        await cancel(waiting)
        table.commit("MERGE")
        other = watcher(table, states, operations=["merge"], min_new_versions=1)
        assert await next_range(fired(other)) == (0, 1)

    asyncio.run(watch())


def test_assets_that_share_a_trigger_share_its_mark(table: WatchedTable) -> None:
    async def watch() -> None:
        states = States("sales", "other")
        events = fired(watcher(table, states))
        first = await started(events, states)
        table.commit()
        assert await first == (0, 1)
        await events.aclose()
        # One of them was removed, and is added again: it has no mark.
        states._by_name["other"].values.clear()
        assert await next_range(fired(watcher(table, states))) == (0, 1)

    asyncio.run(watch())


# Airflow deletes the state of an asset that no DAG uses any more.


async def removed_after(version: int, table: WatchedTable, variables: Variables) -> None:
    """Have a watcher report a version, and store that it has; then remove its asset."""
    states = States()
    events = fired(watcher(table, states))
    first = await started(events, states)
    while table.version < version:
        table.commit()
    assert await first == (0, version)
    following = asyncio.ensure_future(next_range(events))
    deadline = time.monotonic() + 20
    while f'"version": {version}' not in "".join(variables.values.values()):
        assert time.monotonic() < deadline, "the mark hasn't been stored"
        await asyncio.sleep(0.01)
    await cancel(following)


def test_a_watcher_goes_on_where_it_was_when_its_asset_was_removed(
    table: WatchedTable, variables: Variables
) -> None:
    async def watch() -> None:
        await removed_after(1, table, variables)
        table.commit()
        table.commit()
        states = States()
        events = fired(watcher(table, states))
        assert await next_range(events) == (1, 3)
        await events.aclose()
        # So it is with other filters.
        table.commit("MERGE")
        other = watcher(table, operations=["MERGE"], min_new_versions=1)
        assert await next_range(fired(other)) == (1, 4)

    asyncio.run(watch())
    (description,) = set(variables.descriptions.values())
    assert description == f"What a watcher of the asset 'sales' has reported of file://{table.uri}"


def test_another_asset_or_table_begins_anew(
    table: WatchedTable, variables: Variables, tmp_path: Path
) -> None:
    other_table = WatchedTable(tmp_path / "other")
    other_table.commit("CREATE TABLE")

    async def watch() -> None:
        await removed_after(1, table, variables)
        for watched, asset, begin in ((table, "other", 1), (other_table, "sales", 0)):
            states = States(asset)
            first = await started(fired(watcher(watched, states)), states)
            watched.commit()
            assert await first == (begin, begin + 1)

    asyncio.run(watch())


def test_a_watcher_does_not_begin_anew_while_airflow_cannot_say_where_it_was(
    table: WatchedTable, variables: Variables, caplog: pytest.LogCaptureFixture
) -> None:
    async def watch() -> None:
        await removed_after(1, table, variables)
        variables.failures += [RuntimeError("can't read the Variable")] * 2
        table.commit()
        assert await next_range(fired(watcher(table))) == (1, 2)

    with caplog.at_level("INFO", logger="airflow_delta.triggers"):
        asyncio.run(watch())
    assert "RuntimeError: can't read the Variable" in caplog.text


@pytest.mark.parametrize("text", ["17", "seventeen", '{"version": 17}'])
def test_a_variable_that_somebody_has_changed_is_named(
    table: WatchedTable, variables: Variables, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    async def watch() -> None:
        await removed_after(1, table, variables)
        (key,) = variables.values
        variables.values[key] = text
        states = States()
        first = asyncio.ensure_future(next_range(fired(watcher(table, states))))
        deadline = time.monotonic() + 20
        while f"the Variable {key} isn't what a watcher has stored" not in caplog.text:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
        assert states._by_name["sales"].sets == 0
        # As the message says.
        del variables.values[key]
        while not states._by_name["sales"].sets:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
        table.commit()
        assert await first == (1, 2)

    with caplog.at_level("INFO", logger="airflow_delta.triggers"):
        asyncio.run(watch())


def test_the_variable_stays_if_the_state_of_the_asset_cannot_be_stored(
    table: WatchedTable, variables: Variables
) -> None:
    """The asset is being removed, so nobody may have got the event."""

    async def watch() -> None:
        states = States()
        events = fired(watcher(table, states))
        first = await started(events, states)

        async def fail(key: str, value: Any) -> None:
            raise OSError("Asset with name='sales' not found")

        while not variables.values:
            await asyncio.sleep(0.01)
        states._by_name["sales"].aset = fail  # type: ignore[method-assign]
        table.commit()
        assert await first == (0, 1)
        following = asyncio.ensure_future(next_range(events))
        await asyncio.sleep(0.2)
        await cancel(following)
        assert await next_range(fired(watcher(table))) == (0, 1)

    asyncio.run(watch())


def test_watchers_of_one_table_share_one_poll(
    table: WatchedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    open_table = DeltaHook.table

    def counted(self: DeltaHook, table_uri: str) -> Any:
        opened.append(table_uri)
        return open_table(self, table_uri)

    monkeypatch.setattr(DeltaHook, "table", counted)

    async def watch() -> None:
        manager = SharedStreamManager()
        streams = []
        for number, arguments in enumerate(({}, {"operations": ["WRITE"]})):
            states = States(f"asset {number}")
            trigger = watcher(table, states, **arguments)
            stream = manager.subscribe(
                trigger_id=number, trigger=trigger, key=trigger.shared_stream_key()
            )
            streams.append(await started(trigger.filter_shared_stream(stream), states))
        table.commit("WRITE")
        assert await asyncio.gather(*streams) == [(0, 1), (0, 1)]
        await manager.stop_all()

    asyncio.run(watch())
    assert opened == [table.uri]


def test_only_watchers_with_the_same_credentials_share_a_poll() -> None:
    def key(uri: str, **arguments: Any) -> Any:
        return DeltaTableVersionTrigger(table_uri=uri, **arguments).shared_stream_key()

    assert key("s3://lake/t") == key("s3a://lake/t/", min_new_versions=2)
    assert key("s3://one@lake/t") == key("s3://lake/t", delta_conn_id="one")
    assert key("s3://lake/t") != key("s3://lake/t", delta_conn_id="one")
    assert key("s3://lake/t") != key("s3://lake/u")


def test_the_most_eager_watcher_sets_the_pace_of_a_poll(
    table: WatchedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    def pause(interval: float, failures: int) -> float:
        pauses.append(interval)
        return interval / 1000

    monkeypatch.setattr(shared_pace, "pause_seconds", pause)

    async def watch() -> None:
        manager = SharedStreamManager()
        streams = []
        for number, interval in enumerate((100_000.0, 50.0)):
            states = States(f"asset {number}")
            trigger = watcher(table, states, poll_interval=interval)
            stream = manager.subscribe(
                trigger_id=number, trigger=trigger, key=trigger.shared_stream_key()
            )
            # The first would sleep for 100 seconds; the second wakes it.
            streams.append(await started(trigger.filter_shared_stream(stream), states))
        table.commit()
        assert await streams[1] == (0, 1)
        # Not yet due.
        assert not streams[0].done()
        await cancel(streams[0])
        await manager.stop_all()

    asyncio.run(watch())
    assert set(pauses) == {100_000.0, 50.0}
    assert shared_pace._PACES == {}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"delta_conn_id": "missing"}, "the connection 'missing'"),
        ({"table_uri": "nothing://lake/t"}, "nothing"),
    ],
)
def test_a_mistake_is_in_the_log_at_once(
    arguments: dict[str, Any], reason: str, table: WatchedTable, caplog: pytest.LogCaptureFixture
) -> None:
    async def watch() -> None:
        trigger = DeltaTableVersionTrigger(**{"table_uri": table.uri, **arguments})
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(anext(trigger.run()), 1.5)

    with caplog.at_level("INFO", logger="airflow_delta.triggers"):
        asyncio.run(watch())
    (found,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert reason in found.getMessage()


def test_errors_are_logged_and_never_become_events(
    table: WatchedTable, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    open_table = DeltaHook.table
    failures = iter([RuntimeError("no such connection"), TimeoutError("slow")])

    def fail(self: DeltaHook, table_uri: str) -> Any:
        if (error := next(failures, None)) is not None:
            raise error
        return open_table(self, table_uri)

    monkeypatch.setattr(DeltaHook, "table", fail)

    async def watch() -> None:
        states = States()
        first = await started(fired(watcher(table, states)), states)
        # A commit that can't be read, until somebody puts the right one in its place.
        path = table.root / "_delta_log" / f"{1:020}.json"
        path.write_bytes(b"")
        await asyncio.sleep(0.3)
        assert not first.done()
        path.unlink()
        table.commit()
        assert await first == (0, 1)

    with caplog.at_level("INFO", logger="airflow_delta.triggers"):
        asyncio.run(watch())
    text = caplog.text
    assert "RuntimeError: no such connection" in text
    assert "TimeoutError: slow" in text
    assert "zero bytes" in text
    assert f"{table.uri}: waiting for new versions, last seen: version 1" in text


def test_a_state_store_that_fails_loses_nothing(table: WatchedTable) -> None:
    async def watch() -> None:
        states = States()
        store = states._by_name["sales"]
        first = await started(fired(watcher(table, states)), states)
        aset, failures = store.aset, iter([OSError("the database is gone")])

        async def fail(key: str, value: Any) -> None:
            for error in failures:
                raise error
            await aset(key, value)

        store.aset = fail  # type: ignore[method-assign]
        table.commit()
        assert await first == (0, 1)

    asyncio.run(watch())


def test_the_pause_grows_with_failures_and_varies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    pause = shared_pace.pause_seconds
    assert {54 <= pause(60, 0) <= 66 for _ in range(50)} == {True}
    for failures, most in ((1, 120), (2, 240), (9, 900), (10_000, 900)):
        found = [pause(60, failures) for _ in range(50)]
        assert most / 2 <= min(found) < max(found) <= most
    assert pause(3600, 5) <= 3600


def test_airflow_takes_the_trigger_for_a_watcher() -> None:
    trigger = DeltaTableVersionTrigger(table_uri="s3://lake/t", operations=["write", "MERGE"])
    assert trigger.operations == ["MERGE", "WRITE"]
    asset = delta_asset("s3://lake/t", watchers=[AssetWatcher("new", trigger=trigger)])
    assert isinstance(asset, Asset)
    stored = encode_trigger(trigger)
    again = DeltaTableVersionTrigger(**trigger.serialize()[1])
    assert encode_trigger(again) == stored
    path, kwargs = trigger.serialize()
    assert BaseEventTrigger.hash(path, kwargs) == BaseEventTrigger.hash(*again.serialize())


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"table_uri": "sales"}, "table_uri: expected an absolute path"),
        ({"table_uri": "s3://key:secret@lake/t"}, "has a password"),
        ({"table_uri": "s3://lake/t?sig=secret"}, "the location s3://lake/t has a query"),
        ({"poll_interval": 0}, "poll_interval: expected a number of seconds"),
        ({"poll_interval": "60"}, "poll_interval: expected a number of seconds"),
        ({"poll_interval": float("nan")}, "poll_interval: expected a number of seconds"),
        ({"operations": "WRITE"}, "operations: expected a list of names"),
        ({"operations": []}, "operations: expected a list of names"),
        (
            {"table_uri": "s3://lake prod:secret@bucket/t"},
            "the part in front of the bucket isn't a connection id",
        ),
        ({"min_new_versions": 0}, "min_new_versions: expected a number of versions"),
        ({"min_new_versions": True}, "min_new_versions: expected a number of versions"),
        ({"data_change_only": "no"}, "data_change_only: expected True or False"),
    ],
)
def test_wrong_arguments_are_errors_of_the_dag(arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(ArgumentError, match=reason) as refused:
        DeltaTableVersionTrigger(**{"table_uri": "s3://lake/t", **arguments})
    assert "secret" not in str(refused.value)
