"""The sensor and its trigger: waiting for a version."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import DeltaError, InvalidArgumentError
from airflow_delta.engine.storage.local import LocalStorage
from airflow_delta.hooks.delta import DeltaHook
from airflow_delta.hooks.failures import TableFailure
from airflow_delta.hooks.waits.version import VersionWatch
from airflow_delta.sensors.table_version import TableVersionSensor
from airflow_delta.triggers.table_version import TableVersionTrigger
from airflow_delta.version_compat import (
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
    AirflowTaskTimeout,
    TriggerEvent,
)
from tests.airflow.failures import fails_for_good
from tests.airflow.maintenance import checkpoint_only
from tests.log_builder import add, write_table


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
        ({"min_version": None, "after_version": None}, True),
    ],
)
def test_a_poke_compares_with_the_newest_version(
    sales: Path, arguments: dict[str, Any], reached: bool
) -> None:
    found = sensor(sales, **arguments).poke({})
    assert found.is_done is reached
    assert found.xcom_value == {"table_uri": str(sales), "version": 3}


def test_a_table_that_does_not_exist_yet_is_waited_for(tmp_path: Path) -> None:
    assert not sensor(tmp_path / "later").poke({}).is_done


def test_a_location_that_cannot_be_read_is_an_error_and_not_waited_for() -> None:
    with fails_for_good(InvalidArgumentError, match="unknown scheme 'gopher'"):
        sensor("gopher://lake/t").poke({})


def test_the_wait_in_a_worker_slot_returns_what_was_found(sales: Path) -> None:
    assert sensor(sales, min_version=2, deferrable=False).execute({}) == {
        "table_uri": str(sales),
        "version": 3,
    }


def test_the_wait_in_a_worker_slot_lists_the_log_once(
    sales_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = sales_copy / "_delta_log" / f"{3:020}.json"
    hidden = newest.rename(sales_copy / "version-3")
    listings: list[str] = []
    list_below = LocalStorage.list

    def counted(storage: LocalStorage, directory: str, *arguments: Any, **options: Any) -> Any:
        listings.append(directory)
        return list_below(storage, directory, *arguments, **options)

    monkeypatch.setattr(LocalStorage, "list", counted)
    waiting = sensor(sales_copy, min_version=3, mode="poke")
    for _ in range(3):
        assert not waiting.poke({}).is_done
    hidden.rename(newest)
    assert waiting.poke({}).is_done
    # Un-backfilled commits are looked for each time, in a directory that few tables have.
    assert [listed for listed in listings if listed != "_delta_log/_commits"] == ["_delta_log"]
    assert len(listings) <= 5


def test_a_task_that_is_run_again_knows_nothing_of_the_run_before(
    sales: Path, tmp_path: Path
) -> None:
    waiting = sensor(sales, deferrable=False)
    assert waiting.execute({})["version"] == 3
    write_table(tmp_path, [add("a")], [add("b")])
    waiting.table_uri = str(tmp_path)
    assert waiting.execute({})["version"] == 1


def test_both_bounds_together_are_refused(sales: Path) -> None:
    with pytest.raises(ValueError, match="both min_version=1 and after_version=1 are given"):
        sensor(sales, min_version=1, after_version=1).poke({})


def test_nothing_is_deferred_where_nothing_is_waited_for(sales: Path) -> None:
    found = sensor(sales, deferrable=True).execute({})
    assert found["version"] == 3


def test_a_deferred_sensor_hands_its_wait_to_the_trigger(sales: Path) -> None:
    from airflow.sdk.exceptions import TaskDeferred

    waiting = sensor(sales, after_version="3", deferrable=True, poke_interval=5, timeout=60)
    with pytest.raises(TaskDeferred) as deferred:
        waiting.execute({})
    trigger = deferred.value.trigger
    assert isinstance(trigger, TableVersionTrigger)
    assert (trigger.table_uri, trigger.min_version) == (str(sales), 4)
    assert trigger.poke_interval == 5
    assert deferred.value.timeout is not None
    assert deferred.value.timeout.total_seconds() == 60 + 60  # the trigger ends it
    assert trigger.deadline is not None
    assert 55 < trigger.deadline - time.time() <= 60
    assert hasattr(waiting, deferred.value.method_name)


def test_a_trigger_is_rebuilt_from_what_it_serializes() -> None:
    trigger = TableVersionTrigger(
        table_uri="s3://lake/t", min_version=7, delta_conn_id="lake", poke_interval=2.5
    )
    assert rebuilt(trigger).serialize() == trigger.serialize()
    assert rebuilt(trigger).__dict__.keys() == trigger.__dict__.keys()


def test_a_trigger_fires_once_when_the_version_is_there(sales: Path) -> None:
    trigger = rebuilt(TableVersionTrigger(table_uri=str(sales), min_version=2))
    assert events(trigger) == [{"status": "success", "table_uri": str(sales), "version": 3}]


def test_a_trigger_polls_until_the_version_arrives(
    sales_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = sales_copy / "_delta_log" / f"{3:020}.json"
    hidden = newest.rename(sales_copy / "version-3")
    waits: list[float] = []

    async def instead_of_sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            hidden.rename(newest)

    monkeypatch.setattr(asyncio, "sleep", instead_of_sleep)
    trigger = TableVersionTrigger(table_uri=str(sales_copy), min_version=3, poke_interval=9)
    assert events(trigger) == [{"status": "success", "table_uri": str(sales_copy), "version": 3}]
    assert waits == [0, 9, 9]


def test_a_trigger_waits_for_a_table_that_does_not_exist_yet(
    sales_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = sales_copy.rename(sales_copy.with_name("elsewhere"))

    async def instead_of_sleep(seconds: float) -> None:
        hidden.rename(sales_copy)

    monkeypatch.setattr(asyncio, "sleep", instead_of_sleep)
    trigger = TableVersionTrigger(table_uri=str(sales_copy), min_version=0)
    assert events(trigger)[0]["status"] == "success"


def test_a_wait_notices_that_the_log_was_cleaned_up_beyond_what_it_knew(
    sales_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import deltalake

    waits: list[float] = []

    async def instead_of_sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) != 2:
            return
        for _ in range(2):
            deltalake.write_deltalake(str(sales_copy), pa.table({"id": [1]}), mode="append")
        deltalake.DeltaTable(str(sales_copy)).create_checkpoint()
        checkpoint_only(sales_copy, 4)

    monkeypatch.setattr(asyncio, "sleep", instead_of_sleep)
    trigger = TableVersionTrigger(table_uri=str(sales_copy), min_version=5)
    assert events(trigger) == [{"status": "success", "table_uri": str(sales_copy), "version": 5}]
    assert 2 < len(waits) <= 101


@pytest.mark.parametrize("silent_fail", [False, True])
def test_a_wait_outlives_the_credentials_that_it_began_with(
    sales: Path, monkeypatch: pytest.MonkeyPatch, silent_fail: bool
) -> None:
    opened: list[Any] = []
    look = DeltaHook.latest_version

    def expiring(table: Any, *arguments: Any, **options: Any) -> int | None:
        opened.append(table)
        if sum(earlier is table for earlier in opened) > 2:
            raise PermissionError("the token has expired")
        found = look(table, *arguments, **options)
        return found if len(waits) >= 6 else 2

    waits: list[float] = []

    async def instead_of_sleep(seconds: float) -> None:
        assert len(waits) < 9
        waits.append(seconds)

    monkeypatch.setattr(DeltaHook, "latest_version", staticmethod(expiring))
    monkeypatch.setattr(asyncio, "sleep", instead_of_sleep)
    trigger = TableVersionTrigger(table_uri=str(sales), min_version=3, silent_fail=silent_fail)
    assert events(trigger) == [{"status": "success", "table_uri": str(sales), "version": 3}]
    assert len(waits) == 6  # an expired token costs no wait


def test_a_failure_with_fresh_credentials_is_one(
    sales: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []

    def failing(*_arguments: Any, **_options: Any) -> int:
        looks.append(1)
        if len(looks) > 1:
            raise OSError("the store is away for good")
        return 2

    monkeypatch.setattr(DeltaHook, "latest_version", staticmethod(failing))
    trigger = TableVersionTrigger(table_uri=str(sales), min_version=3, poke_interval=0)
    (event,) = events(trigger)
    assert (event["status"], event["message"]) == ("error", "the store is away for good")
    assert len(looks) == 3


def test_a_look_that_fails_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the version seen last is made sure of as soon as the store is back."""
    asked: list[tuple[int | None, bool]] = []

    def answer(_table: Any, known: int | None, *, confirm: bool) -> int:
        asked.append((known, confirm))
        if len(asked) in (101, 102):
            raise AWAY
        return 7

    monkeypatch.setattr(DeltaHook, "latest_version", staticmethod(answer))
    watch, table = VersionWatch(8), DeltaTable("memory://somewhere/t")
    for _ in range(201):
        with contextlib.suppress(OSError):
            watch.look(table)
    assert asked[0][0] is None
    assert {known for known, _ in asked[1:]} == {7}
    confirmed = [number for number, (_, confirm) in enumerate(asked) if confirm]
    assert confirmed == [0, 100, 101, 102]


