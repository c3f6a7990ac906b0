"""Waits: what is read when they end, what they log, and what their time-outs say."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine.errors import (
    CorruptLogError,
    StorageError,
    UnsupportedFeatureError,
)
from airflow_delta.engine.storage.local import LocalStorage
from airflow_delta.hooks.delta import DeltaHook
from airflow_delta.hooks.failures import TableFailure
from airflow_delta.hooks.waits import look as table_look
from airflow_delta.hooks.waits.look import WaitLog
from airflow_delta.sensors.backfill import BackfillSensor
from airflow_delta.sensors.table_version import TableVersionSensor
from airflow_delta.sensors.truncation import TruncationSensor
from airflow_delta.triggers.table_poll import FIRST_LOOK_SECONDS
from airflow_delta.triggers.table_version import TableVersionTrigger
from airflow_delta.version_compat import (
    AirflowFailException,
    AirflowSensorTimeout,
    AirflowSkipException,
)
from tests.airflow.dag_runs import new_dag, run_of
from tests.airflow.failures import fails_for_good
from tests.airflow.waits import context, deferred, event_of, rebuilt
from tests.log_builder import add, commit_path, write_commit, write_table

FIRST_LOOK = FIRST_LOOK_SECONDS
"""As it is set; in the other tests of this folder triggers look at once."""

FUTURE = {
    "protocol": {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["fromTheFuture"],
        "writerFeatures": ["fromTheFuture"],
    }
}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_table(tmp_path / "t", [add("a")], [add("b")])


def sensor(table: Path | str, **arguments: Any) -> TableVersionSensor:
    return TableVersionSensor(task_id="wait", table_uri=str(table), **arguments)


class Arrivals:
    """Instead of sleeping: things that happen while a trigger waits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *events: Any) -> None:
        self.waits: list[float] = []
        self._events = list(events)
        monkeypatch.setattr(asyncio, "sleep", self._sleep)

    async def _sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        assert self._events, "it has waited once too often"
        event = self._events.pop(0)
        if event is not None:
            event()


# A version is there when its commit can be read


@pytest.mark.parametrize("deferrable", [False, True])
def test_a_commit_that_is_none_is_no_version(table: Path, deferrable: bool) -> None:
    commit_path(table, 1).write_bytes(b'{"add": ')
    waiting = sensor(table, min_version=1, deferrable=deferrable)
    with fails_for_good(CorruptLogError, match="line 1: not valid JSON"):
        waiting.execute(context())
    event = event_of(TableVersionTrigger(table_uri=str(table), min_version=1))
    assert event["error"] == "CorruptLogError"
    with fails_for_good(CorruptLogError, match="not valid JSON"):
        waiting.resume_execution("execute_complete", {"event": event}, context())
    assert sensor(table, min_version=2).poke(context()).is_done is False, "it isn't told of yet"


def test_a_commit_with_unknown_features_is_no_version(table: Path) -> None:
    write_commit(table, 2, FUTURE)
    with fails_for_good(UnsupportedFeatureError, match="fromTheFuture"):
        sensor(table, after_version=1).execute(context())


def test_both_fail_a_run(airflow_database: Path, tmp_path: Path) -> None:
    broken = write_table(tmp_path / "broken", [add("a")])
    commit_path(broken, 0).write_bytes(b"no JSON")
    future = write_table(tmp_path / "future", [add("a")])
    write_commit(future, 1, FUTURE)
    with new_dag(default_args={"retries": 3}) as dag:
        TableVersionSensor.partial(task_id="wait", soft_fail=True).expand(
            table_uri=[str(broken), str(future)]
        )
        TableVersionSensor(task_id="deferred", table_uri=str(future), deferrable=True)
    run = run_of(dag)
    assert run.states == {"wait[0]": "failed", "wait[1]": "failed", "deferred": "failed"}
    assert set(run.tries.values()) == {1}


