"""Operators of this package in a whole Airflow: what Airflow offers around tasks (pools, callbacks, mapped
tasks, setup and teardown, and backfills), Spark jobs whose task is ended from outside, tasks whose process
is killed, the DAGs of the tutorial that start by events, and connections.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.model.schema import INTEGER, StructField, StructType
from tests.airflow.live_stack import LiveStack, append_by_deltalake, live_stack
from tests.airflow.tutorial_page import files
from tests.object_stores import new_place
from tests.postgres_server import new_database

pytestmark = pytest.mark.deep

DAGS = Path(__file__).with_name("live_tasks_dag.py")
EVENT_DAGS = ("orders_events.py", "orders_cities.py")
"""The files of the tutorial whose DAGs start by events."""
DAYS = (1, 2, 3, 5)
STEPS = ("before", "after")
"""When the process of a task is killed: before or after its commit."""

# Instead of spark-submit: neither the program nor its child ends when it is asked to.
STAND_IN = """#!/bin/sh
trap '' TERM
sleep 3600 &
wait
"""

# Instead of the Python of the driver: the same one, with `HANGS` or `OUTLIVES`.
DRIVER = """#!/bin/sh
PYTHONPATH={folder}:$PYTHONPATH exec {python} "$@"
"""

HANGS = '''
"""Python imports this module when it starts: the driver hangs when it is about to commit."""
import threading
from airflow_delta.engine import OptimisticTransaction

def hang(*arguments, **named):
    open({mark!r}, "x").close()
    threading.Event().wait()

OptimisticTransaction.commit = hang
'''

OUTLIVES = '''
"""Python imports this module when it starts: the drivers of both tries are about to commit at once.

The first one commits then, and the second one afterwards.
"""
import os, time
from pathlib import Path
from airflow_delta.engine import OptimisticTransaction

commit = OptimisticTransaction.commit
number = int(os.environ["AIRFLOW_CTX_TRY_NUMBER"])

def wait_and_commit(*arguments, **named):
    folder = Path({folder!r})
    (folder / f"commit {{number}}").touch()
    awaited = folder / ("commit 2" if number == 1 else "committed 1")
    deadline = time.monotonic() + 300
    while not awaited.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    result = commit(*arguments, **named)
    (folder / f"committed {{number}}").touch()
    return result

OptimisticTransaction.commit = wait_and_commit
'''

SECRET = "s3cr3t/of+the=store"


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all tables. The scheduler makes a run at once, which pins a version of this one."""
    folder = tmp_path_factory.mktemp("tables")
    make_history(folder / "history")
    make_orders(folder)
    return folder


@pytest.fixture(scope="module")
def stack(tables: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveStack]:
    """An Airflow that has read the DAGs.

    Its database is PostgreSQL, because commands write beside the scheduler. SQLite has one writer at a
    time, so ``airflow backfill create`` may find it locked.
    """
    home = tmp_path_factory.mktemp("live")
    programs = home / "programs"
    programs.mkdir()
    write_program(programs / "spark3-submit", STAND_IN)
    stand_in = {
        "conn_type": "spark",
        "host": "local[1]",
        "extra": {"spark-binary": "spark3-submit"},
    }
    with live_stack(
        home / "airflow",
        DAGS,
        more_dags={name: files()[f"airflow/dags/{name}"] for name in EVENT_DAGS},
        database=new_database(),
        HOME=str(tables),
        TEST_LIVE_TABLES=str(tables),
        PATH=os.pathsep.join([str(programs), os.environ["PATH"]]),
        AIRFLOW_CONN_STAND_IN=json.dumps(stand_in),
        AIRFLOW__CORE__TEST_CONNECTION="Enabled",
    ) as stack:
        stack.wait("the DAGs", lambda: len(stack.rows("SELECT 1 FROM serialized_dag")) == 8)
        stack.wait_for_server()
        yield stack


def write_program(path: Path, text: str) -> None:
    """Write a program that can be started."""
    path.write_text(text)
    path.chmod(0o755)


def write_driver(path: Path, changes: str) -> None:
    """Write a Python for drivers that imports a module when it starts."""
    folder = path.with_name(f"{path.name}-modules")
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(changes)
    python = shlex.quote(sys.executable)
    write_program(path, DRIVER.format(folder=shlex.quote(str(folder)), python=python))


def make_history(table: Path) -> None:
    """Have deltalake make a table that got a version at noon of each day."""
    append_by_deltalake(table, len(DAYS))
    for version, day in enumerate(DAYS):
        time = datetime(2026, 1, day, 12, tzinfo=timezone.utc).timestamp()
        os.utime(table / "_delta_log" / f"{version:020}.json", (time, time))