# Runs a trigger and prints what its event loop's thread imported, opened and listed meanwhile.
WATCHED_RUN = """
import asyncio, sys, threading
from airflow_delta.triggers import table_poll
from airflow_delta.triggers.table_version import TableVersionTrigger

loop, seen, running = threading.get_ident(), [], False

def watch(event, arguments):
    if running and threading.get_ident() == loop:
        if event in {"import", "open", "os.listdir", "os.scandir"}:
            seen.append(f"{event} {arguments[0]}")

sys.addaudithook(watch)

async def run():
    global running
    running = True
    found = [event.payload["version"] async for event in trigger.run()]
    running = False
    return found

table_poll.FIRST_LOOK_SECONDS = 0.0
trigger = TableVersionTrigger(table_uri=sys.argv[1], min_version=0)
assert asyncio.run(run()) == [3]
assert "airflow_delta.engine.table" in sys.modules
print(*("SEEN " + line for line in seen), sep="\\n")
"""


def test_a_wait_does_not_block_the_event_loop(sales: Path) -> None:
    # In a process of its own: the first wait of a triggerer is the one that imports the engine.
    command = [sys.executable, "-c", WATCHED_RUN, str(sales)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    heavy = ("airflow_delta.engine", "pyarrow", "numpy", "obstore", str(sales))
    seen = [line for line in done.stdout.splitlines() if line.startswith("SEEN ")]
    assert not [line for line in seen if any(name in line for name in heavy)]


def test_an_error_in_the_trigger_becomes_an_error_of_the_task() -> None:
    (event,) = events(TableVersionTrigger(table_uri="gopher://lake/t", min_version=9))
    assert event["status"] == "error"
    with fails_for_good(InvalidArgumentError, match=r"scheme 'gopher'"):
        sensor("gopher://lake/t").execute_complete({}, event)


@pytest.mark.parametrize("resumed", [False, True])
@pytest.mark.parametrize("soft_fail", [False, True])
def test_a_table_that_cannot_be_read_fails_the_task_while_a_late_one_may_be_skipped(
    soft_fail: bool, resumed: bool
) -> None:
    uri = "gopher://lake/t"
    waiting = sensor(uri, deferrable=resumed, soft_fail=soft_fail)
    with fails_for_good(InvalidArgumentError, match="scheme 'gopher'"):
        waiting.execute({})
    (event,) = events(TableVersionTrigger(table_uri=uri, min_version=9))
    with fails_for_good(InvalidArgumentError, match="scheme 'gopher'"):
        waiting.resume_execution("execute_complete", {"event": event}, {})


@pytest.mark.parametrize("deferrable", [False, True])
def test_a_task_that_never_fails_is_skipped(deferrable: bool) -> None:
    uri = "gopher://lake/t"
    waiting = sensor(uri, deferrable=deferrable, never_fail=True)
    with pytest.raises(AirflowSkipException, match="never_fail"):
        waiting.execute({})
    (event,) = events(TableVersionTrigger(table_uri=uri, min_version=9))
    with pytest.raises(AirflowSkipException, match="never_fail"):
        waiting.resume_execution("execute_complete", {"event": event}, {})


AWAY = OSError("the store is away")


def unreadable_twice(monkeypatch: pytest.MonkeyPatch, error: BaseException = AWAY) -> list[int]:
    """Let the first two looks at any table fail; gives the list of all looks."""
    looks: list[int] = []
    look = DeltaHook.latest_version

    def failing(*arguments: Any, **options: Any) -> int | None:
        looks.append(1)
        if len(looks) <= 2:
            raise error
        return look(*arguments, **options)

    monkeypatch.setattr(DeltaHook, "latest_version", staticmethod(failing))
    return looks


def test_a_silent_wait_outlives_failures_in_the_triggerer(
    sales: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.sdk.exceptions import TaskDeferred

    looks = unreadable_twice(monkeypatch)
    with pytest.raises(TaskDeferred) as deferred:
        sensor(sales, deferrable=True, silent_fail=True, poke_interval=0).execute({})
    assert len(looks) == 1
    trigger = deferred.value.trigger
    assert isinstance(trigger, TableVersionTrigger)
    assert events(rebuilt(trigger)) == [
        {"status": "success", "table_uri": str(sales), "version": 3}
    ]
    assert len(looks) == 3


def test_a_silent_wait_outlives_a_missing_connection(
    sales: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def instead_of_sleep(seconds: float) -> None:
        trigger.delta_conn_id = None

    monkeypatch.setattr(asyncio, "sleep", instead_of_sleep)
    trigger = TableVersionTrigger(
        table_uri=str(sales), min_version=3, delta_conn_id="not_there", silent_fail=True
    )
    assert events(trigger)[0]["status"] == "success"


def test_a_silent_wait_in_a_slot_is_airflows_own(
    sales: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = unreadable_twice(monkeypatch)
    waiting = sensor(sales, deferrable=False, silent_fail=True, poke_interval=0)
    assert waiting.execute({})["version"] == 3
    assert len(looks) == 3


@pytest.mark.parametrize("deferrable", [False, True])
@pytest.mark.parametrize(
    ("error", "arguments", "expected"),
    [
        (AirflowFailException("no"), {}, AirflowFailException),
        (AirflowFailException("no"), {"silent_fail": True}, AirflowFailException),
        (AirflowFailException("no"), {"soft_fail": True}, AirflowSkipException),
        (AirflowFailException("no"), {"never_fail": True}, AirflowSkipException),
        (AirflowTaskTimeout("late"), {}, AirflowTaskTimeout),
        (AirflowTaskTimeout("late"), {"silent_fail": True}, AirflowTaskTimeout),
        (AirflowTaskTimeout("late"), {"soft_fail": True}, AirflowSkipException),
        (AirflowSensorTimeout("late"), {"never_fail": True}, AirflowSkipException),
        (AirflowSkipException("mine"), {"silent_fail": True}, AirflowSkipException),
        (OSError("away"), {}, OSError),
        (OSError("away"), {"soft_fail": True}, OSError),
        (OSError("away"), {"never_fail": True}, AirflowSkipException),
    ],
    ids=str,
)
def test_a_first_look_that_fails_is_judged_as_one_in_a_slot(
    sales: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    arguments: dict[str, bool],
    expected: type[BaseException],
    deferrable: bool,
) -> None:
    unreadable_twice(monkeypatch, error)
    waiting = sensor(sales, deferrable=deferrable, poke_interval=0, **arguments)
    with pytest.raises(expected) as caught:
        waiting.execute({})
    assert str(error) in str(caught.value) or caught.value.__cause__ is error


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, AirflowSensorTimeout),
        ({"silent_fail": True}, AirflowSensorTimeout),
        ({"soft_fail": True}, AirflowSkipException),
        ({"never_fail": True}, AirflowSkipException),
    ],
    ids=str,
)
def test_a_wait_in_the_triggerer_that_takes_too_long(
    sales: Path, arguments: dict[str, bool], expected: type[BaseException]
) -> None:
    """What Airflow hands over when the time of a deferral is up."""
    from airflow.sdk.bases.operator import TRIGGER_FAIL_REPR, TriggerFailureReason

    waiting = sensor(sales, deferrable=True, **arguments)
    with pytest.raises(expected):
        waiting.resume_execution(
            TRIGGER_FAIL_REPR, {"error": TriggerFailureReason.TRIGGER_TIMEOUT}, {}
        )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [({}, AirflowSensorTimeout), ({"soft_fail": True}, AirflowSkipException)],
    ids=str,
)
def test_a_wait_in_a_slot_that_takes_too_long(
    sales: Path, arguments: dict[str, bool], expected: type[BaseException]
) -> None:
    waiting = sensor(sales, min_version=9, timeout=0, poke_interval=0, **arguments)
    with pytest.raises(expected, match="timed out"):
        waiting.execute({})


