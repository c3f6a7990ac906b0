"""Waiting until history may be truncated: in a slot, rescheduled, and in the triggerer."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import DeltaError, InvalidArgumentError
from airflow_delta.hooks.waits import truncation as hook_module
from airflow_delta.sensors.truncation import TruncationSensor
from airflow_delta.triggers.truncation import TruncationTrigger
from airflow_delta.version_compat import AirflowSkipException
from tests.airflow.expiring_tables import expire, write_v2_table
from tests.airflow.failures import fails_for_good
from tests.airflow.task_state import TaskState
from tests.airflow.waits import context, deferred, event_of, rebuilt

HOUR_MS = 3_600_000


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table that is prepared for the drop of ``v2Checkpoint``."""
    path = write_v2_table(tmp_path / "v2")
    drop(path)
    return path


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The looks at tables, by their features."""
    found: list[str] = []
    real = hook_module._look_at_truncation

    def counted(table: Any, feature: str) -> Any:
        found.append(feature)
        return real(table, feature)

    monkeypatch.setattr(hook_module, "_look_at_truncation", counted)
    return found


def drop(path: Path) -> str:
    return DeltaTable(path).drop_feature("v2Checkpoint", truncate_history=True).status


class Clock:
    """The time of everybody who asks for it in nanoseconds, as sensors and the engine do."""

    hours = 0.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found, real = Clock(), time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() + round(found.hours * 3600 * 10**9))
    return found


def sensor(path: Path | str, **arguments: Any) -> TruncationSensor:
    feature = arguments.pop("feature", "v2Checkpoint")
    return TruncationSensor(task_id="wait", table_uri=str(path), feature=feature, **arguments)


def test_arguments_are_rendered() -> None:
    waiting = sensor("{{ params.uri }}", feature="{{ params.feature }}")
    params: Any = {"params": {"uri": "s3://lake/t", "feature": "v2Checkpoint"}}
    waiting.render_template_fields(params)
    assert (waiting.table_uri, waiting.feature) == ("s3://lake/t", "v2Checkpoint")


def test_the_wait_is_for_the_history_to_expire(table: Path) -> None:
    found = sensor(table, feature="V2CHECKPOINT").poke(context())
    assert not found.is_done
    facts = found.xcom_value
    assert (facts["feature"], facts["dropped"], facts["version"]) == ("v2Checkpoint", False, 2)
    committed = (table / "_delta_log" / f"{2:020}.json").stat().st_mtime
    ready = time.strftime("%Y-%m-%dT%H:%M", time.gmtime(committed + 86_400 + 60))
    assert facts["ready_at"] == f"{ready}:00.000Z"
    expire(table)
    found = sensor(table).poke(context())
    assert found.is_done
    assert (found.xcom_value["ready_at"], found.xcom_value["dropped"]) == (None, False)
    assert json.loads(json.dumps(found.xcom_value)) == found.xcom_value, "XCom carries JSON"
    assert drop(table) == "dropped", "that is what was waited for"


def test_there_is_nothing_to_wait_for_where_the_feature_is_gone(table: Path) -> None:
    expire(table)
    drop(table)
    found = sensor(table).execute(context())
    assert (found["dropped"], found["version"]) == (True, 3)


def test_a_table_that_nobody_has_prepared_is_not_waited_for(tmp_path: Path) -> None:
    unprepared = write_v2_table(tmp_path / "v2")
    message = r"isn't prepared for the drop of v2Checkpoint: set delta.checkpointPolicy to classic"
    for deferrable in (False, True):
        with fails_for_good(InvalidArgumentError, match=message):
            sensor(unprepared, deferrable=deferrable).execute(context())
    with pytest.raises(AirflowSkipException, match="never_fail"):
        sensor(unprepared, deferrable=True, never_fail=True).execute(context())


def test_who_uses_the_feature_again_ends_the_wait(table: Path) -> None:
    DeltaTable(table).alter.set_properties({"delta.checkpointPolicy": "v2"})
    event = event_of(TruncationTrigger(table_uri=str(table), feature="v2Checkpoint"))
    assert (event["status"], event["error"]) == ("error", "InvalidArgumentError")
    with fails_for_good(InvalidArgumentError, match="isn't prepared"):
        sensor(table).resume_execution("execute_complete", {"event": event}, context())


def test_a_feature_that_goes_at_once_is_not_waited_for(table: Path) -> None:
    with fails_for_good(InvalidArgumentError, match="dropped at once"):
        sensor(table, feature="domainMetadata").poke(context())


def test_before_its_time_the_table_is_looked_at_once_an_hour(
    table: Path, looks: list[str], clock: Clock
) -> None:
    waiting = sensor(table)
    for hours, expected in ((0, 1), (0.9, 1), (1.01, 2), (1.9, 2), (2.1, 3), (23.9, 4), (23.95, 4)):
        clock.hours = hours
        assert not waiting.poke(context()).is_done
        assert len(looks) == expected, hours
    clock.hours = 24.05  # in less than an hour, because that is its time
    assert waiting.poke(context()).is_done


def test_a_shorter_retention_is_noticed_within_the_hour(table: Path, clock: Clock) -> None:
    waiting = sensor(table)
    assert not waiting.poke(context()).is_done
    retention = {"delta.dropFeatureTruncateHistory.retentionDuration": "interval 1 hour"}
    DeltaTable(table).alter.set_properties(retention)
    clock.hours = 1.05
    assert waiting.poke(context()).is_done


def test_a_rescheduled_wait_keeps_the_time_of_the_next_look(
    table: Path, looks: list[str], clock: Clock
) -> None:
    from airflow.sdk.exceptions import AirflowRescheduleException

    state = TaskState()
    for _ in range(3):
        with pytest.raises(AirflowRescheduleException):
            sensor(table, mode="reschedule").execute(context(state))
    assert len(looks) == 1
    assert sensor(table, feature="v2checkpoint").poke(context(state)).is_done is False
    assert len(looks) == 2, "that is another wait"
    clock.hours = 25
    assert sensor(table, mode="reschedule").execute(context(state))["dropped"] is False
    assert state.values == {}


def test_a_wait_goes_to_the_triggerer_and_comes_back(
    table: Path, looks: list[str], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = sensor(table, deferrable=True, poke_interval=9)
    trigger = rebuilt(deferred(waiting, context(), TruncationTrigger))
    assert trigger.not_before_ms is not None
    assert 0 < trigger.not_before_ms - time.time() * 1000 <= HOUR_MS
    waits: list[float] = []

    async def instead_of_sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            clock.hours = 25

    monkeypatch.setattr(asyncio, "sleep", instead_of_sleep)
    event = event_of(trigger)
    assert (waits, len(looks)) == ([0, 9], 2)
    found = sensor(table).resume_execution("execute_complete", {"event": event}, context())
    assert (found["feature"], found["dropped"], found["table_uri"]) == (
        "v2Checkpoint",
        False,
        str(table),
    )


def test_nothing_is_deferred_where_nothing_is_waited_for(table: Path) -> None:
    expire(table)
    assert sensor(table, deferrable=True).execute(context())["dropped"] is False


def test_a_trigger_is_rebuilt_from_what_it_serializes() -> None:
    trigger = TruncationTrigger(
        table_uri="s3://lake/t",
        feature="v2Checkpoint",
        not_before_ms=7,
        delta_conn_id="lake",
        commit_owner_conn_id="central",
        poke_interval=2.5,
        silent_fail=True,
    )
    assert rebuilt(trigger).serialize() == trigger.serialize()
    assert rebuilt(trigger).__dict__.keys() == trigger.__dict__.keys()


def test_a_resumed_sensor_without_an_event_fails() -> None:
    with pytest.raises(DeltaError, match="s3://lake/t: the trigger ended without an event"):
        sensor("s3://lake/t").execute_complete(context(), None)