def make_orders(home: Path) -> None:
    """Do steps 3 and 5 of the tutorial up to its DAG, in a home directory."""
    (home / "delta-tutorial" / "lake").mkdir(parents=True)
    run_of_tutorial(home, "create_orders.py")


def run_of_tutorial(home: Path, file: str) -> None:
    """Run a program of the tutorial on its table."""
    location = str(home / "delta-tutorial" / "lake" / "orders")
    subprocess.run([sys.executable, "-c", files()[file], location], check=True, timeout=200)


def states(stack: LiveStack, dag_id: str) -> dict[tuple[str, int], str]:
    """The states of a DAG's task instances, by task and map index."""
    rows = stack.rows(
        f"SELECT task_id, map_index, state FROM task_instance WHERE dag_id = '{dag_id}'"
    )
    return {(task_id, index): state for task_id, index, state in rows}


def test_operators_work_with_what_airflow_offers_around_tasks(
    stack: LiveStack, tables: Path
) -> None:
    (tables / "a").mkdir()
    pq.write_table(pa.table({"id": [1]}), tables / "a" / "1.parquet")
    append_by_deltalake(tables / "b", 1)
    stack.run("pools", "set", "delta", "1", "tasks on Delta tables")
    stack.run("dags", "trigger", "around_tasks")
    stack.run(
        *("backfill", "create", "--dag-id", "each_day", "--max-active-runs", "2"),
        *("--from-date", "2026-01-02", "--to-date", "2026-01-04"),
    )
    ended = "SELECT state FROM dag_run WHERE dag_id = '{}' AND state IN ('success', 'failed')"
    stack.wait("the tasks", lambda: bool(stack.rows(ended.format("around_tasks"))))
    found = states(stack, "around_tasks")
    assert [found["vacuum", index] for index in range(3)] == ["success", "success", "failed"]
    assert found["make", -1] == found["checkpoint", -1] == found["undo", -1] == "success"
    # The setup makes version 0, a task version 1; the teardown restores version 0 in spite of the failure.
    table = DeltaTable(str(tables / "a"))
    assert [info.operation for info in table.history()] == ["RESTORE", "WRITE", "CONVERT"]
    assert table.snapshot().to_arrow()["id"].to_pylist() == [1]
    # A missing table fails at once, without retries; each callback is called once for each try.
    assert sorted((tables / "callbacks").read_text().splitlines()) == [
        "failure vacuum 2",
        "retry undo -1",
        "success checkpoint -1",
        "success make -1",
        "success undo -1",
        "success vacuum 0",
        "success vacuum 1",
    ]
    in_pool = stack.rows("SELECT DISTINCT task_id FROM task_instance WHERE pool = 'delta'")
    assert {task_id for (task_id,) in in_pool} == {"vacuum", "checkpoint"}
    assert sorted(path.name for path in (tables / "a" / "_delta_log").glob("*.parquet")) == [
        f"{1:020}.checkpoint.parquet"
    ]
    # Each run of the backfill pins the version of its day, although newer ones exist.
    # The scheduler makes a run of today, too.
    backfilled = f"{ended.format('each_day')} AND run_id LIKE 'backfill%'"
    stack.wait("the backfill", lambda: len(stack.rows(backfilled)) == 3)
    pins = stack.results("pin", runs="backfill%")
    assert sorted(pin["version"] for pin in pins) == [0, 1, 2]


def job_processes(tables: Path, dag_id: str) -> set[int]:
    """The processes that the task of a DAG has started, and those that they have started.

    Airflow puts the task into the environment, which the processes of a Spark job inherit. The processes of
    Airflow itself don't have it: `/proc` shows the environment that a process had when it started.
    """
    marks = {f"TEST_LIVE_TABLES={tables}".encode(), f"AIRFLOW_CTX_DAG_ID={dag_id}".encode()}
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        # It may have ended meanwhile, or be another user's.
        with suppress(OSError):
            if marks <= {*(process / "environ").read_bytes().split(b"\0")}:
                found.add(int(process.name))
    return found


