"""Backfilling as a task, and waiting for it: in a slot, rescheduled, and in the triggerer."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.commit.sql.owner import SqlCommitOwner
from airflow_delta.engine.errors import (
    CommitOwnerUnavailableError,
    DeltaError,
    InvalidArgumentError,
    TableNotFoundError,
    VersionNotFoundError,
)
from airflow_delta.hooks.failures import ArgumentError
from airflow_delta.operators.backfill import BackfillOperator
from airflow_delta.sensors.backfill import BackfillSensor
from airflow_delta.triggers.backfill import BackfillTrigger
from airflow_delta.version_compat import (
    AirflowSensorTimeout,
    AirflowSkipException,
)
from tests.airflow.failures import fails_for_good
from tests.airflow.managed_tables import commit, hand_over, in_log, sqlite_connection, use_owner
from tests.airflow.task_state import TaskState
from tests.airflow.waits import context, deferred, event_of, rebuilt


class Managed:
    """A table of versions 0 to 3 that is handed over with version 4, and backfilled on request."""

    def __init__(self, path: Path, file: Path) -> None:
        self.path = path
        self.file = file
        self.owner = hand_over(path, file)

    def commit(self, times: int = 1) -> int:
        return commit(self.path, self.owner, times)

    def backfill(self, version: int | None = None) -> None:
        DeltaTable(self.path, commit_owners={"sql": self.owner}).backfill(version)


@pytest.fixture
def managed(sales_copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Managed:
    use_owner(monkeypatch, tmp_path / "owner.db")
    return Managed(sales_copy, tmp_path / "owner.db")


def backfill(table: Path | str, **arguments: Any) -> dict[str, Any]:
    operator = BackfillOperator(task_id="backfill", table_uri=str(table), **arguments)
    context: Any = {}
    return operator.execute(context)


def sensor(table: Path | str, **arguments: Any) -> BackfillSensor:
    return BackfillSensor(task_id="wait", table_uri=str(table), **arguments)


# The operator


def test_arguments_are_rendered() -> None:
    arguments = {
        "table_uri": "{{ params.uri }}",
        "version": "{{ params.version }}",
        "delta_conn_id": "{{ params.conn }}",
        "commit_owner_conn_id": "{{ params.conn }}_owner",
    }
    params: Any = {"params": {"uri": "s3://lake/t", "version": 4, "conn": "lake"}}
    for kind in (BackfillOperator, BackfillSensor):
        operator = kind(task_id="backfill", **arguments)
        operator.render_template_fields(params)
        assert (operator.table_uri, operator.version) == ("s3://lake/t", "4")
        assert operator.delta_conn_id == "lake"
        assert operator.commit_owner_conn_id == "lake_owner"


def test_all_that_is_ratified_is_backfilled(managed: Managed) -> None:
    managed.commit(3)
    assert in_log(managed.path) == 4
    result = backfill(managed.path)
    assert in_log(managed.path) == 7
    assert result.pop("duration_ms") >= 0
    assert result == {
        "table_uri": str(managed.path),
        "version": 7,
        "ratified_version": 7,
        "backfilled_version": 7,
        "lag": 0,
        "num_backfilled": 3,
    }


@pytest.mark.parametrize("version", [6, "6"])
def test_a_backfill_up_to_a_version(managed: Managed, version: Any) -> None:
    managed.commit(3)
    result = backfill(managed.path, version=version)
    assert in_log(managed.path) == 6
    assert (result["version"], result["ratified_version"], result["lag"]) == (6, 7, 1)
    assert result["num_backfilled"] == 2
    assert json.loads(json.dumps(result)) == result, "XCom carries JSON"


def test_a_retry_of_a_backfill_is_harmless(managed: Managed) -> None:
    managed.commit(2)
    backfill(managed.path)
    before = {f.name: f.read_bytes() for f in (managed.path / "_delta_log").glob("*.json")}
    again = backfill(managed.path)
    assert (again["version"], again["num_backfilled"], again["lag"]) == (6, 0, 0)
    assert {f.name: f.read_bytes() for f in (managed.path / "_delta_log").glob("*.json")} == before


def test_the_owner_of_a_named_connection_is_asked(
    managed: Managed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    managed.commit()
    use_owner(monkeypatch, tmp_path / "another.db")
    monkeypatch.setenv("AIRFLOW_CONN_CENTRAL", sqlite_connection(managed.file))
    assert backfill(managed.path, commit_owner_conn_id="central")["version"] == 5


def test_a_table_of_the_file_system_has_nothing_to_backfill(sales: Path) -> None:
    with fails_for_good(InvalidArgumentError, match="the table has no commit owner"):
        backfill(sales)


def test_what_is_not_ratified_cannot_be_backfilled(managed: Managed) -> None:
    with fails_for_good(VersionNotFoundError, match="version 9 can't be backfilled"):
        backfill(managed.path, version=9)
    with pytest.raises(ValueError, match="version: expected a version"):
        backfill(managed.path, version="nine")


def test_without_its_owner_a_table_cannot_be_backfilled(
    managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_DELTA_COMMIT_OWNER_DEFAULT")
    with pytest.raises(CommitOwnerUnavailableError, match="doesn't know its database"):
        backfill(managed.path)


# One look of the sensor


@pytest.mark.parametrize(("version", "reached"), [(5, True), ("5", True), (6, False), (9, False)])
def test_a_poke_compares_with_what_is_backfilled(
    managed: Managed, version: Any, reached: bool
) -> None:
    managed.commit(3)
    managed.backfill(5)
    found = sensor(managed.path, version=version).poke(context())
    assert found.is_done is reached
    assert found.xcom_value == {
        "table_uri": str(managed.path),
        "version": int(version),
        "ratified_version": 7,
        "backfilled_version": 5,
        "lag": 2,
    }


def test_all_versions_of_the_file_system_are_backfilled(sales: Path) -> None:
    assert sensor(sales).execute(context()) == {
        "table_uri": str(sales),
        "version": 3,
        "ratified_version": 3,
        "backfilled_version": 3,
        "lag": 0,
    }
    assert not sensor(sales, version=4, trigger_backfill=True).poke(context()).is_done


def test_a_table_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with fails_for_good(TableNotFoundError, match="nothing"):
        sensor(tmp_path / "nothing").poke(context())


def test_a_look_may_ask_for_the_backfill(managed: Managed) -> None:
    managed.commit(3)
    found = sensor(managed.path, version=6, trigger_backfill=True).poke(context())
    assert found.is_done
    assert in_log(managed.path) == 6
    facts = found.xcom_value
    assert (facts["version"], facts["backfilled_version"], facts["lag"]) == (6, 6, 1)


def test_a_look_asks_for_what_there_is_of_a_version_that_is_not_ratified(managed: Managed) -> None:
    managed.commit()
    waiting = sensor(managed.path, version=6, trigger_backfill=True)
    assert not waiting.poke(context()).is_done
    assert in_log(managed.path) == 5
    managed.commit()
    assert waiting.poke(context()).is_done


@pytest.mark.parametrize("version", [-1, "-1"])
def test_a_negative_version_is_neither_waited_for_nor_backfilled(
    managed: Managed, version: Any
) -> None:
    with pytest.raises(
        ArgumentError, match=r"version: expected a version such as 24, or .* found '?-1"
    ):
        sensor(managed.path, version=version).poke(context())
    with pytest.raises(
        ArgumentError, match=r"version: expected a version such as 24, or .* found '?-1"
    ):
        backfill(managed.path, version=version)


# What is waited for is decided once


def test_a_wait_is_for_what_was_ratified_when_it_began(
    managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    managed.commit(2)
    slept: list[float] = []
    sleep = time.sleep

    def meanwhile(seconds: float) -> None:
        if seconds != 7:  # Not the sensor: a commit that begins again, or a thread of another test.
            sleep(seconds)
            return
        managed.commit(2)
        slept.append(seconds)
        if len(slept) == 2:
            managed.backfill(6)

    monkeypatch.setattr("time.sleep", meanwhile)
    found = sensor(managed.path, poke_interval=7).execute(context())
    assert slept == [7, 7]
    assert (found["version"], found["backfilled_version"], found["ratified_version"]) == (6, 6, 10)
    assert found["lag"] == 4


def test_a_rescheduled_wait_keeps_what_it_waits_for(managed: Managed) -> None:
    """Each look is made by another object, and only the state of the task is the same."""
    from airflow.sdk.exceptions import AirflowRescheduleException

    state = TaskState()
    managed.commit()
    for _ in range(2):
        with pytest.raises(AirflowRescheduleException):
            sensor(managed.path, mode="reschedule").execute(context(state))
        managed.commit()
    managed.backfill(5)
    found = sensor(managed.path, mode="reschedule").execute(context(state))
    assert (found["version"], found["ratified_version"], found["lag"]) == (5, 7, 2)
    assert state.values == {}, "the next wait of the task, when it is cleared, is a new one"


def test_a_retry_keeps_what_the_first_try_waited_for(managed: Managed) -> None:
    state = TaskState()
    managed.commit()
    with pytest.raises(AirflowSensorTimeout):
        sensor(managed.path, timeout=0, poke_interval=0).execute(context(state))
    managed.commit()
    managed.backfill(5)
    assert sensor(managed.path).execute(context(state))["version"] == 5
    managed.backfill()
    assert sensor(managed.path).execute(context(state))["version"] == 6


def test_another_table_is_another_wait(managed: Managed, sales: Path) -> None:
    state = TaskState()
    managed.commit()
    assert not sensor(managed.path).poke(context(state)).is_done
    assert sensor(sales).poke(context(state)).xcom_value["version"] == 3


def test_a_version_that_is_asked_for_is_not_kept(managed: Managed) -> None:
    state = TaskState()
    managed.commit(2)
    assert not sensor(managed.path, version=6).poke(context(state)).is_done
    assert state.values == {}
    managed.backfill(5)
    assert sensor(managed.path, version=5).poke(context(state)).is_done


def test_an_object_that_is_executed_again_waits_for_something_new(managed: Managed) -> None:
    waiting = sensor(managed.path, trigger_backfill=True)
    for version in (5, 6):
        managed.commit()
        assert waiting.execute(context())["version"] == version


# In the triggerer


def test_nothing_is_deferred_where_nothing_is_waited_for(managed: Managed) -> None:
    managed.commit()
    managed.backfill()
    assert sensor(managed.path, deferrable=True).execute(context())["version"] == 5


def test_a_wait_goes_to_the_triggerer_and_comes_back(
    managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = TaskState()
    managed.commit()
    waiting = sensor(managed.path, deferrable=True, poke_interval=9)
    trigger = rebuilt(deferred(waiting, context(state), BackfillTrigger))
    assert (trigger.version, trigger.poke_interval) == (5, 9)
    waits: list[float] = []

    async def instead_of_sleep(seconds: float) -> None:
        waits.append(seconds)
        managed.commit()
        if len(waits) == 2:
            managed.backfill(5)

    monkeypatch.setattr(asyncio, "sleep", instead_of_sleep)
    event = event_of(trigger)
    assert waits == [0, 9]
    # Airflow makes the operator anew.
    back = sensor(managed.path, deferrable=True)
    assert back.resume_execution("execute_complete", {"event": event}, context(state)) == {
        "table_uri": str(managed.path),
        "version": 5,
        "ratified_version": 7,
        "backfilled_version": 5,
        "lag": 2,
    }
    assert state.values == {}


def test_a_trigger_may_ask_for_the_backfill(
    managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    managed.commit()
    trigger = deferred(sensor(managed.path, version=6, deferrable=True), context(), BackfillTrigger)
    assert not trigger.trigger_backfill
    waiting = sensor(managed.path, version=6, deferrable=True, trigger_backfill=True)
    trigger = rebuilt(deferred(waiting, context(), BackfillTrigger))
    assert in_log(managed.path) == 5

    async def instead_of_sleep(seconds: float) -> None:
        managed.commit()

    monkeypatch.setattr(asyncio, "sleep", instead_of_sleep)
    assert event_of(trigger)["backfilled_version"] == 6
    assert in_log(managed.path) == 6


def test_a_trigger_is_rebuilt_from_what_it_serializes() -> None:
    trigger = BackfillTrigger(
        table_uri="s3://lake/t",
        version=7,
        trigger_backfill=True,
        delta_conn_id="lake",
        commit_owner_conn_id="central",
        poke_interval=2.5,
        silent_fail=True,
    )
    assert rebuilt(trigger).serialize() == trigger.serialize()
    assert rebuilt(trigger).__dict__.keys() == trigger.__dict__.keys()


def test_a_wait_whose_first_look_failed_is_decided_by_the_trigger(
    managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    managed.commit()
    monkeypatch.delenv("AIRFLOW_CONN_DELTA_COMMIT_OWNER_DEFAULT")
    waiting = sensor(managed.path, deferrable=True, silent_fail=True)
    trigger = rebuilt(deferred(waiting, context(), BackfillTrigger))
    assert trigger.version is None
    waits: list[float] = []

    async def instead_of_sleep(seconds: float) -> None:
        waits.append(seconds)
        use_owner(monkeypatch, managed.file)
        if len(waits) > 1:
            managed.commit()
            managed.backfill(5)

    monkeypatch.setattr(asyncio, "sleep", instead_of_sleep)
    event = event_of(trigger)
    assert (event["version"], event["backfilled_version"], event["ratified_version"]) == (5, 5, 6)


@pytest.mark.parametrize("deferrable", [False, True])
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, CommitOwnerUnavailableError),
        ({"soft_fail": True}, CommitOwnerUnavailableError),
        ({"never_fail": True}, AirflowSkipException),
    ],
    ids=str,
)
def test_an_owner_that_cannot_be_asked_is_judged_as_a_table_that_cannot_be_read(
    managed: Managed,
    monkeypatch: pytest.MonkeyPatch,
    arguments: dict[str, bool],
    expected: type[BaseException],
    deferrable: bool,
) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_DELTA_COMMIT_OWNER_DEFAULT")
    waiting = sensor(managed.path, deferrable=deferrable, **arguments)
    with pytest.raises(expected) as raised:
        waiting.execute(context())
    assert "doesn't know its database" in f"{raised.value} {raised.value.__cause__}"
    event = event_of(BackfillTrigger(table_uri=str(managed.path), version=9))
    assert event["error"] == "CommitOwnerUnavailableError"
    with pytest.raises(expected) as raised:
        waiting.resume_execution("execute_complete", {"event": event}, context())
    assert "doesn't know its database" in f"{raised.value} {raised.value.__cause__}"


def test_a_silent_wait_in_a_slot_outlives_an_owner_that_is_away(
    managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    managed.commit()
    monkeypatch.delenv("AIRFLOW_CONN_DELTA_COMMIT_OWNER_DEFAULT")
    monkeypatch.setattr("time.sleep", lambda seconds: use_owner(monkeypatch, managed.file))
    waiting = sensor(managed.path, silent_fail=True, trigger_backfill=True, deferrable=False)
    assert waiting.execute(context())["version"] == 5


def test_a_long_outage_is_logged_in_short(
    managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once while nothing changes, with where it came from, and again after the owner was back."""
    monkeypatch.delenv("AIRFLOW_CONN_DELTA_COMMIT_OWNER_DEFAULT")
    told: list[tuple[str, bool]] = []
    seen: list[str] = []

    class Log:
        def info(self, message: str, *facts: Any) -> None:
            seen.append(message % facts)

        def warning(self, message: str, *facts: Any, exc_info: Any = None) -> None:
            told.append((message % facts, bool(exc_info)))

        error = warning

    looks: list[float] = []

    async def instead_of_sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            use_owner(monkeypatch, managed.file)
        elif len(looks) == 4:
            monkeypatch.delenv("AIRFLOW_CONN_DELTA_COMMIT_OWNER_DEFAULT")
        elif len(looks) == 6:
            use_owner(monkeypatch, managed.file)
            managed.backfill()

    monkeypatch.setattr(asyncio, "sleep", instead_of_sleep)
    monkeypatch.setattr(BackfillTrigger, "log", Log())
    real = BackfillTrigger.look

    def look(trigger: BackfillTrigger, table: Any) -> Any:
        if len(looks) == 4:
            raise OSError("the connection was reset")
        return real(trigger, table)

    monkeypatch.setattr(BackfillTrigger, "look", look)
    managed.commit()
    assert event_of(BackfillTrigger(table_uri=str(managed.path), silent_fail=True))["version"] == 5
    assert [traceback for _, traceback in told] == [True, False, True, True]
    assert "doesn't know its database" in told[0][0]
    assert "opening it again after OSError('the connection was reset')" in told[1][0]
    assert "OSError: the connection was reset" in told[2][0]
    assert "doesn't know its database" in told[3][0]
    wanted = "all versions that are ratified now to be backfilled"
    assert seen == [
        f"{managed.path}: waiting for {wanted}, last seen: version 4 backfilled, version 5 ratified",
        f"{managed.path}: the wait for {wanted} is over, found: version 5 backfilled, version 5 ratified",
    ]


def test_a_late_wait_may_be_skipped(managed: Managed) -> None:
    managed.commit()
    waiting = sensor(managed.path, timeout=0, poke_interval=0, soft_fail=True)
    with pytest.raises(AirflowSkipException, match="timed out"):
        waiting.execute(context())


def test_a_wait_ends_where_the_table_is_given_back(managed: Managed) -> None:
    managed.commit()
    waiting = sensor(managed.path, version=6)
    assert not waiting.poke(context()).is_done
    DeltaTable(managed.path, commit_owners={"sql": managed.owner}).convert_to_file_system()
    found = waiting.poke(context())
    assert found.is_done
    assert found.xcom_value["backfilled_version"] == in_log(managed.path) == 6


def test_a_resumed_sensor_without_an_event_fails() -> None:
    with pytest.raises(DeltaError, match="s3://lake/t: the trigger ended without an event"):
        sensor("s3://lake/t").execute_complete(context(), None)


def test_the_commit_store_of_the_tests_is_the_file(managed: Managed) -> None:
    """Or else the tests above would be of something else."""
    again = DeltaTable(
        managed.path, commit_owners={"sql": SqlCommitOwner(f"sqlite:///{managed.file}")}
    )
    managed.commit()
    assert again.commit_status().lag == 1
