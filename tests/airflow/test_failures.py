"""The one policy of failures: which errors fail a task for good, and which are worth another try."""

from __future__ import annotations

import asyncio
import importlib
import pkgutil
from pathlib import Path
from typing import Any

import pytest

import airflow_delta.spark
from airflow_delta.engine import DeltaTable, errors
from airflow_delta.hooks.argument_rules import check_location
from airflow_delta.hooks.delta import DeltaHook
from airflow_delta.hooks.failures import (
    POLICY,
    TableFailure,
    failures_by_policy,
    is_permanent,
    is_permanent_kind,
)
from airflow_delta.operators.backfill import BackfillOperator
from airflow_delta.operators.change_feed import ChangeFeedOperator
from airflow_delta.operators.checkpoint import CheckpointOperator
from airflow_delta.operators.commit_ownership import (
    ConvertToFileSystemOperator,
    ConvertToManagedCommitOperator,
)
from airflow_delta.operators.convert import ConvertToDeltaOperator
from airflow_delta.operators.delete import DeleteOperator
from airflow_delta.operators.drop_feature import DropFeatureOperator
from airflow_delta.operators.log_compaction import LogCompactionOperator
from airflow_delta.operators.merge import MergeOperator
from airflow_delta.operators.metadata_cleanup import MetadataCleanupOperator
from airflow_delta.operators.optimize import OptimizeOperator
from airflow_delta.operators.restore import RestoreOperator
from airflow_delta.operators.row_rules import AddConstraintOperator, SetNotNullOperator
from airflow_delta.operators.row_tracking import EnableRowTrackingOperator
from airflow_delta.operators.table_profile import TableProfileOperator
from airflow_delta.operators.table_task import TableTask
from airflow_delta.operators.time_travel_snapshot import TimeTravelSnapshotOperator
from airflow_delta.operators.update import UpdateOperator
from airflow_delta.operators.vacuum import VacuumOperator
from airflow_delta.operators.write import WriteOperator
from airflow_delta.sensors.backfill import BackfillSensor
from airflow_delta.sensors.table_version import TableVersionSensor
from airflow_delta.sensors.truncation import TruncationSensor
from airflow_delta.triggers.table_version import TableVersionTrigger
from airflow_delta.version_compat import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
)
from tests.airflow.dag_runs import new_dag, run_of
from tests.airflow.failures import fails_for_good
from tests.airflow.waits import context
from tests.object_stores import new_place

SENSORS: list[tuple[Any, dict[str, Any]]] = [
    (BackfillSensor, {}),
    (TableVersionSensor, {}),
    (TruncationSensor, {"feature": "deletionVectors"}),
]
OPERATORS: list[tuple[Any, dict[str, Any]]] = [
    (AddConstraintOperator, {"name": "c", "expression": "x > 0"}),
    (BackfillOperator, {}),
    (ChangeFeedOperator, {}),
    (CheckpointOperator, {}),
    (ConvertToFileSystemOperator, {}),
    (ConvertToManagedCommitOperator, {}),
    (ConvertToDeltaOperator, {}),
    (DeleteOperator, {"condition": "x > 0"}),
    (DropFeatureOperator, {"feature": "deletionVectors"}),
    (EnableRowTrackingOperator, {}),
    (LogCompactionOperator, {}),
    (
        MergeOperator,
        {
            "source_uri": "/data/new",
            "on": "target.id = source.id",
            "clauses": [{"when": "matched", "then": "delete"}],
        },
    ),
    (MetadataCleanupOperator, {}),
    (OptimizeOperator, {}),
    (RestoreOperator, {"version": 1}),
    (SetNotNullOperator, {"column": "x"}),
    (TableProfileOperator, {}),
    (TimeTravelSnapshotOperator, {}),
    (UpdateOperator, {"set": {"x": "1"}, "condition": "x > 0"}),
    (VacuumOperator, {}),
    (WriteOperator, {"source_uri": "/data/new"}),
]


def tree(kind: type[errors.DeltaError] = errors.DeltaError) -> list[type[errors.DeltaError]]:
    return [kind, *(below for child in kind.__subclasses__() for below in tree(child))]


def test_every_class_of_the_engine_is_classified() -> None:
    known = {kind.__name__ for kind in tree() if kind.__module__ == errors.__name__}
    assert known == set(POLICY)
    assert set(POLICY.values()) == {"fail", "retry"}


def test_errors_of_other_modules_count_as_the_class_above_them() -> None:
    for module in pkgutil.walk_packages(airflow_delta.spark.__path__, "airflow_delta.spark."):
        if "jobs." not in module.name:
            importlib.import_module(module.name)
    others = [kind for kind in tree() if kind.__module__ != errors.__name__]
    assert others, "there is one at least: of copies that are being deleted"
    for kind in others:
        # A Spark job reports the name alone.
        assert is_permanent(kind("x")) is is_permanent_kind(kind.__name__), kind


