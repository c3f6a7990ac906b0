"""Handing tables over and taking them back as tasks, and what other tasks do with managed tables."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable as Peer
from deltalake import write_deltalake
from deltalake.exceptions import DeltaError
from sqlalchemy import make_url

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import (
    CommitOwnerUnavailableError,
    CommitStoreMissingError,
    InvalidArgumentError,
    NotBackfilledError,
    TableNotFoundError,
)
from airflow_delta.hooks.commit_owner import CommitOwnerHook
from airflow_delta.hooks.delta import DeltaHook
from airflow_delta.hooks.failures import ArgumentError
from airflow_delta.operators.backfill import BackfillOperator
from airflow_delta.operators.checkpoint import CheckpointOperator
from airflow_delta.operators.commit_ownership import (
    ConvertToFileSystemOperator,
    ConvertToManagedCommitOperator,
)
from airflow_delta.operators.log_compaction import LogCompactionOperator
from airflow_delta.operators.time_travel_snapshot import TimeTravelSnapshotOperator
from airflow_delta.sensors.backfill import BackfillSensor
from airflow_delta.sensors.table_version import TableVersionSensor
from airflow_delta.triggers.backfill import BackfillTrigger
from airflow_delta.version_compat import AirflowSkipException
from tests.airflow.failures import fails_for_good
from tests.airflow.managed_tables import commit, hand_over, in_log, sqlite_connection, use_owner
from tests.postgres_server import new_database

CONTEXT: Any = {}


@pytest.fixture
def owner_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of the owner that all tasks have."""
    file = tmp_path / "owner.db"
    use_owner(monkeypatch, file)
    return file


def convert(table: Path, **arguments: Any) -> dict[str, Any]:
    operator = ConvertToManagedCommitOperator(task_id="convert", table_uri=str(table), **arguments)
    return operator.execute(CONTEXT)


def release(table: Path, **arguments: Any) -> dict[str, Any]:
    operator = ConvertToFileSystemOperator(task_id="release", table_uri=str(table), **arguments)
    return operator.execute(CONTEXT)


def test_arguments_are_rendered() -> None:
    operator = ConvertToManagedCommitOperator(
        task_id="convert",
        table_uri="{{ params.uri }}",
        commit_owner="{{ params.owner }}",
        conf={"backfill": "{{ params.every }}"},
        commit_owner_conn_id="{{ params.owner }}_owner",
    )
    params: Any = {"params": {"uri": "s3://lake/t", "owner": "sql", "every": 10}}
    operator.render_template_fields(params)
    assert (operator.table_uri, operator.commit_owner) == ("s3://lake/t", "sql")
    assert operator.conf == {"backfill": "10"}
    assert operator.commit_owner_conn_id == "sql_owner"


def test_who_is_responsible_for_a_task_is_no_commit_owner() -> None:
    """DAGs mostly have an ``owner`` in their ``default_args``."""
    operator = ConvertToManagedCommitOperator(task_id="convert", table_uri="/t", owner="data-team")
    assert (operator.owner, operator.commit_owner) == ("data-team", "sql")


def test_a_table_is_handed_over_and_a_retry_finds_that(sales_copy: Path, owner_file: Path) -> None:
    result = convert(sales_copy, conf={"backfill": "3"})
    assert result == {
        "table_uri": str(sales_copy),
        "version": 4,
        "owner": "sql",
        "converted": True,
    }
    assert json.loads(json.dumps(result)) == result, "XCom carries JSON"
    told = json.loads(
        Peer(sales_copy).metadata().configuration["delta.managedCommit.commitOwnerConf"]
    )
    assert told["backfill"] == "3"
    assert set(told) == {"backfill", "tableId"}, (
        "the location of the commit store is nobody's business"
    )
    assert convert(sales_copy, conf={"backfill": "3"}) == {**result, "converted": False}
    assert convert(sales_copy) == {**result, "converted": False}