def test_a_task_that_is_ended_from_outside_ends_its_spark_job(
    stack: LiveStack, tables: Path
) -> None:
    """Airflow signals the process group of the task. spark-submit has its own, which `on_kill` must end."""
    append_by_deltalake(tables / "kept", 1)
    mark = tables / "hangs"
    write_driver(tables / "hanging-driver", HANGS.format(mark=str(mark)))
    dags = ("failed_run", "failed_task")
    try:
        for dag_id in dags:
            run = {"dag_run_id": "ended", "logical_date": None}
            stack.call("POST", f"/api/v2/dags/{dag_id}/dagRuns", run)
        # The JVM and the driver; the stand-in and its child.
        stack.wait("the commit", mark.exists)
        stack.wait("the stand-in", lambda: len(job_processes(tables, "failed_run")) == 2)
        assert len(job_processes(tables, "failed_task")) >= 2
        found = "SELECT dag_id, state, try_number FROM task_instance WHERE run_id = 'ended'"
        assert sorted(stack.rows(found)) == [(dag_id, "running", 1) for dag_id in dags]
        tasks = stack.rows("SELECT pid FROM task_instance WHERE run_id = 'ended'")

        task = "/api/v2/dags/failed_task/dagRuns/ended/taskInstances/delete"
        stack.call("PATCH", task, {"new_state": "failed"})
        stack.call("PATCH", "/api/v2/dags/failed_run/dagRuns/ended", {"state": "failed"})
        stack.wait(
            "the end of the jobs",
            lambda: not any(job_processes(tables, dag_id) for dag_id in dags),
        )
        stack.wait(
            "the end of the tasks",
            lambda: not any(Path(f"/proc/{process}").exists() for (process,) in tasks),
        )
        # Both tasks have retries left.
        assert sorted(stack.rows(found)) == [(dag_id, "failed", 1) for dag_id in dags]
        assert DeltaTable(str(tables / "kept")).latest_version() == 0
        assert not (tables / "copy").exists()
    finally:
        for dag_id in dags:
            kill_job(tables, dag_id)


def kill_job(tables: Path, dag_id: str) -> None:
    """Kill what the task of a DAG has started."""
    for process in job_processes(tables, dag_id):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def test_the_retry_of_a_task_whose_process_is_killed_commits_once(
    stack: LiveStack, tables: Path
) -> None:
    """Kill the process of a task with signal 9, before its commit and after it."""
    for step in STEPS:
        append_by_deltalake(tables / f"killed {step}", 2)
    run = {"dag_run_id": "killed", "logical_date": None}
    stack.call("POST", "/api/v2/dags/killed_tasks/dagRuns", run)
    marks = {step: tables / f"process {step}" for step in STEPS}
    stack.wait("the commits", lambda: all(mark.exists() for mark in marks.values()))
    found = "SELECT task_id, state, try_number FROM task_instance WHERE run_id = 'killed'"
    assert sorted(stack.rows(found)) == [
        ("restore_after", "running", 1),
        ("restore_before", "running", 1),
    ]
    newest = {step: DeltaTable(str(tables / f"killed {step}")).latest_version() for step in STEPS}
    assert newest == {"before": 1, "after": 2}
    for mark in marks.values():
        os.kill(int(mark.read_text()), signal.SIGKILL)
    ended = "SELECT 1 FROM dag_run WHERE run_id = 'killed' AND state IN ('success', 'failed')"
    stack.wait("the retries", lambda: bool(stack.rows(ended)))
    assert sorted(stack.rows(found)) == [
        ("restore_after", "success", 2),
        ("restore_before", "success", 2),
    ]
    for step in STEPS:
        (result,) = stack.results(f"restore_{step}")
        assert (result["version"], result["committed"]) == (2, True)
        assert result["repeated"] is (step == "after")
        table = DeltaTable(str(tables / f"killed {step}"))
        assert table.latest_version() == 2
        assert table.snapshot().to_arrow()["id"].to_pylist() == [0]


def test_a_spark_job_that_outlives_its_killed_worker_and_the_retry_commit_once(
    stack: LiveStack, tables: Path
) -> None:
    """Nobody ends the job of a worker that is killed with signal 9: it runs beside that of the retry."""
    append_by_deltalake(tables / "outlived", 2)
    write_driver(tables / "outliving-driver", OUTLIVES.format(folder=str(tables)))
    run = {"dag_run_id": "outlived", "logical_date": None}
    try:
        stack.call("POST", "/api/v2/dags/killed_worker/dagRuns", run)
        stack.wait("the first job", (tables / "commit 1").exists)
        first = job_processes(tables, "killed_worker")
        ((worker,),) = stack.rows("SELECT pid FROM task_instance WHERE run_id = 'outlived'")
        os.kill(worker, signal.SIGKILL)
        stack.wait("the second job", (tables / "commit 2").exists)
        assert first < job_processes(tables, "killed_worker"), "both jobs run"
        ended = "SELECT state FROM dag_run WHERE run_id = 'outlived' AND end_date IS NOT NULL"
        stack.wait("the retry", lambda: bool(stack.rows(ended)))
        assert stack.rows(ended) == [("success",)]
        assert (tables / "committed 1").exists()
        stack.wait("the end of the jobs", lambda: not job_processes(tables, "killed_worker"))
    finally:
        kill_job(tables, "killed_worker")
    (result,) = stack.results("outlived")
    # The retry has lost the race to its own commit, and found it by the transaction identifier.
    assert (result["version"], result["committed"], result["repeated"]) == (2, True, True)
    table = DeltaTable(str(tables / "outlived"))
    assert [info.operation for info in table.history()] == ["DELETE", "WRITE", "WRITE"]
    assert table.snapshot().to_arrow()["id"].to_pylist() == [1]
    findings = table.check(depth="files").findings
    assert [finding for finding in findings if finding.severity != "info"] == []


