"""How a trigger reads and sets Variables, in which the mark of a watcher survives its asset.

``test_live_events.py`` removes an asset in a whole Airflow. ``test_version_trigger.py`` has what the
watcher makes of the Variables.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from airflow.sdk.exceptions import ErrorType
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import (
    ErrorResponse,
    GetVariable,
    GetVariableKeys,
    PutVariable,
    VariableKeysResult,
    VariableResult,
)

from airflow_delta.version_compat import AirflowRuntimeError, find_variables, set_variable

NOT_FOUND = ErrorResponse(error=ErrorType.VARIABLE_NOT_FOUND, detail={"key": "a.1"})
FAILED = ErrorResponse(error=ErrorType.API_SERVER_ERROR, detail={"status_code": 500})


class Supervisor:
    """Answers the messages of a trigger with prepared answers."""

    def __init__(self, *answers: Any) -> None:
        self._answers = [*answers]
        self.messages: list[Any] = []

    async def asend(self, message: Any) -> Any:
        self.messages.append(message)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def supervised(monkeypatch: pytest.MonkeyPatch, *answers: Any) -> Supervisor:
    made = Supervisor(*answers)
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", made, raising=False)
    return made


def listed(*keys: str) -> VariableKeysResult:
    return VariableKeysResult(keys=[*keys], total_entries=len(keys))


def test_the_variables_with_a_prefix_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = (VariableResult(key=f"a.{number}", value=number) for number in "12")
    supervisor = supervised(monkeypatch, listed("a.1", "a.2"), one, two)
    assert asyncio.run(find_variables("a.")) == {"a.1": "1", "a.2": "2"}
    assert supervisor.messages == [
        GetVariableKeys(prefix="a."),
        GetVariable(key="a.1"),
        GetVariable(key="a.2"),
    ]
    supervised(monkeypatch, listed())
    assert asyncio.run(find_variables("a.")) == {}


@pytest.mark.parametrize("answer", [NOT_FOUND, FAILED, VariableResult(key="a.1", value=None)])
def test_a_listed_variable_that_cannot_be_read_is_not_missing(
    monkeypatch: pytest.MonkeyPatch, answer: Any
) -> None:
    """Airflow says that it is not found if the database or a secrets backend fails meanwhile."""
    supervised(monkeypatch, listed("a.1"), answer)
    with pytest.raises(RuntimeError, match=r"can't read the Variable a\.1: "):
        asyncio.run(find_variables("a."))


@pytest.mark.parametrize("answer", [FAILED, AirflowRuntimeError(FAILED)])
def test_variables_that_cannot_be_listed_are_not_missing(
    monkeypatch: pytest.MonkeyPatch, answer: Any
) -> None:
    supervised(monkeypatch, answer)
    with pytest.raises((AirflowRuntimeError, RuntimeError), match=r"a\.|API_SERVER_ERROR"):
        asyncio.run(find_variables("a."))


def test_a_variable_is_set_with_its_description(monkeypatch: pytest.MonkeyPatch) -> None:
    supervisor = supervised(monkeypatch, None)
    asyncio.run(set_variable("a.1", "1", "for people"))
    assert supervisor.messages == [PutVariable(key="a.1", value="1", description="for people")]
    supervised(monkeypatch, AirflowRuntimeError(FAILED))
    with pytest.raises(AirflowRuntimeError):
        asyncio.run(set_variable("a.1", "1", "for people"))
