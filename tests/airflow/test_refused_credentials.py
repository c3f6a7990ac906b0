"""What tasks, triggers and watchers do when the store refuses the credentials of a connection."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from airflow_delta.hooks.failures import TableFailure
from airflow_delta.operators.checkpoint import CheckpointOperator
from airflow_delta.triggers import new_versions, shared_pace
from airflow_delta.triggers.new_versions import DeltaTableVersionTrigger
from airflow_delta.triggers.table_version import TableVersionTrigger
from tests.airflow.waits import event_of, rebuilt
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


def test_a_watcher_pauses_longer_and_longer(
    store: AnsweringStore, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[int] = []

    def pause(interval: float, failed: int) -> float:
        failures.append(failed)
        return 0.01 if failed < 3 else 3600.0

    monkeypatch.setattr(shared_pace, "pause_seconds", pause)
    monkeypatch.setattr(new_versions.random, "uniform", lambda least, most: 0.0)
    trigger = DeltaTableVersionTrigger(table_uri=TABLE, delta_conn_id="lake")

    async def watch() -> Any:
        events = trigger.run()
        return await asyncio.wait_for(anext(events), 2.0)

    with caplog.at_level(logging.DEBUG), pytest.raises(asyncio.TimeoutError):
        asyncio.run(watch())
    assert failures == [1, 2, 3]
    assert len(store.asked) <= 3 * REQUESTS
    assert "AccessDeniedError" in caplog.text
    assert SECRET not in caplog.text + str(trigger.serialize())


@pytest.mark.parametrize("uri", ["s4://lake/sales", "wasbs://files@lake/sales"])
def test_an_unknown_scheme_fails_at_once(uri: str, store: AnsweringStore) -> None:
    task = CheckpointOperator(task_id="t", table_uri=uri, delta_conn_id="lake", retries=3)
    with pytest.raises(TableFailure, match=r"scheme|protocol") as caught:
        task.execute({})
    assert SECRET not in str(caught.value)
    assert store.asked == []


def test_a_trigger_of_a_connection_that_is_not_there_fails_at_once() -> None:
    trigger = TableVersionTrigger(table_uri=TABLE, delta_conn_id="lake_typo", min_version=1)
    event = event_of(rebuilt(trigger))
    assert (event["status"], event["error"]) == ("error", "AirflowNotFoundException")
    assert "'lake_typo' (delta_conn_id) isn't defined" in event["message"]