@pytest.mark.parametrize("kind", [k for k in tree() if k.__module__ == errors.__name__])
def test_the_error_is_kept(kind: type[errors.DeltaError]) -> None:
    error = kind("what is wrong", table="s3://lake/t", version=7)
    wrong = pytest.raises(Exception, match=r"^s3://lake/t: what is wrong$")
    with wrong as raised, failures_by_policy():
        raise error
    if POLICY[kind.__name__] == "retry":
        assert raised.value is error
        assert not isinstance(raised.value, AirflowException)
    else:
        assert isinstance(raised.value, AirflowFailException)
        assert raised.value.__cause__ is error


def test_the_policy_is_what_it_promises() -> None:
    for kind in ("InvalidArgumentError", "UnsupportedFeatureError", "RetentionError"):
        assert POLICY[kind] == "fail"
    for kind in ("VersionNotFoundError", "TimestampOutOfRangeError", "MissingFilesError"):
        assert POLICY[kind] == "fail"
    for kind in ("StorageError", "CommitConflictError", "CommitOwnerUnavailableError"):
        assert POLICY[kind] == "retry"
    assert POLICY["NotBackfilledError"] == "retry"


def test_all_tasks_are_tried_here() -> None:
    tried = {kind for kind, _ in [*OPERATORS, *SENSORS]}
    known = {kind for kind in _leaves(TableTask) if kind.__module__.startswith("airflow_delta.")}
    assert known == tried


def _leaves(kind: type) -> set[type]:
    below = kind.__subclasses__()
    return set().union(*map(_leaves, below)) if below else {kind}


