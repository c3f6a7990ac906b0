"""The sensor and its trigger: waiting for a version."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.sensors.table_version import TableVersionSensor
from airflow_delta.triggers.table_version import TableVersionTrigger
from airflow_delta.version_compat import AirflowException, TriggerEvent

Copy = Callable[[str], Path]


def sensor(table: Path | str, **arguments: Any) -> TableVersionSensor:
    return TableVersionSensor(task_id="wait", table_uri=str(table), **arguments)


def rebuilt(trigger: TableVersionTrigger) -> TableVersionTrigger:
    """The trigger as the triggerer makes it, from what Airflow stored."""
    from airflow.sdk.module_loading import import_string

    path, arguments = trigger.serialize()
    made: TableVersionTrigger = import_string(path)(**json.loads(json.dumps(arguments)))
    return made


def events(trigger: TableVersionTrigger) -> list[Any]:
    async def collect() -> list[TriggerEvent]:
        return [event async for event in trigger.run()]

    return [event.payload for event in asyncio.run(collect())]


@pytest.mark.parametrize(
    ("arguments", "reached"),
    [
        ({}, True),
        ({"min_version": 3}, True),
        ({"min_version": "3"}, True),
        ({"min_version": 4}, False),
        ({"after_version": -1}, True),
        ({"after_version": "2"}, True),
        ({"after_version": 3}, False),
        ({"min_version": "None", "after_version": ""}, True),
    ],
)
def test_a_poke_compares_with_the_newest_version(
    golden_case: Copy, arguments: dict[str, Any], reached: bool
) -> None:
    table = golden_case("snapshot-data3")
    found = sensor(table, **arguments).poke({})
    assert found.is_done is reached
    assert found.xcom_value == {"table_uri": str(table), "version": 3}


def test_a_table_that_does_not_exist_yet_is_waited_for(tmp_path: Path) -> None:
    assert not sensor(tmp_path / "later").poke({}).is_done


def test_a_location_that_cannot_be_read_is_an_error_and_not_waited_for() -> None:
    with pytest.raises(InvalidArgumentError, match="unknown scheme 'gopher'"):
        sensor("gopher://lake/t").poke({})


def test_the_wait_in_a_worker_slot_returns_what_was_found(golden_case: Copy) -> None:
    table = golden_case("snapshot-data3")
    assert sensor(table, min_version=2, deferrable=False).execute({}) == {
        "table_uri": str(table),
        "version": 3,
    }


def test_both_bounds_together_are_refused(golden_case: Copy) -> None:
    with pytest.raises(ValueError, match="both min_version=1 and after_version=1 are given"):
        sensor(golden_case("snapshot-data3"), min_version=1, after_version=1).poke({})


def test_nothing_is_deferred_where_nothing_is_waited_for(golden_case: Copy) -> None:
    found = sensor(golden_case("snapshot-data3"), deferrable=True).execute({})
    assert found["version"] == 3


def test_a_deferred_sensor_hands_its_wait_to_the_trigger(golden_case: Copy) -> None:
    from airflow.sdk.exceptions import TaskDeferred

    table = golden_case("snapshot-data3")
    waiting = sensor(table, after_version="3", deferrable=True, poke_interval=5, timeout=60)
    with pytest.raises(TaskDeferred) as deferred:
        waiting.execute({})
    trigger = deferred.value.trigger
    assert isinstance(trigger, TableVersionTrigger)
    assert (trigger.table_uri, trigger.min_version) == (str(table), 4)
    assert trigger.poke_interval == 5
    assert deferred.value.timeout is not None
    assert deferred.value.timeout.total_seconds() == 60
    assert hasattr(waiting, deferred.value.method_name)


def test_a_trigger_is_rebuilt_from_what_it_serializes() -> None:
    trigger = TableVersionTrigger(
        table_uri="s3://lake/t", min_version=7, delta_conn_id="lake", poke_interval=2.5
    )
    assert rebuilt(trigger).serialize() == trigger.serialize()
    assert rebuilt(trigger).__dict__.keys() == trigger.__dict__.keys()


def test_a_trigger_fires_once_when_the_version_is_there(golden_case: Copy) -> None:
    table = golden_case("snapshot-data3")
    trigger = rebuilt(TableVersionTrigger(table_uri=str(table), min_version=2))
    assert events(trigger) == [{"status": "success", "table_uri": str(table), "version": 3}]


def test_a_trigger_polls_until_the_version_arrives(
    golden_copy: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = golden_copy("snapshot-data3")
    newest = table / "_delta_log" / f"{3:020}.json"
    hidden = newest.rename(table / "version-3")
    waits: list[float] = []

    async def instead_of_sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            hidden.rename(newest)

    monkeypatch.setattr(asyncio, "sleep", instead_of_sleep)
    trigger = TableVersionTrigger(table_uri=str(table), min_version=3, poke_interval=9)
    assert events(trigger) == [{"status": "success", "table_uri": str(table), "version": 3}]
    assert waits == [9, 9, 9]


def test_a_trigger_waits_for_a_table_that_does_not_exist_yet(
    golden_copy: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = golden_copy("snapshot-data3")
    hidden = table.rename(table.with_name("elsewhere"))

    async def instead_of_sleep(seconds: float) -> None:
        hidden.rename(table)

    monkeypatch.setattr(asyncio, "sleep", instead_of_sleep)
    trigger = TableVersionTrigger(table_uri=str(table), min_version=0)
    assert events(trigger)[0]["status"] == "success"


def test_looking_at_the_log_does_not_block_the_event_loop(
    golden_case: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    from airflow_delta.hooks.delta import DeltaHook

    threads: list[int] = []
    look = DeltaHook.latest_version

    def watched(table: Any, known: int | None = None) -> int | None:
        threads.append(threading.get_ident())
        return look(table, known)

    monkeypatch.setattr(DeltaHook, "latest_version", staticmethod(watched))
    events(TableVersionTrigger(table_uri=str(golden_case("snapshot-data3")), min_version=0))
    assert threads
    assert threading.get_ident() not in threads


def test_an_error_in_the_trigger_becomes_an_error_of_the_task() -> None:
    (event,) = events(TableVersionTrigger(table_uri="gopher://lake/t", min_version=9))
    assert event["status"] == "error"
    with pytest.raises(AirflowException, match=r"InvalidArgumentError.*scheme 'gopher'"):
        sensor("gopher://lake/t").execute_complete({}, event)


def test_a_missing_connection_in_the_trigger_becomes_an_error_of_the_task() -> None:
    (event,) = events(
        TableVersionTrigger(table_uri="/data/t", min_version=0, delta_conn_id="not_there")
    )
    assert event["status"] == "error"
    assert "'not_there' (delta_conn_id) isn't defined" in event["message"]


def test_a_resumed_sensor_returns_what_the_trigger_found() -> None:
    event = {"status": "success", "table_uri": "s3://lake/t", "version": 12}
    assert sensor("s3://lake/t").execute_complete({}, event) == {
        "table_uri": "s3://lake/t",
        "version": 12,
    }


def test_a_resumed_sensor_without_an_event_fails() -> None:
    with pytest.raises(AirflowException, match="s3://lake/t: the trigger ended without an event"):
        sensor("s3://lake/t").execute_complete({}, None)
