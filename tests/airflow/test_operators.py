"""The operators, executed as a worker does, without a DAG run and without Spark."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_delta.engine.errors import (
    CorruptLogError,
    DeltaError,
    TableNotFoundError,
    TimestampOutOfRangeError,
    VersionNotFoundError,
)
from airflow_delta.operators.checkpoint import CheckpointOperator
from airflow_delta.operators.run_identity import run_identity
from airflow_delta.operators.time_travel_snapshot import TimeTravelSnapshotOperator
from airflow_delta.version_compat import AirflowFailException
from tests.airflow.failures import fails_for_good
from tests.airflow.task_state import TaskState
from tests.conftest import write_sales


def context(state: TaskState | None = None) -> Any:
    found: dict[str, Any] = {
        "ti": SimpleNamespace(dag_id="lake", task_id="copy", map_index=-1),
        "dag_run": SimpleNamespace(run_after=datetime(2026, 3, 1, tzinfo=timezone.utc)),
    }
    if state is not None:
        found["task_state_store"] = state
    return found


def pin(table: Path, **arguments: Any) -> dict[str, Any]:
    state = arguments.pop("state", None)
    operator = TimeTravelSnapshotOperator(task_id="pin", table_uri=str(table), **arguments)
    return operator.execute(context(state))


def drop_newest(table: Path) -> None:
    """Take the newest commit away: the table is as it was before it."""
    sorted((table / "_delta_log").glob("*.json"))[-1].unlink()


def test_arguments_are_rendered() -> None:
    operator = TimeTravelSnapshotOperator(
        task_id="pin",
        table_uri="{{ params.uri }}",
        version="{{ params.version }}",
        target_uri="{{ params.uri }}_copy",
        expire_after="P{{ params.days }}D",
        spark_conf={"spark.executor.memory": "{{ params.memory }}"},
    )
    params = {"uri": "s3://lake/t", "version": 4, "memory": "2g", "days": 7}
    operator.render_template_fields({"params": params})  # type: ignore[arg-type]
    assert operator.table_uri == "s3://lake/t"
    assert operator.version == "4"
    assert operator.target_uri == "s3://lake/t_copy"
    assert operator.expire_after == "P7D"
    assert operator.spark_conf == {"spark.executor.memory": "2g"}


@pytest.mark.parametrize("version", [1, "1"])
def test_a_version_is_pinned(sales: Path, version: int | str) -> None:
    assert pin(sales, version=version)["version"] == 1


def test_without_a_choice_the_newest_version_is_pinned(sales: Path) -> None:
    pinned = pin(sales)
    commit = (sales / "_delta_log" / f"{3:020}.json").stat()
    assert pinned["table_uri"] == str(sales)
    assert pinned["version"] == 3
    assert pinned["timestamp_ms"] == commit.st_mtime_ns // 1_000_000
    assert json.loads(json.dumps(pinned)) == pinned, "XCom carries JSON"


def test_a_timestamp_pins_the_newest_version_at_that_time(sales: Path) -> None:
    modified = (sales / "_delta_log" / f"{1:020}.json").stat().st_mtime_ns // 1_000_000
    assert pin(sales, timestamp=modified)["version"] == 1
    assert pin(sales, timestamp=str(modified))["version"] == 1
    iso = datetime.fromtimestamp(modified / 1000, timezone.utc).isoformat(timespec="milliseconds")
    assert pin(sales, timestamp=iso)["version"] == 1
    assert pin(sales, timestamp=modified - 1)["version"] == 0


def test_now_pins_the_newest_version_of_a_quiet_table(sales: Path) -> None:
    """``{{ ts }}`` is later than the newest commit of any table that nobody writes to at the moment."""
    now = datetime.now(timezone.utc)
    for moment in (now, now + timedelta(seconds=20)):  # the scheduler's clock may be ahead
        assert pin(sales, timestamp=moment.isoformat())["version"] == 3


def test_a_time_that_is_yet_to_come_is_refused(sales: Path) -> None:
    """Later commits may still belong to it; and it may be milliseconds where seconds were meant."""
    tomorrow = datetime.now(timezone.utc) + timedelta(days=1)
    for far in (tomorrow.isoformat(), int(tomorrow.timestamp() * 1_000_000)):
        with fails_for_good(TimestampOutOfRangeError, match=re.escape(str(sales))):
            pin(sales, timestamp=far)


def test_a_retry_pins_what_the_first_try_pinned(sales_copy: Path) -> None:
    table, state = sales_copy, TaskState()
    newest = table / "_delta_log" / f"{3:020}.json"
    hidden = newest.rename(table / "version-3")
    assert pin(table, state=state)["version"] == 2
    hidden.rename(newest)
    assert pin(table, state=state)["version"] == 2
    assert pin(table, state=TaskState())["version"] == 3, "another run pins anew"


def test_a_changed_argument_is_not_answered_from_the_first_try(sales: Path, tmp_path: Path) -> None:
    other, state = write_sales(tmp_path / "other", version=2), TaskState()
    assert pin(sales, state=state)["version"] == 3
    assert pin(other, state=state)["version"] == 2
    assert pin(other, state=state, version=0)["version"] == 0


def test_version_and_timestamp_together_are_refused(sales: Path) -> None:
    with pytest.raises(ValueError, match=r"both version=1 and timestamp='2024-01-01T00:00:00Z'"):
        pin(sales, version=1, timestamp="2024-01-01T00:00:00Z")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"version": 99}, VersionNotFoundError),
        ({"timestamp": 0}, TimestampOutOfRangeError),
    ],
)
def test_what_cannot_be_pinned_is_a_typed_error_that_names_the_table(
    sales: Path, arguments: dict[str, Any], error: type[DeltaError]
) -> None:
    with fails_for_good(error, match=re.escape(str(sales))):
        pin(sales, **arguments)


def test_a_missing_table_is_a_typed_error(tmp_path: Path) -> None:
    with fails_for_good(TableNotFoundError, match="nothing-here"):
        pin(tmp_path / "nothing-here")
    with fails_for_good(TableNotFoundError, match="nothing-here"):
        CheckpointOperator(task_id="c", table_uri=str(tmp_path / "nothing-here")).execute({})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b'{"add": ', b"\xff\xfe"])
def test_a_task_that_fails_leaves_the_log_as_it_was(sales_copy: Path, content: bytes) -> None:
    log = sales_copy / "_delta_log"
    (log / f"{2:020}.json").write_bytes(content)
    before = {file.name: file.read_bytes() for file in log.iterdir()}
    with fails_for_good(CorruptLogError, match=f"{2:020}.json"):
        CheckpointOperator(task_id="checkpoint", table_uri=str(sales_copy)).execute({})
    assert {file.name: file.read_bytes() for file in log.iterdir()} == before


@pytest.mark.parametrize(("version", "written"), [(None, 3), ("2", 2)])
def test_a_checkpoint_is_written_and_read_by_others(
    sales_copy: Path, version: str | None, written: int
) -> None:
    from deltalake import DeltaTable

    expected = sorted(DeltaTable(str(sales_copy), version=written).file_uris())
    operator = CheckpointOperator(task_id="checkpoint", table_uri=str(sales_copy), version=version)
    result = operator.execute({})
    assert (result["table_uri"], result["version"]) == (str(sales_copy), written)
    assert json.loads(json.dumps(result)) == result, "XCom carries JSON"
    log = sales_copy / "_delta_log"
    assert (log / f"{written:020}.checkpoint.parquet").is_file()
    assert json.loads((log / "_last_checkpoint").read_text())["version"] == written
    for old in range(written + 1):
        (log / f"{old:020}.json").unlink()  # nothing but the checkpoint is left of them
    assert sorted(DeltaTable(str(sales_copy), version=written).file_uris()) == expected


def test_a_second_try_of_a_checkpoint_is_harmless(sales_copy: Path) -> None:
    operator = CheckpointOperator(task_id="checkpoint", table_uri=str(sales_copy))
    assert operator.execute({})["version"] == operator.execute({})["version"] == 3


def test_nothing_is_read_before_a_task_runs() -> None:
    # A DAG file is parsed where its tables may be out of reach.
    TimeTravelSnapshotOperator(task_id="pin", table_uri="s3://no-such-bucket/t", version=9)
    CheckpointOperator(task_id="checkpoint", table_uri="/no/table", delta_conn_id="not-there")


def test_a_connection_asked_for_must_exist(sales: Path) -> None:
    from airflow_delta.version_compat import AirflowNotFoundException

    # Paths need no credentials; a connection that the user names is resolved nevertheless.
    with pytest.raises(AirflowNotFoundException, match="'not_there'"):
        pin(sales, delta_conn_id="not_there")


# Stands for the job: writes down what it was asked to do.
ECHO = """
import json, sys
parameters = json.load(open(sys.argv[-1]))
answer = {{"num_rows": 20, "num_files": 2, "committed_version": 5}}
json.dump(answer, open(parameters.pop("result_path"), "w"))
json.dump(parameters, open({asked!r}, "w"))
"""


def test_a_copy_is_asked_for_with_the_pinned_version_and_the_identity_of_the_task(
    sales: Path, fake_spark_submit: Path, tmp_path: Path
) -> None:
    asked = tmp_path / "asked.json"
    fake_spark_submit.write_text(ECHO.format(asked=str(asked)))
    result = pin(sales, version="2", target_uri="/data/copy")
    assert json.loads(asked.read_text()) == {
        "table_uri": str(sales),
        "version": 2,
        "target_uri": "/data/copy",
        "format": "delta",
        "app_id": "airflow:lake.copy",
        "app_version": run_identity(context())[1],
        "replace_newer": False,
    }
    assert result == {
        **pin(sales, version=2),
        "target_uri": "/data/copy",
        "target_version": 5,
        "target_num_files": 2,
        "target_num_rows": 20,
        "expires_at": None,
        "deleted_copies": [],
    }


def test_a_copy_that_expires_is_asked_for(
    sales: Path, fake_spark_submit: Path, tmp_path: Path
) -> None:
    asked = tmp_path / "asked.json"
    fake_spark_submit.write_text(
        ECHO.format(asked=str(asked)).replace('"num_rows": 20', '"num_rows": 20, "expires_at": "T"')
    )
    target = str(tmp_path / "copy")
    result = pin(sales, target_uri=target, target_format="csv", expire_after=timedelta(days=7))
    assert json.loads(asked.read_text())["expire_after_ms"] == 7 * 86_400_000
    assert (result["expires_at"], result["deleted_copies"]) == ("T", [])


def test_columns_that_a_format_cannot_hold_fail_the_task_for_good_and_without_spark(
    tmp_path: Path, fake_spark_submit: Path
) -> None:
    import pyarrow as pa
    from deltalake import write_deltalake

    fake_spark_submit.write_text("raise SystemExit('must not be started')")
    write_deltalake(tmp_path / "t", pa.table({"id": [1], "tags": [["a"]]}))
    with pytest.raises(
        AirflowFailException, match=r"csv can't hold the columns tags \(array<string>"
    ):
        pin(tmp_path / "t", target_uri="/data/copy", target_format="csv")


def test_without_a_target_nothing_is_submitted(sales: Path) -> None:
    result = pin(sales, target_uri=None, spark_conn_id="not_there")
    assert "target_uri" not in result


def make_copy(table: Path, target: Path, *, version: int, by_task: bool = True) -> int:
    """Mark a commit of a table as a copy of a version of another; made by the task, or not."""
    from airflow_delta.copies.source import copy_app_id
    from airflow_delta.engine import DeltaTable

    transaction = DeltaTable(str(target)).transaction("WRITE")
    table_id = DeltaTable(str(table)).snapshot().metadata.id
    transaction.set_transaction(copy_app_id(table_id), version)
    if by_task:
        transaction.set_transaction(*run_identity(context()))
    return transaction.commit().version


def test_a_copy_that_an_earlier_try_has_committed_is_found_without_spark(
    sales: Path, sales_copy: Path, fake_spark_submit: Path
) -> None:
    fake_spark_submit.write_text("raise SystemExit('must not be started')")
    target = sales_copy
    committed = make_copy(sales, target, version=3)
    make_copy(sales, target, version=4, by_task=False)  # a later run has replaced it
    result = pin(sales, target_uri=str(target))
    assert (result["version"], result["target_version"]) == (3, committed)


@pytest.mark.parametrize("copied", [1, None])
def test_a_cleared_task_that_pins_another_version_copies_it(
    sales: Path, sales_copy: Path, fake_spark_submit: Path, tmp_path: Path, copied: int | None
) -> None:
    asked = tmp_path / "asked.json"
    fake_spark_submit.write_text(ECHO.format(asked=str(asked)))
    if copied is None:
        # The commit has the identity of the task, and is a copy of some other table.
        make_copy(write_sales(tmp_path / "other", version=0), sales_copy, version=3)
        make_copy(sales, sales_copy, version=2, by_task=False)
    else:
        make_copy(sales, sales_copy, version=copied)
    result = pin(sales, version=3, target_uri=str(sales_copy))
    assert json.loads(asked.read_text())["version"] == 3
    assert (result["version"], result["target_version"]) == (3, 5)


@pytest.mark.parametrize(
    ("copied", "message"),
    [
        (None, "it holds no copy of this table"),
        (4, "a copy of version 4, which is newer than version 3"),
    ],
)
def test_a_target_that_must_stay_fails_the_task_for_good_and_without_spark(
    sales: Path,
    tmp_path: Path,
    fake_spark_submit: Path,
    copied: int | None,
    message: str,
) -> None:
    import pyarrow as pa
    from deltalake import write_deltalake

    fake_spark_submit.write_text("raise SystemExit('must not be started')")
    target = tmp_path / "target"
    write_deltalake(target, pa.table({"id": pa.array([1], pa.int64())}))
    if copied is not None:
        make_copy(sales, target, version=copied, by_task=False)
    with pytest.raises(AirflowFailException, match=message):
        pin(sales, target_uri=str(target))


def test_an_unknown_format_fails_the_task_for_good(sales: Path) -> None:
    with pytest.raises(
        AirflowFailException,
        match="expected one of delta, parquet, csv, json, found 'orc'",
    ):
        pin(sales, target_uri="/data/copy", target_format="orc")


def test_credentials_of_two_stores_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from airflow_delta.hooks.delta import DeltaHook
    from airflow_delta.version_compat import AirflowException

    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", '{"conn_type": "aws", "login": "a"}')
    monkeypatch.setenv("AIRFLOW_CONN_WASB_DEFAULT", '{"conn_type": "wasb", "login": "b"}')
    hook = DeltaHook()
    one = {"aws_access_key_id": "a"}
    assert hook.common_storage_options("s3://lake/t", "/data/t") == one
    assert hook.common_storage_options("/data/t", "s3://lake/t") == one
    assert hook.common_storage_options("s3://lake/t", "s3://lake/u") == one
    with pytest.raises(AirflowException, match="s3://lake/t and az://lake/t need different"):
        hook.common_storage_options("s3://lake/t", "az://lake/t")
