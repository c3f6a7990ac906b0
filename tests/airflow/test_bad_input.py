"""Bad input of operators, sensors, triggers, watchers and the command line: it is clear at once, nothing is
requested again and again, and no text has a secret.

Here are expired credentials, connections that aren't there, unknown schemes, places that are no tables, and
looks that hang. What else shows it:

* missing tables: ``test_operators.py``, ``test_table_version.py``, ``tests/cli/test_cli.py``;
* waits that take too long: ``test_waits.py``, ``test_table_version.py``;
* the policy for retries of each operator and sensor: ``test_failures.py``;
* events of lineage: ``lineage/test_events.py``; the command line: ``tests/cli/test_target.py``.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.cli.main import main
from airflow_delta.cli.target import OPTIONS_VARIABLE
from airflow_delta.hooks.failures import TableFailure
from airflow_delta.hooks.waits.new_versions import VersionPoll
from airflow_delta.operators.checkpoint import CheckpointOperator
from airflow_delta.sensors.table_version import TableVersionSensor
from airflow_delta.triggers import blocking_calls, new_versions, shared_pace
from airflow_delta.triggers.new_versions import DeltaTableVersionTrigger
from airflow_delta.triggers.table_version import TableVersionTrigger
from airflow_delta.version_compat import AirflowNotFoundException
from tests.airflow.waits import context, event_of, rebuilt
from tests.airflow.watched_tables import States, Variables
from tests.answering_store import AnsweringStore, answering_store

SECRET = "s3cr3t-that-has-expired"
EXPIRED = b"<Error><Code>ExpiredToken</Code><Message>The token has expired.</Message></Error>"
TABLE = "s3://lake/sales"
REQUESTS = 2
"""Of one look: a listing, and beside it a HEAD of ``_last_checkpoint``; neither is repeated."""


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[AnsweringStore]:
    """A store for which the token of the connection ``lake`` has expired."""
    with answering_store() as answering:
        answering.status, answering.body = 400, EXPIRED
        extra = {
            "aws_access_key_id": "AKIA",
            "aws_secret_access_key": SECRET,
            "aws_session_token": SECRET,
            "aws_region": "us-east-1",
            "aws_endpoint_url": answering.url,
        }
        monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps({"conn_type": "delta", "extra": extra}))
        yield answering


def sensor(table: str = TABLE, **arguments: Any) -> TableVersionSensor:
    arguments = {"delta_conn_id": "lake", "min_version": 1, "retries": 3, **arguments}
    return TableVersionSensor(task_id="wait", table_uri=table, **arguments)


@pytest.fixture
def failures(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many looks of a watcher had failed at each of its pauses; all after the second are long."""
    found: list[int] = []

    def pause(interval: float, failed: int) -> float:
        found.append(failed)
        return 0.01 if len(found) < 3 else 3600.0

    monkeypatch.setattr(shared_pace, "pause_seconds", pause)
    monkeypatch.setattr(new_versions.random, "uniform", lambda least, most: 0.0)
    Variables().install(monkeypatch)
    return found


def watch(failures: list[int], **arguments: Any) -> None:
    """Run a watcher until its third pause, before which it has no event."""
    trigger = rebuilt(DeltaTableVersionTrigger(**arguments))
    trigger.asset_state_store = States()  # type: ignore[assignment]

    async def third_pause() -> None:
        event = asyncio.ensure_future(anext(trigger.run()))
        deadline = time.monotonic() + 60
        while len(failures) < 3:
            assert not event.done()
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
        event.cancel()
        with pytest.raises(asyncio.CancelledError):
            await event

    asyncio.run(third_pause())


def test_a_task_fails_at_once(store: AnsweringStore) -> None:
    task = CheckpointOperator(task_id="t", table_uri=TABLE, delta_conn_id="lake", retries=3)
    task.render_template_fields({})
    with pytest.raises(TableFailure, match=r"failed: .*wrong or expired") as caught:
        task.execute({})
    assert len(store.asked) <= REQUESTS
    assert SECRET not in str(caught.value)
    rendered = {name: getattr(task, name) for name in task.template_fields}
    assert SECRET not in str(rendered)


def test_a_deferred_sensor_fails_after_a_second_look_at_the_connection(
    store: AnsweringStore, caplog: pytest.LogCaptureFixture
) -> None:
    # Even if errors that may pass are to be logged only.
    trigger = TableVersionTrigger(
        table_uri=TABLE, delta_conn_id="lake", silent_fail=True, min_version=1, poke_interval=0.01
    )
    with caplog.at_level(logging.DEBUG):
        event = event_of(rebuilt(trigger))
    assert (event["status"], event["error"]) == ("error", "AccessDeniedError")
    assert len(store.asked) <= 2 * REQUESTS
    for text in (str(event), str(trigger.serialize()), caplog.text):
        assert SECRET not in text


@pytest.mark.parametrize("silent_fail", [False, True])
@pytest.mark.parametrize("deferrable", [False, True])
def test_a_sensor_fails_at_once(
    store: AnsweringStore, caplog: pytest.LogCaptureFixture, deferrable: bool, silent_fail: bool
) -> None:
    waiting = sensor(deferrable=deferrable, silent_fail=silent_fail)
    waiting.render_template_fields({})
    with (
        caplog.at_level(logging.DEBUG),
        pytest.raises(TableFailure, match=r"failed: .*wrong or expired") as caught,
    ):
        waiting.execute(context())
    assert len(store.asked) <= REQUESTS
    rendered = {name: getattr(waiting, name) for name in waiting.template_fields}
    assert SECRET not in f"{caught.value} {caplog.text} {rendered}"


