"""Connections that don't exist, and such that can't be looked up because a secrets backend fails."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time import supervisor, task_runner
from airflow.sdk.execution_time.comms import (
    ConnectionResult,
    ErrorResponse,
    GetConnection,
    GetVariableKeys,
    VariableKeysResult,
)
from airflow.sdk.execution_time.secrets.execution_api import ExecutionAPISecretsBackend

from airflow_delta.engine.commit.sql.owner import URL_VARIABLE
from airflow_delta.engine.errors import CommitOwnerUnavailableError, DeltaWarning, StorageError
from airflow_delta.hooks.delta import DeltaHook
from airflow_delta.hooks.failures import is_permanent
from airflow_delta.operators.checkpoint import CheckpointOperator
from airflow_delta.sensors.table_version import TableVersionSensor
from airflow_delta.triggers import table_opening
from airflow_delta.triggers.table_opening import OpenedTable
from airflow_delta.triggers.table_version import TableVersionTrigger
from airflow_delta.version_compat import AirflowNotFoundException, Connection
from tests.airflow.managed_tables import hand_over
from tests.airflow.waits import context, event_of

SECRET = "t0ken-of-the-vault"
LAKE = Connection(conn_id="aws_default", conn_type="aws", login="AKIA", password="s3cr3t-key")
OPTIONS = {"aws_access_key_id": "AKIA", "aws_secret_access_key": "s3cr3t-key"}


class Vault:
    """A secrets backend that answers with prepared answers, the last of them again and again."""

    def __init__(self, *answers: Connection | Exception | None) -> None:
        self._answers = [*answers]

    def get_connection(self, conn_id: str) -> Connection | None:
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer if answer is not None and answer.conn_id == conn_id else None


class Supervisor:
    """Gives each question for a connection the same answer, and each for Variables another one."""

    def __init__(self, answer: Any, listed: Any) -> None:
        self._answer, self._listed = answer, listed

    def send(self, message: Any) -> Any:
        assert isinstance(message, GetConnection | GetVariableKeys)
        answer = self._answer if isinstance(message, GetConnection) else self._listed
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def asend(self, message: Any) -> Any:
        return self.send(message)


DOWN = ConnectionError(f"GET vault?token={SECRET} timed out")


def use_backends(monkeypatch: pytest.MonkeyPatch, *backends: Any) -> None:
    monkeypatch.setattr(supervisor, "ensure_secrets_backend_loaded", lambda: [*backends])


NO_VARIABLES = VariableKeysResult(keys=[], total_entries=0)


def use_supervisor(
    monkeypatch: pytest.MonkeyPatch, answer: Any, listed: Any = NO_VARIABLES
) -> None:
    made = Supervisor(answer, listed)
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", made, raising=False)
    use_backends(monkeypatch, ExecutionAPISecretsBackend())


def in_a_trigger(hook: DeltaHook, uri: str) -> dict[str, str]:
    return asyncio.run(hook.storage_options_async(uri))


WAYS = pytest.mark.parametrize("find", [DeltaHook.storage_options, in_a_trigger])
Find = Callable[[DeltaHook, str], dict[str, str]]


@WAYS
def test_a_default_connection_is_not_missing_while_a_backend_fails(
    monkeypatch: pytest.MonkeyPatch, find: Find
) -> None:
    use_backends(monkeypatch, Vault(DOWN), Vault(None))
    with pytest.raises(StorageError, match=r"'aws_default' can't be looked up") as caught:
        find(DeltaHook(), "s3://lake/t")
    assert "Vault (ConnectionError)" in str(caught.value)
    assert SECRET not in str(caught.value)
    assert caught.value.__suppress_context__, "a traceback would show the backend's text"
    assert not is_permanent(caught.value)


@WAYS
def test_a_named_connection_is_not_missing_while_a_backend_fails(
    monkeypatch: pytest.MonkeyPatch, find: Find
) -> None:
    use_backends(monkeypatch, Vault(DOWN))
    with pytest.raises(StorageError, match=r"'lake' can't be looked up, and may exist"):
        find(DeltaHook("lake"), "s3://lake/t")
    with pytest.raises(StorageError, match=r"'lake' can't be looked up, and may exist"):
        find(DeltaHook(), "s3://lake@bucket/t")


@WAYS
def test_a_connection_of_a_backend_that_has_recovered_is_used(
    monkeypatch: pytest.MonkeyPatch, find: Find
) -> None:
    use_backends(monkeypatch, Vault(DOWN, LAKE))
    assert find(DeltaHook(), "s3://lake/t") == OPTIONS


@WAYS
def test_a_connection_of_another_backend_is_used(
    monkeypatch: pytest.MonkeyPatch, find: Find
) -> None:
    use_backends(monkeypatch, Vault(DOWN), Vault(LAKE))
    assert find(DeltaHook(), "s3://lake/t") == OPTIONS


@WAYS
def test_a_default_connection_is_missing_if_all_backends_say_so(
    monkeypatch: pytest.MonkeyPatch, find: Find
) -> None:
    use_backends(monkeypatch, Vault(None), Vault(None))
    assert find(DeltaHook(), "s3://lake/t") == {}
    with pytest.raises(AirflowNotFoundException, match=r"'lake' \(delta_conn_id\) isn't defined"):
        find(DeltaHook("lake"), "s3://lake/t")


@WAYS
def test_a_default_connection_that_is_malformed_is_not_missing(
    monkeypatch: pytest.MonkeyPatch, find: Find
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", '{"conn_type": "aws", "password": "s3cr3t-key"')
    with pytest.raises(StorageError, match="EnvironmentVariablesBackend") as caught:
        find(DeltaHook(), "s3://lake/t")
    assert "s3cr3t-key" not in str(caught.value)


MISSING = ErrorResponse(error=ErrorType.CONNECTION_NOT_FOUND, detail={"conn_id": "aws_default"})
FAILURES = pytest.mark.parametrize(
    "answer",
    [
        ErrorResponse(error=ErrorType.API_SERVER_ERROR, detail={"status_code": 500}),
        ErrorResponse(error=ErrorType.GENERIC_ERROR),
        AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR)),
        EOFError("the supervisor is gone"),
        None,
    ],
    ids=["500", "other", "raised", "no supervisor", "no answer"],
)


@WAYS
@FAILURES
def test_a_connection_is_not_missing_while_the_database_of_the_api_server_fails(
    monkeypatch: pytest.MonkeyPatch, answer: Any, find: Find
) -> None:
    """Then the API server answers that it isn't there."""
    use_supervisor(monkeypatch, MISSING, answer)
    with pytest.raises(StorageError, match=r"ExecutionAPISecretsBackend \("):
        find(DeltaHook(), "s3://lake/t")


