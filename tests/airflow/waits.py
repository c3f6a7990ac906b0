"""Waits that a sensor hands over to the triggerer, as far as they go in one process."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from airflow_delta.version_compat import TriggerEvent
from tests.airflow.task_state import TaskState

__all__ = ["context", "deferred", "event_of", "rebuilt"]

_TriggerT = TypeVar("_TriggerT")


def context(state: TaskState | None = None) -> Any:
    """The context of a sensor's first try."""
    found: dict[str, Any] = {"ti": SimpleNamespace(get_first_reschedule_date=lambda context: None)}
    return found if state is None else {**found, "task_state_store": state}


def rebuilt(trigger: _TriggerT) -> _TriggerT:
    """The trigger as the triggerer makes it, from what Airflow stored."""
    from airflow.sdk.module_loading import import_string

    path, arguments = trigger.serialize()  # type: ignore[attr-defined]
    made = import_string(path)(**json.loads(json.dumps(arguments)))
    assert isinstance(made, type(trigger))
    return made


def event_of(trigger: Any) -> dict[str, Any]:
    """The payload of a trigger's only event, as it comes back to the task."""

    async def collect() -> list[TriggerEvent]:
        return [event async for event in trigger.run()]

    (event,) = asyncio.run(collect())
    payload: dict[str, Any] = json.loads(json.dumps(event.payload))
    return payload


def deferred(waiting: Any, context: Any, kind: type[_TriggerT]) -> _TriggerT:
    """The trigger to which a sensor hands its wait over."""
    from airflow.sdk.exceptions import TaskDeferred

    with pytest.raises(TaskDeferred) as raised:
        waiting.execute(context)
    trigger = raised.value.trigger
    assert isinstance(trigger, kind)
    return trigger