@pytest.mark.parametrize("as_json", [[], ["--json"]])
@pytest.mark.parametrize("by_connection", [False, True])
def test_the_command_line_fails_at_once(
    store: AnsweringStore,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    by_connection: bool,
    as_json: list[str],
) -> None:
    options = json.loads(os.environ["AIRFLOW_CONN_LAKE"])["extra"]
    monkeypatch.setenv(OPTIONS_VARIABLE, json.dumps(options))
    words = ["--conn-id", "lake"] if by_connection else []
    assert main(["describe", TABLE, *words, *as_json]) == 1
    captured = capsys.readouterr()
    (problem,) = [line for line in captured.err.splitlines() if "wrong or expired" in line]
    if as_json:
        assert json.loads(problem)["error"]["type"] == "AccessDeniedError"
    assert SECRET not in captured.out + captured.err
    assert len(store.asked) <= REQUESTS


def test_a_watcher_pauses_longer_and_longer(
    store: AnsweringStore, caplog: pytest.LogCaptureFixture, failures: list[int]
) -> None:
    with caplog.at_level(logging.DEBUG):
        watch(failures, table_uri=TABLE, delta_conn_id="lake")
    assert failures == [1, 2, 3]
    assert len(store.asked) <= 3 * REQUESTS
    assert "AccessDeniedError" in caplog.text
    trigger = DeltaTableVersionTrigger(table_uri=TABLE, delta_conn_id="lake")
    assert SECRET not in caplog.text + str(trigger.serialize())


@pytest.mark.parametrize(
    "arguments",
    [{"table_uri": "s4://lake/sales"}, {"delta_conn_id": "lake_typo"}],
    ids=str,
)
def test_a_mistake_makes_a_watcher_pause(
    arguments: dict[str, str],
    store: AnsweringStore,
    caplog: pytest.LogCaptureFixture,
    failures: list[int],
) -> None:
    with caplog.at_level(logging.INFO):
        watch(failures, **{"table_uri": TABLE, "delta_conn_id": "lake", **arguments})
    assert failures == [1, 2, 3]
    (found,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert next(iter(arguments.values())) in found.getMessage()
    assert store.asked == []
    assert SECRET not in caplog.text


@pytest.mark.parametrize("place", ["", "rows.csv"])
def test_a_watcher_of_a_place_that_is_no_table_says_so_once(
    place: str, caplog: pytest.LogCaptureFixture, failures: list[int], tmp_path: Path
) -> None:
    (tmp_path / "rows.csv").write_text("id\n1\n")
    uri = str(tmp_path / place)
    with caplog.at_level(logging.INFO, logger="airflow_delta.triggers"):
        watch(failures, table_uri=uri)
    assert set(failures) == {0}, "it looks again after its interval"
    said = f"{uri}: waiting for new versions, last seen: no table"
    assert [record.getMessage() for record in caplog.records] == [said]


def test_a_watcher_pauses_after_looks_that_hang(
    caplog: pytest.LogCaptureFixture, failures: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, pause = threading.Event(), shared_pace.pause_seconds
    started: list[int] = []

    def hang(poll: VersionPoll, table: Any) -> None:
        started.append(1)
        answers.wait(20)

    def patient_after_two(interval: float, failed: int) -> float:
        seconds = pause(interval, failed)
        if len(failures) == 2:
            monkeypatch.setattr(blocking_calls, "LOOK_SECONDS", 60)
            answers.set()
        return seconds

    monkeypatch.setattr(VersionPoll, "look", hang)
    monkeypatch.setattr(shared_pace, "pause_seconds", patient_after_two)
    monkeypatch.setattr(blocking_calls, "LOOK_SECONDS", 0.05)
    with caplog.at_level(logging.INFO):
        watch(failures, table_uri="memory://lake/hangs")
    assert failures[:3] == [1, 2, 0], "the third wait for the look gets the answer"
    assert len(started) == 1
    assert "TimeoutError: no answer within 0.05 seconds" in caplog.text


@pytest.mark.parametrize("uri", ["s4://lake/sales", "wasbs://files@lake/sales"])
def test_an_unknown_scheme_fails_at_once(uri: str, store: AnsweringStore) -> None:
    checkpoint = CheckpointOperator(task_id="t", table_uri=uri, delta_conn_id="lake", retries=3)
    for task in (checkpoint, sensor(uri, deferrable=False), sensor(uri, deferrable=True)):
        with pytest.raises(TableFailure, match=r"scheme|protocol") as caught:
            task.execute(context())
        assert SECRET not in str(caught.value)
    assert store.asked == []


def test_a_connection_that_is_not_there_is_named_at_once(store: AnsweringStore) -> None:
    named = {"delta_conn_id": "lake_typo"}
    checkpoint = CheckpointOperator(task_id="t", table_uri=TABLE, **named)
    message = r"'lake_typo' \(delta_conn_id\) isn't defined"
    for task in (checkpoint, sensor(deferrable=False, **named), sensor(deferrable=True, **named)):
        with pytest.raises(AirflowNotFoundException, match=message):
            task.execute(context())
    assert store.asked == []


def test_a_trigger_of_a_connection_that_is_not_there_fails_at_once() -> None:
    trigger = TableVersionTrigger(table_uri=TABLE, delta_conn_id="lake_typo", min_version=1)
    event = event_of(rebuilt(trigger))
    assert (event["status"], event["error"]) == ("error", "AirflowNotFoundException")
    assert "'lake_typo' (delta_conn_id) isn't defined" in event["message"]
