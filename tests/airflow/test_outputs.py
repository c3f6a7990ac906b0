"""What tasks return: each value by itself, and of the types that are promised."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints, is_typeddict

import pytest

from airflow_delta import results
from airflow_delta.engine import DeltaTable
from airflow_delta.operators.backfill import BackfillOperator
from airflow_delta.operators.checkpoint import CheckpointOperator
from airflow_delta.operators.commit_ownership import (
    ConvertToFileSystemOperator,
    ConvertToManagedCommitOperator,
)
from airflow_delta.operators.convert import ConvertToDeltaOperator
from airflow_delta.operators.drop_feature import DropFeatureOperator
from airflow_delta.operators.log_compaction import LogCompactionOperator
from airflow_delta.operators.metadata_cleanup import MetadataCleanupOperator
from airflow_delta.operators.optimize import OptimizeOperator
from airflow_delta.operators.restore import RestoreOperator
from airflow_delta.operators.table_profile import TableProfileOperator
from airflow_delta.operators.time_travel_snapshot import TimeTravelSnapshotOperator
from airflow_delta.operators.vacuum import VacuumOperator
from airflow_delta.sensors.backfill import BackfillSensor
from airflow_delta.sensors.table_version import TableVersionSensor
from airflow_delta.sensors.truncation import TruncationSensor
from tests.airflow.dag_runs import new_dag, run_of
from tests.airflow.expiring_tables import expire, write_v2_table
from tests.airflow.feed_runs import Runs, Submissions, feed, three_versions
from tests.airflow.managed_tables import commit, use_owner
from tests.engine.maintenance.convert.parquet_folders import write_parquet


def test_each_value_is_an_output(airflow_database: Path, sales_copy: Path) -> None:
    from airflow.sdk import task

    table = str(sales_copy)
    with new_dag() as dag:

        @task
        def choose() -> dict[str, Any]:
            """Which version to pin."""
            return {"version": 2}

        @task
        def tell(version: int, whole: dict[str, Any], rows: int | None) -> list[Any]:
            """What has arrived."""
            return [version, whole["version"], whole["num_files"], rows]

        @task
        def add_up(versions: Any) -> int:
            """The sum of what mapped tasks have pinned."""
            return sum(versions)

        wait = TableVersionSensor(task_id="wait", table_uri=table, deferrable=False)
        later = TableVersionSensor(
            task_id="later",
            table_uri=wait.output["table_uri"],
            min_version=wait.output["version"],
            deferrable=True,
        )
        chosen = choose()
        pin = TimeTravelSnapshotOperator(
            task_id="pin", table_uri=later.output["table_uri"], version=chosen["version"]
        )
        CheckpointOperator(
            task_id="checkpoint", table_uri=pin.output["table_uri"], version=pin.output["version"]
        )
        tell(pin.output["version"], pin.output, pin.output["num_rows"])
        pins = TimeTravelSnapshotOperator.partial(task_id="pins", table_uri=table).expand(
            version=[0, 1, 2]
        )
        add_up(pins.output["version"])
    assert dag.get_task("checkpoint").upstream_task_ids == {"pin"}
    run = run_of(dag)
    assert run.state == "success", run.states
    assert run.results["tell"] == [2, 2, run.results["pin"]["num_files"], 30]
    assert run.results["later"] == {"table_uri": table, "version": 3}
    assert run.results["checkpoint"]["version"] == 2
    assert run.results["add_up"] == 3


def test_the_values_of_a_deferred_wait_are_outputs(
    airflow_database: Path, sales_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import asyncio

    newest = sales_copy / "_delta_log" / f"{3:020}.json"
    hidden = newest.rename(sales_copy / "version-3")
    sleep = asyncio.sleep

    async def arrive(seconds: float) -> None:
        if hidden.exists():
            hidden.rename(newest)
        await sleep(0)

    monkeypatch.setattr("airflow_delta.triggers.table_poll.asyncio.sleep", arrive)
    with new_dag() as dag:
        wait = TableVersionSensor(
            task_id="wait", table_uri=str(sales_copy), min_version=3, deferrable=True
        )
        TimeTravelSnapshotOperator(
            task_id="pin", table_uri=wait.output["table_uri"], version=wait.output["version"]
        )
    run = run_of(dag)
    assert not hidden.exists(), "it was not deferred"
    assert run.results["pin"]["version"] == 3


def test_they_can_be_left_out(airflow_database: Path, sales_copy: Path) -> None:
    table = {"table_uri": str(sales_copy)}
    with new_dag() as dag:
        pin = TimeTravelSnapshotOperator(task_id="pin", multiple_outputs=False, **table)
        CheckpointOperator(task_id="checkpoint", version=pin.output["version"], **table)
    assert run_of(dag).states == {"pin": "success", "checkpoint": "failed"}


# The types


def check(found: Any, kind: Any, where: str) -> None:
    """Make sure that a value is of a type, as far as annotations here go."""
    if kind is Any:
        return
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        options = get_args(kind)
        if found is None:
            assert NoneType in options, where
            return
        (kind,) = (option for option in options if option is not NoneType)
        check(found, kind, where)
    elif is_typeddict(kind):
        hints = get_type_hints(kind)
        assert set(found) == set(hints), f"{where}: {set(found) ^ set(hints)}"
        for name, value in found.items():
            check(value, hints[name], f"{where}.{name}")
    elif origin is dict:
        for name, value in found.items():
            check(name, str, where)
            check(value, get_args(kind)[1], f"{where}[{name!r}]")
    elif origin is list:
        for value in found:
            check(value, get_args(kind)[0], where)
    else:
        assert type(found) is kind, f"{where}: {found!r} is no {kind}"


def executed(kind: Any, table: Any, **arguments: Any) -> Any:
    from tests.airflow.run_context import context_of

    context = context_of("t")
    context["ti"].get_first_reschedule_date = lambda _: None
    return kind(task_id="t", table_uri=str(table), **arguments).execute(context)


def test_results_are_of_their_types(sales_copy: Path, tmp_path: Path) -> None:
    for kind, promised, arguments in (
        (TableVersionSensor, results.VersionWaitResult, {}),
        (BackfillSensor, results.BackfillWaitResult, {}),
        (TimeTravelSnapshotOperator, results.PinResult, {}),
        (TimeTravelSnapshotOperator, results.EventPinResult, {"version": "triggering_event"}),
        (TableProfileOperator, results.TableProfileResult, {"columns": []}),
        (LogCompactionOperator, results.LogCompactionResult, {"start": 1, "end": 2}),
        (CheckpointOperator, results.CheckpointResult, {}),
        (VacuumOperator, results.VacuumResult, {}),
        (RestoreOperator, results.RestoreResult, {"version": 1}),
        (RestoreOperator, results.RestoreResult, {"version": 1, "dry_run": True}),
        (MetadataCleanupOperator, results.MetadataCleanupResult, {}),
        (OptimizeOperator, results.OptimizeResult, {"dry_run": True}),
        (OptimizeOperator, results.OptimizeResult, {}),
    ):
        check(executed(kind, sales_copy, **arguments), promised, kind.__name__)
    folder = write_parquet(tmp_path / "folder" / "p=1" / "0.parquet", {"id": [1]}).parents[1]
    for _ in range(2):
        converted = executed(ConvertToDeltaOperator, folder, partition_schema={"p": "long"})
        check(converted, results.ConvertResult, "convert")
    v2_table = write_v2_table(tmp_path / "v2")
    drop: Any = {"feature": "v2Checkpoint", "truncate_history": True}
    check(executed(DropFeatureOperator, v2_table, **drop), results.DropFeatureResult, "drop")
    expire(v2_table)
    waited = executed(TruncationSensor, v2_table, feature="v2Checkpoint")
    check(waited, results.TruncationWaitResult, "truncation")
    check(executed(DropFeatureOperator, v2_table, **drop), results.DropFeatureResult, "drop")


def test_results_of_managed_tables_are_of_their_types(
    sales_copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_owner(monkeypatch, tmp_path / "owner.db")
    converted = executed(ConvertToManagedCommitOperator, sales_copy)
    check(converted, results.CommitOwnershipResult, "convert")
    commit(sales_copy, owner_of(sales_copy, tmp_path / "owner.db"))
    check(executed(BackfillOperator, sales_copy), results.BackfillResult, "backfill")
    released = executed(ConvertToFileSystemOperator, sales_copy)
    check(released, results.CommitOwnershipResult, "release")


def owner_of(table: Path, file: Path) -> Any:
    from airflow_delta.engine.commit.sql.owner import SqlCommitOwner

    owner = SqlCommitOwner(f"sqlite:///{file}")
    assert DeltaTable(table, commit_owners={"sql": owner}).commit_status().owner == "sql"
    return owner


def test_results_with_a_target_are_of_their_types(
    sales: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fake_spark_submit: Path
) -> None:
    fake_spark_submit.write_text(
        "import json, sys\n"
        "answer = {'num_rows': 20, 'num_files': 2, 'committed_version': 5, 'expires_at': None}\n"
        "json.dump(answer, open(json.load(open(sys.argv[-1]))['result_path'], 'w'))\n"
    )
    copied = executed(TimeTravelSnapshotOperator, sales, target_uri=str(tmp_path / "copy"))
    check(copied, results.CopyResult, "copy")
    Submissions(monkeypatch)
    changes = three_versions(tmp_path)
    appended = Runs().run(feed(changes, target_uri=str(tmp_path / "changes")))
    check(appended, results.ChangesAppended, "feed")
    check(Runs().run(feed(changes)), results.ChangeFeedResult, "feed")


def test_the_types_cost_nothing() -> None:
    code = (
        "import sys, airflow_delta.results\n"
        "heavy = {'airflow', 'pyarrow', 'airflow_delta.engine.errors', 'airflow_delta.hooks'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert sorted(results.__all__) == list(results.__all__)