def test_a_table_is_given_back_and_a_retry_finds_that(sales_copy: Path, owner_file: Path) -> None:
    owner = hand_over(sales_copy, owner_file)
    commit(sales_copy, owner, 2)
    result = release(sales_copy)
    assert result == {
        "table_uri": str(sales_copy),
        "version": 7,
        "owner": None,
        "converted": True,
    }
    assert release(sales_copy) == {**result, "converted": False}
    assert in_log(sales_copy) == 7
    assert Peer(sales_copy).version() == 7


def test_deltalake_writes_a_table_again_that_was_given_back_without_in_commit_timestamps(
    sales_copy: Path, owner_file: Path
) -> None:
    commit(sales_copy, hand_over(sales_copy, owner_file))
    before = Peer(sales_copy).to_pyarrow_table()
    assert release(sales_copy, keep_in_commit_timestamps=False)["converted"]
    left = set(Peer(sales_copy).protocol().writer_features or [])
    assert not left & {"managedCommit", "inCommitTimestamp"}
    write_deltalake(sales_copy, before, mode="append")
    assert (Peer(sales_copy).version(), in_log(sales_copy)) == (7, 7)
    assert DeltaTable(sales_copy).snapshot().num_rows == 2 * before.num_rows


def test_deltalake_does_not_write_a_table_with_in_commit_timestamps(
    sales_copy: Path, owner_file: Path
) -> None:
    """As the guide says, and the docstring of the operator."""
    hand_over(sales_copy, owner_file)
    release(sales_copy)
    rows = Peer(sales_copy).to_pyarrow_table()
    with pytest.raises(DeltaError, match="InCommitTimestamp"):
        write_deltalake(sales_copy, rows, mode="append")
    assert release(sales_copy, keep_in_commit_timestamps=False)["converted"] is False


@pytest.mark.parametrize(
    ("conf", "problem"),
    [
        ({"backfill": "sometimes"}, r"conf\['backfill'\] is 'sometimes'.*'on-request' or 'direct'"),
        ({"backfil": "3"}, r"conf\['backfil'\] means nothing.*no other key than 'backfill'"),
    ],
)
def test_a_configuration_that_is_none_hands_nothing_over(
    sales_copy: Path, owner_file: Path, conf: dict[str, str], problem: str
) -> None:
    with fails_for_good(InvalidArgumentError, match=problem):
        convert(sales_copy, conf=conf)
    assert in_log(sales_copy) == 3
    assert convert(sales_copy, conf={"backfill": None})["converted"], "left out"


@pytest.mark.parametrize("conf", [{}, {"backfill": "1"}])
def test_the_default_policy_may_be_said(
    sales_copy: Path, owner_file: Path, conf: dict[str, str]
) -> None:
    assert convert(sales_copy, conf={} if conf else {"backfill": "1"})["converted"]
    assert not convert(sales_copy, conf=conf)["converted"]