def test_the_tutorials_dags_start_by_events(stack: LiveStack, tables: Path) -> None:
    """The event of a watcher starts the first DAG, and that of its operator's outlet the second."""
    stack.wait("the watch", lambda: bool(stack.rows("SELECT 1 FROM asset_state_store")))
    run_of_tutorial(tables, "append_orders.py")
    ended = "SELECT run_id, state FROM dag_run WHERE dag_id = '{}' AND end_date IS NOT NULL"
    stack.wait("the second DAG", lambda: bool(stack.rows(ended.format("orders_cities"))))
    stack.wait("the first DAG", lambda: bool(stack.rows(ended.format("orders_events"))))
    assert pinned(stack, "orders_events") == (1, 0)
    # Only the event says after which version the new ones begin.
    assert pinned(stack, "orders_cities") == (0, -1)
    # Again, when the copy has a newer version than the event.
    DeltaTable(str(tables / "delta-tutorial" / "lake" / "orders_copy")).alter.set_name("copy")
    ((run_id, state),) = stack.rows(ended.format("orders_cities"))
    assert state == "success"
    again = {"dry_run": False, "dag_run_id": run_id, "only_failed": False}
    stack.call("POST", "/api/v2/dags/orders_cities/clearTaskInstances", again)
    second = (
        "SELECT 1 FROM task_instance WHERE dag_id = 'orders_cities' AND task_id = 'count' "
        "AND try_number = 2 AND state = 'success'"
    )
    stack.wait("the second try", lambda: bool(stack.rows(second)))
    assert pinned(stack, "orders_cities") == (0, -1)
    logs = stack.dag.parents[1] / "logs" / "dag_id=orders_cities"
    counts = [log.read_text() for log in logs.glob("*/task_id=count/attempt=*.log")]
    assert len(counts) == 2
    assert all("orders by city: {'Ulm': 2, 'Kiel': 1}" in text for text in counts)


def pinned(stack: LiveStack, dag_id: str) -> tuple[int, int]:
    """The version that the only run of a DAG has pinned, and after which one the new ones begin."""
    (result,) = stack.results("pin", dag_id=dag_id)
    return result["version"], result["after_version"]


def test_the_form_and_the_test_of_a_connection(stack: LiveStack, tmp_path: Path) -> None:
    (form,) = (
        found
        for found in stack.call("GET", "/ui/connections/hook_meta")
        if found["connection_type"] == "delta"
    )
    schemas = {name: field["schema"] for name, field in form["extra_fields"].items()}
    assert {"test_location", "aws_access_key_id", "aws_region"} <= schemas.keys()
    assert {name for name in schemas if schemas[name].get("format") == "password"} == {
        "aws_secret_access_key",
        "aws_session_token",
        "azure_client_secret",
        "azure_storage_access_key",
        "azure_storage_sas_token",
        "google_service_account_key",
    }
    assert form["standard_fields"]["password"]["hidden"]

    lake, options = new_place("s3", tmp_path)
    options = {**options, "aws_secret_access_key": SECRET}
    schema = StructType((StructField("id", INTEGER),))
    DeltaTable.create(f"{lake}/sales", schema, storage_options=options)
    locations = {"good": f"{lake}/sales", "wrong": f"{lake}-none/sales"}
    expected = {
        "good": f"listed {locations['good']}/_delta_log, and read a byte of",
        "wrong": f"BucketNotFoundError: {locations['wrong']}: list '_delta_log' failed",
    }
    for name, location in locations.items():
        extra = {**options, "test_location": location}
        connection: dict[str, Any] = {
            "connection_id": name,
            "conn_type": "delta",
            "extra": json.dumps(extra),
        }
        tested = stack.call("POST", "/api/v2/connections/test", connection)
        assert tested["status"] is (name == "good")
        assert expected[name] in tested["message"]
        assert SECRET not in tested["message"]

        stack.call("POST", "/api/v2/connections", connection)
        stored = stack.call("GET", f"/api/v2/connections/{name}")
        # Airflow hides the id of a key, too.
        hidden = dict.fromkeys(("aws_access_key_id", "aws_secret_access_key"), "***")
        assert json.loads(stored["extra"]) == {**extra, **hidden}
        printed = stack.run("connections", "test", name, exit_code=int(name != "good"))
        # The command breaks lines between words.
        printed = " ".join(printed.split())
        if name == "good":
            assert "Connection success!" in printed
        else:
            assert f"Connection failed! {expected[name]}" in printed
        assert SECRET not in printed