def test_a_look_is_one_request_until_the_version_is_there(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = sensor(table, min_version=2)
    assert not waiting.poke(context()).is_done
    calls: list[str] = []
    for name in ("read", "read_many", "head", "open"):
        real = getattr(LocalStorage, name)

        def counted(*arguments: Any, _real: Any = real, _name: str = name, **named: Any) -> Any:
            calls.append(_name)
            return _real(*arguments, **named)

        monkeypatch.setattr(LocalStorage, name, counted)
    for _ in range(5):
        assert not waiting.poke(context()).is_done
    assert calls == ["head"] * 5
    del calls[:]
    write_commit(table, 2, add("c"))
    assert waiting.poke(context()).is_done
    assert calls == ["head", "head", "read"]


# The trigger gives the scheduler time to notice that the task is deferred


def test_a_trigger_waits_before_its_first_look(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert FIRST_LOOK >= 3, "within two seconds it was too early"
    monkeypatch.setattr("airflow_delta.triggers.table_poll.FIRST_LOOK_SECONDS", FIRST_LOOK)
    arrivals = Arrivals(monkeypatch, None)
    trigger = TableVersionTrigger(table_uri=str(table), min_version=0, poke_interval=0)
    assert event_of(trigger)["status"] == "success"
    assert arrivals.waits == [FIRST_LOOK]


# What is logged


class Log:
    """Keeps what is logged."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def info(self, message: str, *facts: Any, **_: Any) -> None:
        self.lines.append(message % facts)

    error = warning = exception = info


@dataclass(frozen=True)
class Seen:
    """The result of a check."""

    seen: str
    reached: bool = False
    facts: dict[str, Any] = field(default_factory=dict)


def test_a_wait_logs_what_is_new_and_now_and_then_what_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr(table_look.time, "monotonic", lambda: now[0])
    log = Log()
    wait = WaitLog(log, "s3://lake/t", "version 7 or newer")
    for minute in range(60):
        now[0] = minute * 60
        wait.found(Seen("version 5" if minute < 35 else "version 6"))
    head = "s3://lake/t: waiting for version 7 or newer, last seen: "
    assert log.lines == [f"{head}version 5"] * 4 + [f"{head}version 6"] * 3
    for minute in range(60, 120):
        now[0] = minute * 60
        wait.failed(StorageError("away"))
    assert log.lines[7:] == [f"{head}a check that failed: StorageError: away"] * 6
    wait.found(Seen("version 7", reached=True))
    over = "s3://lake/t: the wait for version 7 or newer is over, found: version 7"
    assert log.lines[13:] == [over]


def test_a_trigger_logs_what_it_waits_for(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log()
    monkeypatch.setattr(TableVersionTrigger, "log", log)
    Arrivals(monkeypatch, *[None] * 9, lambda: write_commit(table, 2, add("c")))
    event_of(TableVersionTrigger(table_uri=str(table), min_version=2))
    assert log.lines == [
        f"{table}: waiting for version 2 or newer, last seen: version 1",
        f"{table}: the wait for version 2 or newer is over, found: version 2",
    ]


def test_a_sensor_in_a_slot_logs_what_it_waits_for(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log()
    waiting = sensor(table, min_version=9)
    monkeypatch.setattr(type(waiting), "log", log)
    for _ in range(9):
        waiting.poke(context())
    assert log.lines == [f"{table}: waiting for version 9 or newer, last seen: version 1"]
    del log.lines[:]
    absent = sensor("/nowhere/t", min_version=9)
    absent.poke(context())
    assert log.lines == ["/nowhere/t: waiting for version 9 or newer, last seen: no table"]


# Time-outs


def told(table: Path) -> str:
    return f"{table}: waiting for version 9 or newer, last seen: version 1"


def test_a_time_out_in_a_slot_says_what_was_waited_for(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    with pytest.raises(AirflowSensorTimeout) as raised:
        sensor(table, min_version=9, timeout=0, deferrable=False).execute(context())
    assert str(raised.value).startswith(told(table))
    assert "timeout of 0" in str(raised.value)
    with pytest.raises(AirflowSkipException) as skipped:
        sensor(table, min_version=9, timeout=0, soft_fail=True, deferrable=False).execute(context())
    assert str(skipped.value).startswith(f"skipped, as soft_fail is set: {told(table)}")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [({}, AirflowSensorTimeout), ({"soft_fail": True}, AirflowSkipException)],
    ids=str,
)
def test_the_trigger_ends_a_wait_that_takes_too_long(
    table: Path, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, bool], expected: Any
) -> None:
    waiting = sensor(
        table, min_version=9, timeout=60, poke_interval=25, deferrable=True, **arguments
    )
    trigger = rebuilt(deferred(waiting, context(), TableVersionTrigger))
    now = [time.time()]
    monkeypatch.setattr("airflow_delta.triggers.table_poll.time.time", lambda: now[0])

    async def sleep(seconds: float) -> None:
        now[0] += seconds
        waits.append(round(seconds))

    waits: list[int] = []
    monkeypatch.setattr(asyncio, "sleep", sleep)
    event = event_of(trigger)
    assert event == {"status": "timeout", "message": told(table)}
    # The last look is at the end of the time.
    assert waits == [0, 25, 25, 10]
    back = sensor(table, min_version=9, timeout=60, deferrable=True, **arguments)
    with pytest.raises(expected) as raised:
        back.resume_execution("execute_complete", {"event": event}, context())
    assert f"{told(table)}; it took longer than 60 seconds" in str(raised.value)


def test_a_time_out_of_airflow_s_own_names_the_table_too(table: Path) -> None:
    from airflow.models.trigger import TRIGGER_FAIL_REPR, TriggerFailureReason

    gone = {"error": TriggerFailureReason.TRIGGER_TIMEOUT}
    waiting = sensor(table, min_version=9, deferrable=True)
    with pytest.raises(AirflowSensorTimeout) as raised:
        waiting.resume_execution(TRIGGER_FAIL_REPR, gone, context())
    message = f"{table}: waiting for version 9 or newer; the trigger"
    assert str(raised.value).startswith(message)
    skipping = sensor(table, min_version=9, deferrable=True, soft_fail=True)
    with pytest.raises(AirflowSkipException, match="skipped, as soft_fail is set: ") as skipped:
        skipping.resume_execution(TRIGGER_FAIL_REPR, gone, context())
    assert message in str(skipped.value)


def test_a_time_out_in_a_run(
    airflow_database: Path, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    late: dict[str, Any] = {"table_uri": str(table), "min_version": 9, "timeout": 0.1}
    with new_dag(default_args={"retries": 3, "poke_interval": 0.05}) as dag:
        TableVersionSensor(task_id="slot", deferrable=False, **late)
        TableVersionSensor(task_id="deferred", deferrable=True, **late)
        TableVersionSensor(task_id="skipped", deferrable=True, soft_fail=True, **late)
    run = run_of(dag)
    assert run.states == {"slot": "failed", "deferred": "failed", "skipped": "skipped"}
    assert set(run.tries.values()) == {1}
    assert capsys.readouterr().out.count(told(table)) >= 3


@pytest.mark.parametrize("deferrable", [False, True])
@pytest.mark.parametrize("uri", ["s3://one@lake/t", "s3://a@b@lake/t"])
def test_a_mistake_in_a_connection_is_not_skipped(uri: str, *, deferrable: bool) -> None:
    waiting = sensor(uri, delta_conn_id="two", soft_fail=True, deferrable=deferrable)
    with pytest.raises(TableFailure, match=r"different connections|isn't a connection id"):
        waiting.execute(context())


def test_what_others_raise_is_judged_as_airflow_does(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What fails a task for good, and isn't ours, is skipped with ``soft_fail``."""

    def fail(*_: Any, **__: Any) -> Any:
        raise AirflowFailException("no such secret")

    monkeypatch.setattr(DeltaHook, "table", fail)
    for deferrable in (False, True):
        with pytest.raises(AirflowSkipException):
            sensor(table, soft_fail=True, deferrable=deferrable).execute(context())


def test_each_sensor_says_what_it_waits_for() -> None:
    table: dict[str, Any] = {"task_id": "t", "table_uri": "/data/t"}
    assert TableVersionSensor(**table, after_version=6).wanted == "version 7 or newer"
    assert BackfillSensor(**table, version=6).wanted == "version 6 to be backfilled"
    assert "ratified now to be backfilled" in BackfillSensor(**table).wanted
    truncation = TruncationSensor(**table, feature="deletionVectors")
    assert truncation.wanted == "the history with the feature deletionVectors to expire"