def test_a_missing_connection_in_the_trigger_becomes_an_error_of_the_task() -> None:
    (event,) = events(
        TableVersionTrigger(table_uri="/data/t", min_version=0, delta_conn_id="not_there")
    )
    assert event["status"] == "error"
    message = r"AirflowNotFoundException: .*'not_there' \(delta_conn_id\) isn't defined"
    with pytest.raises(DeltaError, match=message):
        sensor("/data/t").execute_complete({}, event)


def test_a_resumed_sensor_returns_what_the_trigger_found() -> None:
    event = {"status": "success", "table_uri": "s3://lake/t", "version": 12}
    assert sensor("s3://lake/t").execute_complete({}, event) == {
        "table_uri": "s3://lake/t",
        "version": 12,
    }


def test_a_resumed_sensor_without_an_event_fails() -> None:
    with pytest.raises(DeltaError, match="s3://lake/t: the trigger ended without an event"):
        sensor("s3://lake/t").execute_complete({}, None)


@pytest.mark.parametrize("silent_fail", [False, True])
def test_a_failure_for_good_in_the_triggerer_is_one_in_the_task(
    sales: Path, monkeypatch: pytest.MonkeyPatch, silent_fail: bool
) -> None:
    def failing(*_: Any, **__: Any) -> int:
        raise TableFailure("the login needs a provider that isn't installed here")

    monkeypatch.setattr(DeltaHook, "latest_version", staticmethod(failing))
    (event,) = events(
        TableVersionTrigger(table_uri=str(sales), min_version=9, silent_fail=silent_fail)
    )
    assert event["error"] == "TableFailure"
    with pytest.raises(AirflowFailException, match="isn't installed here"):
        sensor(sales).execute_complete({}, event)