@pytest.mark.parametrize("error", [errors.RetentionError("kept"), errors.StorageError("away")])
@pytest.mark.parametrize(("kind", "arguments"), [*OPERATORS, *SENSORS])
def test_each_task_goes_by_the_policy(
    monkeypatch: pytest.MonkeyPatch, kind: Any, arguments: dict[str, Any], error: Exception
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(DeltaHook, "_open", fail)
    task = kind(task_id="t", table_uri="/data/t", **arguments)
    for execute in (task.execute, getattr(task, "poke", task.execute)):
        if isinstance(error, errors.StorageError):
            with pytest.raises(errors.StorageError, match="away"):
                execute(run_context())
        else:
            with fails_for_good(errors.RetentionError, match="kept"):
                execute(run_context())


def run_context() -> Any:
    from datetime import datetime, timezone
    from types import SimpleNamespace

    run = SimpleNamespace(run_after=datetime(2026, 3, 1, tzinfo=timezone.utc))
    instance = context()["ti"]
    instance.__dict__.update({"dag_id": "lake", "task_id": "t", "map_index": -1, "run_id": "r"})
    return {"ti": instance, "dag_run": run}


PERMANENT = errors.UnsupportedFeatureError("needs a newer engine")


@pytest.mark.parametrize("deferrable", [False, True])
@pytest.mark.parametrize("arguments", [{}, {"soft_fail": True}, {"silent_fail": True}], ids=str)
def test_a_sensor_fails_for_good_where_no_other_look_helps(
    monkeypatch: pytest.MonkeyPatch, deferrable: bool, arguments: dict[str, bool]
) -> None:
    """Airflow itself would skip it with ``soft_fail``."""
    looks: list[int] = []

    def fail(*_: Any, **__: Any) -> Any:
        looks.append(1)
        raise PERMANENT

    monkeypatch.setattr(DeltaHook, "latest_version", staticmethod(fail))
    waiting = TableVersionSensor(
        task_id="t", table_uri="memory://t", deferrable=deferrable, **arguments
    )
    with fails_for_good(errors.UnsupportedFeatureError, match="needs a newer engine"):
        waiting.execute(run_context())
    trigger = TableVersionTrigger(
        table_uri="memory://t", min_version=1, silent_fail=bool(arguments.get("silent_fail"))
    )

    async def first_event() -> Any:
        return (await anext(trigger.run())).payload

    event = asyncio.run(first_event())
    assert event["error"] == "UnsupportedFeatureError"
    with fails_for_good(errors.UnsupportedFeatureError, match="needs a newer engine"):
        waiting.resume_execution("execute_complete", {"event": event}, run_context())
    assert len(looks) == 2


@pytest.mark.parametrize("deferrable", [False, True])
def test_a_sensor_that_never_fails_is_skipped(
    monkeypatch: pytest.MonkeyPatch, deferrable: bool
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise PERMANENT

    monkeypatch.setattr(DeltaHook, "latest_version", staticmethod(fail))
    waiting = TableVersionSensor(
        task_id="t", table_uri="memory://t", deferrable=deferrable, never_fail=True
    )
    with pytest.raises(AirflowSkipException):
        waiting.execute(run_context())
    event = {"status": "error", "error": "UnsupportedFeatureError", "message": "x"}
    with pytest.raises(AirflowSkipException):
        waiting.resume_execution("execute_complete", {"event": event}, run_context())


def test_in_a_run_only_what_may_pass_is_tried_again(
    airflow_database: Path, sales_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with new_dag(default_args={"retries": 1, "retry_delay": 0}) as dag:
        TimeTravelSnapshotOperator(task_id="missing", table_uri=str(sales_copy), version=99)
        CheckpointOperator(task_id="away", table_uri=str(sales_copy))
    away = errors.StorageError("away")

    def fail(*_: Any, **__: Any) -> Any:
        raise away

    monkeypatch.setattr(DeltaHook, "checkpoint", fail)
    run = run_of(dag)
    assert run.states["missing"] == "failed"
    assert run.states["away"] in {"up_for_retry", "failed"}
    assert run.tries == {"missing": 1, "away": 2}


def test_a_failure_of_a_hook_can_be_judged_in_tasks_of_one_s_own(sales: Path) -> None:
    with fails_for_good(errors.VersionNotFoundError), failures_by_policy():
        DeltaHook().pin(str(sales), version=99)
    assert issubclass(TableFailure, AirflowFailException)


@pytest.mark.parametrize("slip", ["s3:/bucket/key", "abfss:/c@a/t", "data/t", "", "C:/data/t"])
def test_a_slip_in_a_location_fails_when_the_dag_is_parsed(slip: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="table_uri: expected an absolute path"):
        check_location(slip)
    for right in (
        "/data/t",
        "file:/data/t",
        "file:///data/t",
        "s3://bucket/key",
        "zip://t::s3://b/k",
    ):
        assert check_location(right) == right
    with pytest.raises(errors.InvalidArgumentError, match="found 'h/t', which") as refused:
        check_location("h/t?token=secret")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("https://h/t?token=secret", "https://h/t"),
        ("HTTP://h/t?secret", "HTTP://h/t"),
        ("https://h/t#secret", "https://h/t"),
        ("s3://lake/t?sig=secret", "s3://lake/t"),
        ("s3a://prod@lake/t/?X-Amz-Signature=secret", "s3a://prod@lake/t/"),
        ("abfss://c@lake.dfs.core.windows.net/t?sv=1&sig=secret", None),
        ("wasbs://c@lake.blob.core.windows.net/t?sv=1&sig=secret", None),
        ("s3://lake/what?/t?sig=secret", "s3://lake/what?/t"),
        ("s3:/lake/t?sig=secret", "s3:/lake/t"),
        ("unknown+kind://h/t?key=secret", "unknown+kind://h/t"),
    ],
)
def test_a_query_of_a_location_is_refused_and_not_shown(uri: str, shown: str | None) -> None:
    """Airflow would show it in rendered templates, logs, triggers and XCom."""
    hook, extra = DeltaHook(), {"allowed_outside": [uri]}
    for refuse in (
        check_location,
        hook.table,
        hook.storage_options,
        lambda uri: CheckpointOperator(task_id="t", table_uri=uri),
        lambda _: CheckpointOperator(task_id="t", table_uri="/t", **extra),
        lambda uri: TableVersionSensor(task_id="t", table_uri=uri, min_version=1),
    ):
        with pytest.raises(ValueError, match=r"has a query|expected an absolute path") as refused:
            refuse(uri)
        assert "secret" not in str(refused.value)
        assert shown is None or shown in str(refused.value)
    trigger = TableVersionTrigger(table_uri=uri, min_version=1)

    async def first_event() -> Any:
        return (await anext(trigger.run())).payload

    event = asyncio.run(first_event())
    assert event["error"] == "InvalidArgumentError"
    assert "secret" not in str(event)


@pytest.mark.parametrize(
    "uri",
    [
        "/data/what?",
        "/data/day?=1/t",
        "/data/t?sig=1",
        "file:///data/t?sig=1",
        "file:/data/t%3Fsig=1",
        "memory://tables/a?b=1",
        "s3://lake/what?/t",
        "s3://lake/a?b",
        "s3://lake/t%3Fsig=1",
        "s3://lake/a#1",
        "https://h/t%3Fx=1",
        "zip://t::https://h/archive.zip?dl=1",
    ],
)
def test_a_question_mark_in_a_name_is_no_query(uri: str) -> None:
    assert check_location(uri) == uri


def test_the_hook_takes_no_relative_path() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="table_uri: expected an absolute path"):
        DeltaHook().table("data/t")
    trigger = TableVersionTrigger(table_uri="data/t", min_version=1)

    async def first_event() -> Any:
        return (await anext(trigger.run())).payload

    event = asyncio.run(first_event())
    assert (event["status"], event["error"]) == ("error", "InvalidArgumentError")
    assert "expected an absolute path" in event["message"]


def test_a_bucket_that_is_not_there_fails_at_once(tmp_path: Path) -> None:
    """The location is wrong. To try it again helps nobody."""
    uri, options = new_place("s3", tmp_path)
    table = DeltaTable(f"{uri}-which-is-not-there/t", options)
    for ask in (table.exists, table.latest_version, table.snapshot, table.checkpoint):
        with (
            pytest.raises(TableFailure, match="the bucket or container doesn't exist"),
            failures_by_policy(),
        ):
            ask()
