"""A triggerer whose supervisor hardly answers: no mark is stored before its event."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.executors.workloads.trigger import RunTrigger
from airflow.jobs.triggerer_job_runner import TriggerRunner, messages
from airflow.models.trigger import Trigger
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import (
    AssetStateStoreResult,
    GetVariableKeys,
    OKResponse,
    SetAssetStateStoreByName,
    VariableKeysResult,
)

from airflow_delta.triggers import new_versions, shared_pace
from airflow_delta.triggers.new_versions import DeltaTableVersionTrigger
from tests.airflow.watched_tables import WatchedTable

LOOK_SECONDS = 0.01


class Supervisor:
    """Handles the messages of a triggerer one after the other, as Airflow's does.

    It stores events at the end of a round, and confirms them with its next answer.

    Attributes:
        stalls: whether it stops before the next message about the states of triggers.
        goes_on: set when it may go on.
        steps: what it has stored: ``event`` or ``mark``, with a version.
    """

    def __init__(self, trigger: DeltaTableVersionTrigger) -> None:
        path, arguments = trigger.serialize()
        self._to_create = [
            RunTrigger(
                id=1,
                classpath=path,
                encrypted_kwargs=Trigger.encrypt_kwargs(arguments),
                watched_assets={"sales": "file:///sales"},
            )
        ]
        self._messages: asyncio.Queue[tuple[Any, asyncio.Future[Any]]] = asyncio.Queue()
        self._persisted: list[int] = []
        # What the runner looks at: whether it must end because its supervisor is gone.
        self._reader_task: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.stalls = False
        self.is_stalled = False
        self.goes_on = asyncio.Event()
        self.steps: list[tuple[str, int]] = []

    async def asend(self, message: Any) -> Any:
        """Answer a message of the triggerer."""
        answer = asyncio.get_running_loop().create_future()
        self._messages.put_nowait((message, answer))
        return await answer

    async def run(self) -> None:
        while True:
            message, answer = await self._messages.get()
            events: list[Any] = []
            if isinstance(message, messages.TriggerStateChanges):
                if self.stalls:
                    self.stalls, self.is_stalled = False, True
                    await self.goes_on.wait()
                events = message.events or []
                created, self._to_create = self._to_create, []
                persisted, self._persisted = self._persisted, []
                response: Any = messages.TriggerStateSync(
                    to_create=created, to_cancel=set(), events_persisted=persisted or None
                )
            elif isinstance(message, SetAssetStateStoreByName):
                self.steps.append(("mark", message.value["version"]))  # type: ignore[index,call-overload,arg-type]
                response = OKResponse(ok=True)
            elif isinstance(message, GetVariableKeys):
                response = VariableKeysResult(keys=[], total_entries=0)
            else:
                response = AssetStateStoreResult(value=None)
            if not answer.done():
                answer.set_result(response)
            for entry in events:
                self.steps.append(("event", entry.event.payload["version"]))
                self._persisted.append(entry.persist_seq)


class Runner(TriggerRunner):
    """Airflow's own runner of triggers, in the process of the test."""

    def __init__(self, supervisor: Supervisor) -> None:
        super().__init__()
        self._supervisor = supervisor

    async def init_comms(self) -> None:
        self.comms_decoder = self._supervisor  # type: ignore[assignment]


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it didn't come to that")


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_pace, "pause_seconds", lambda interval, failures: LOOK_SECONDS)
    monkeypatch.setattr(new_versions.random, "uniform", lambda least, most: 0.0)


def test_a_mark_is_stored_after_its_event_however_long_the_supervisor_stalls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = WatchedTable.created(tmp_path / "sales")

    async def watch() -> list[tuple[str, int]]:
        supervisor = Supervisor(DeltaTableVersionTrigger(table_uri=table.uri))
        monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", supervisor, raising=False)
        serving = asyncio.ensure_future(supervisor.run())
        runner = Runner(supervisor)
        running = asyncio.ensure_future(runner.arun())
        await until(lambda: ("mark", 0) in supervisor.steps)
        supervisor.stalls = True
        await until(lambda: supervisor.is_stalled)
        table.commit()
        # The event waits for the answer to the message before it, while the watcher looks again and again.
        await until(lambda: bool(runner.events))
        await asyncio.sleep(50 * LOOK_SECONDS)
        assert ("event", 1) not in supervisor.steps
        supervisor.goes_on.set()
        await until(lambda: ("mark", 1) in supervisor.steps)
        runner._handle_signal(0, None)
        await running
        serving.cancel()
        return supervisor.steps

    steps = asyncio.run(watch())
    assert steps.index(("event", 1)) < steps.index(("mark", 1))