@WAYS
@FAILURES
def test_a_connection_is_not_missing_while_the_api_server_fails(
    monkeypatch: pytest.MonkeyPatch, answer: Any, find: Find
) -> None:
    use_supervisor(monkeypatch, answer)
    with pytest.raises(StorageError, match=r"ExecutionAPISecretsBackend \("):
        find(DeltaHook(), "s3://lake/t")


@WAYS
def test_the_api_server_says_that_there_is_no_connection(
    monkeypatch: pytest.MonkeyPatch, find: Find
) -> None:
    use_supervisor(monkeypatch, MISSING)
    assert find(DeltaHook(), "s3://lake/t") == {}


@WAYS
def test_the_second_answer_of_the_api_server_is_used(
    monkeypatch: pytest.MonkeyPatch, find: Find
) -> None:
    found = ConnectionResult(
        conn_id="aws_default",
        conn_type="aws",
        login="AKIA",
        password="s3cr3t-key",
        **dict.fromkeys(("host", "schema", "port", "extra")),
    )
    use_supervisor(monkeypatch, found)
    # The first look has failed.
    monkeypatch.setattr(ExecutionAPISecretsBackend, "get_connection", lambda *_, **__: None)
    monkeypatch.setattr(ExecutionAPISecretsBackend, "aget_connection", None)
    assert find(DeltaHook(), "s3://lake/t") == OPTIONS


def test_tasks_and_triggers_fail_with_a_temporary_error(monkeypatch: pytest.MonkeyPatch) -> None:
    use_backends(monkeypatch, Vault(DOWN))
    for task in (
        CheckpointOperator(task_id="t", table_uri="s3://lake/t"),
        TableVersionSensor(task_id="t", table_uri="s3://lake/t", min_version=1, deferrable=False),
    ):
        with pytest.raises(StorageError, match=r"'aws_default' can't be looked up"):
            task.execute(context())
    event = event_of(TableVersionTrigger(table_uri="s3://lake/t", min_version=1))
    assert (event["status"], event["error"]) == ("error", "StorageError")
    assert SECRET not in str(event)


def test_tables_without_an_owner_are_opened_while_its_connection_is_unknown(
    monkeypatch: pytest.MonkeyPatch,
    sales_copy: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv(URL_VARIABLE, raising=False)
    use_backends(monkeypatch, Vault(DOWN))
    uri = str(sales_copy)
    tables = DeltaHook().table(uri), asyncio.run(DeltaHook().table_async(uri))
    for table in tables:
        table.snapshot()
    logged = capfd.readouterr().out
    assert logged.count("a managed table has no commit owner: the connection") == len(tables)
    assert SECRET not in logged
    hand_over(sales_copy, tmp_path / "owner.db")
    table = DeltaHook().table(uri)
    with pytest.warns(DeltaWarning, match="may be stale: the commit owner 'sql' doesn't know"):
        table.snapshot()
    with pytest.raises(CommitOwnerUnavailableError):
        table.alter.set_properties({"number": "1"})


def test_another_database_does_not_become_the_owner_while_its_connection_is_unknown(
    monkeypatch: pytest.MonkeyPatch, sales: Path
) -> None:
    use_backends(monkeypatch, Vault(DOWN))
    monkeypatch.setenv(URL_VARIABLE, "sqlite:////another.db")
    message = "'delta_commit_owner_default' can't be looked up"
    with pytest.raises(StorageError, match=message):
        DeltaHook().table(str(sales))
    with pytest.raises(StorageError, match=message):
        asyncio.run(DeltaHook().table_async(str(sales)))


def test_a_trigger_opens_a_table_again_whose_owner_was_unknown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    opened = OpenedTable(lambda table: table, str(tmp_path), None, None)
    use_backends(monkeypatch, Vault(DOWN))
    first = opened.look()
    assert opened.look() is first
    use_backends(monkeypatch, Vault(None))
    monkeypatch.setattr(table_opening, "time", SimpleNamespace(monotonic=lambda: math.inf))
    again = opened.look()
    assert again is not first
    assert opened.look() is again