def test_what_is_handed_over_is_seen_without_its_owner(
    sales_copy: Path, owner_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(sales_copy, hand_over(sales_copy, owner_file))
    monkeypatch.setenv("AIRFLOW_CONN_AWAY", sqlite_connection(tmp_path / "no" / "owner.db"))
    monkeypatch.delenv("AIRFLOW_CONN_DELTA_COMMIT_OWNER_DEFAULT")
    assert convert(sales_copy) == {
        "table_uri": str(sales_copy),
        "version": 4,
        "owner": "sql",
        "converted": False,
    }
    with pytest.raises(CommitOwnerUnavailableError, match="doesn't know its database"):
        convert(sales_copy, conf={"backfill": "on-request"})
    with pytest.raises(CommitOwnerUnavailableError):
        convert(sales_copy, commit_owner="another")
    # A place where there is nothing is no outage.
    with pytest.raises(CommitStoreMissingError, match=r"owner\.db isn't there"):
        convert(sales_copy, commit_owner_conn_id="away")


def test_the_owner_of_a_named_connection_gets_the_table(
    sales_copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CENTRAL", sqlite_connection(tmp_path / "named.db"))
    assert convert(sales_copy, commit_owner_conn_id="central")["converted"]
    assert (tmp_path / "named.db").exists()
    assert release(sales_copy, commit_owner_conn_id="central")["converted"]


def test_what_cannot_be_converted_is_a_typed_error(
    sales_copy: Path, owner_file: Path, tmp_path: Path
) -> None:
    with fails_for_good(TableNotFoundError, match="nothing"):
        convert(tmp_path / "nothing")
    with pytest.raises(CommitOwnerUnavailableError, match="'somebody' isn't known here"):
        convert(sales_copy, commit_owner="somebody")
    convert(sales_copy)
    with fails_for_good(
        InvalidArgumentError, match="has the table already, with the configuration"
    ):
        convert(sales_copy, conf={"backfill": "9"})


def test_without_an_owner_nothing_is_converted(sales_copy: Path) -> None:
    with pytest.raises(CommitOwnerUnavailableError, match="doesn't know its database"):
        convert(sales_copy)
    assert in_log(sales_copy) == 3


@pytest.mark.parametrize("kind", ["delta_commit_owner", "postgres"])
def test_from_the_connection_to_the_commit_store_in_postgresql(
    sales_copy: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    server = make_url(new_database())
    connection = {
        "conn_type": kind,
        "host": server.host,
        "port": server.port,
        "schema": server.database,
        "login": server.username,
        "password": server.password,
        "extra": {"application_name": "airflow-delta's tests"},
    }
    monkeypatch.setenv("AIRFLOW_CONN_CENTRAL", json.dumps(connection))
    owner = {"commit_owner_conn_id": "central"}
    assert convert(sales_copy, conf={"backfill": "on-request"}, **owner)["version"] == 4
    DeltaHook(None, "central").table(str(sales_copy)).alter.set_properties({"number": "5"})
    backfill = BackfillOperator(task_id="backfill", table_uri=str(sales_copy), **owner)
    facts = backfill.execute(CONTEXT)
    assert (facts["num_backfilled"], facts["version"], facts["lag"]) == (1, 5, 0)
    assert release(sales_copy, **owner)["version"] == 6
    fine, message = CommitOwnerHook("central").test_connection()
    assert fine
    assert str(server.password) not in message


# Other tasks


def test_a_checkpoint_is_of_what_is_backfilled_unless_that_is_done_first(
    sales_copy: Path, owner_file: Path
) -> None:
    commit(sales_copy, hand_over(sales_copy, owner_file), 2)

    def checkpoint(**arguments: Any) -> dict[str, Any]:
        operator = CheckpointOperator(task_id="c", table_uri=str(sales_copy), **arguments)
        return operator.execute(CONTEXT)

    assert checkpoint()["version"] == 4
    with pytest.raises(NotBackfilledError, match="newest backfilled version is 4"):
        checkpoint(version=5)
    assert checkpoint(version=5, backfill_first=True)["version"] == 5
    assert in_log(sales_copy) == 5
    assert checkpoint(backfill_first=True)["version"] == 6
    assert in_log(sales_copy) == 6


def test_a_compaction_is_of_what_is_backfilled_unless_that_is_done_first(
    sales_copy: Path, owner_file: Path
) -> None:
    commit(sales_copy, hand_over(sales_copy, owner_file), 2)

    def compact(**arguments: Any) -> dict[str, Any]:
        operator = LogCompactionOperator(
            task_id="c", table_uri=str(sales_copy), start=1, **arguments
        )
        return operator.execute(CONTEXT)

    assert compact()["end"] == 4
    with pytest.raises(NotBackfilledError, match="newest backfilled version is 4"):
        compact(end=6)
    assert compact(backfill_first=True)["end"] == 6
    assert in_log(sales_copy) == 6
    with pytest.raises(AirflowSkipException, match="exists already"):
        compact(backfill_first=True)


def test_backfilling_first_makes_no_difference_to_a_table_of_the_file_system(
    sales_copy: Path,
) -> None:
    operator = CheckpointOperator(task_id="c", table_uri=str(sales_copy), backfill_first=True)
    assert operator.execute(CONTEXT)["version"] == 3


def test_a_dry_run_backfills_nothing(sales_copy: Path, owner_file: Path) -> None:
    commit(sales_copy, hand_over(sales_copy, owner_file))
    operator = LogCompactionOperator(
        task_id="c", table_uri=str(sales_copy), start=1, dry_run=True, backfill_first=True
    )
    assert operator.execute(CONTEXT)["end"] == in_log(sales_copy) == 4


def test_a_version_that_only_the_owner_knows_can_be_pinned_and_waited_for(
    sales_copy: Path, owner_file: Path
) -> None:
    owner = hand_over(sales_copy, owner_file)
    commit(sales_copy, owner)
    pin = TimeTravelSnapshotOperator(task_id="pin", table_uri=str(sales_copy))
    pinned = pin.execute(CONTEXT)
    assert (pinned["version"], in_log(sales_copy)) == (5, 4)
    wait = TableVersionSensor(task_id="wait", table_uri=str(sales_copy), min_version=6)
    assert not wait.poke(CONTEXT).is_done
    commit(sales_copy, owner)
    found = wait.poke(CONTEXT)
    assert found.is_done
    assert found.xcom_value["version"] == 6
    assert in_log(sales_copy) == 4


def test_a_task_without_a_table_says_so() -> None:
    """An XCom that isn't there renders to nothing."""
    table: dict[str, Any] = {"task_id": "t", "table_uri": None}
    tasks = [
        BackfillOperator,
        CheckpointOperator,
        ConvertToFileSystemOperator,
        ConvertToManagedCommitOperator,
        LogCompactionOperator,
        TimeTravelSnapshotOperator,
        BackfillSensor,
        TableVersionSensor,
    ]
    for task in tasks:
        with pytest.raises(
            ArgumentError, match=r"table_uri: expected an absolute path .* found None"
        ):
            task(**table)
    nowhere: Any = None
    trigger: Any = BackfillTrigger(table_uri=nowhere)

    async def first_event() -> Any:
        return await anext(trigger.run())

    assert "found None" in asyncio.run(first_event()).payload["message"]


def test_a_named_connection_reaches_every_task(
    sales_copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "named.db"
    commit(sales_copy, hand_over(sales_copy, file))
    monkeypatch.setenv("AIRFLOW_CONN_CENTRAL", sqlite_connection(file))
    table = {"task_id": "t", "table_uri": str(sales_copy), "commit_owner_conn_id": "central"}
    pin = TimeTravelSnapshotOperator(**table)
    wait = TableVersionSensor(**table, min_version=5)
    assert pin.execute(CONTEXT)["version"] == 5
    assert wait.poke(CONTEXT).is_done
    checkpoint = CheckpointOperator(**table, backfill_first=True)
    assert checkpoint.execute(CONTEXT)["version"] == 5
    for operator in (pin, wait, checkpoint, LogCompactionOperator(**table)):
        assert "commit_owner_conn_id" in operator.template_fields


def test_a_deferred_wait_takes_the_connection_along(
    sales_copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.sdk.exceptions import TaskDeferred

    file = tmp_path / "named.db"
    owner = hand_over(sales_copy, file)
    monkeypatch.setenv("AIRFLOW_CONN_CENTRAL", sqlite_connection(file))
    wait = TableVersionSensor(
        task_id="wait",
        table_uri=str(sales_copy),
        min_version=5,
        commit_owner_conn_id="central",
        deferrable=True,
    )
    with pytest.raises(TaskDeferred) as deferred:
        wait.execute(CONTEXT)
    commit(sales_copy, owner)

    async def first_event() -> Any:
        return await anext(deferred.value.trigger.run())  # type: ignore[call-overload]

    assert asyncio.run(first_event()).payload["version"] == 5
    assert DeltaTable(sales_copy).uri == str(sales_copy)
