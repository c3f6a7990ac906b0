"""Jobs whose drivers run in a container of YARN: what they make and return, and how they end."""

from __future__ import annotations

import json
import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pyarrow as pa
import pytest
from deltalake import DeltaTable as Peer
from deltalake import write_deltalake

from airflow_delta.engine import DeltaTable
from airflow_delta.hooks.spark import job as spark_job
from airflow_delta.hooks.spark.job import SparkJobHook
from airflow_delta.operators.checkpoint import CheckpointOperator
from airflow_delta.operators.delete import DeleteOperator
from airflow_delta.operators.write import WriteOperator
from airflow_delta.version_compat import AirflowException, AirflowFailException
from tests.airflow.maintenance import checkpoint_only, rows_by_peer
from tests.airflow.run_context import context_of
from tests.yarn.minicluster import YarnCluster

pytestmark = pytest.mark.deep

SECRETS = {
    "aws_access_key_id": "AKIAOFTHETESTS",
    "aws_secret_access_key": "s3cr3t+of/the=tests",
}
OWNER_PASSWORD = "pa55word-of-the-owner"
OWNER_URL = f"postgresql://owner:{OWNER_PASSWORD}@127.0.0.1/owner"

# Sources of rows that wait until a test has looked, one in the driver and one in an executor.
SOURCE = """
import json, os, signal
from pathlib import Path

def rows(spark, folder):
    Path(folder, "environment").write_text(json.dumps(dict(os.environ)))
    Path(folder, "wait").read_text()
    return spark.range(3)

def rows_of_executor(spark, folder):
    def wait(batches):
        Path(folder, "wait").read_text()
        yield from batches
    return spark.range(3).mapInArrow(wait, "id long")

def rows_of_first_attempt(spark, folder):
    first = Path(folder, "first")
    if first.exists():
        return spark.range(3)
    first.touch()
    from airflow_delta.engine import OptimisticTransaction
    commit = OptimisticTransaction.commit
    def commit_and_die(*arguments, **named):
        commit(*arguments, **named)
        os.kill(os.getppid(), signal.SIGKILL)
        os._exit(1)
    OptimisticTransaction.commit = commit_and_die
    return spark.range(3)
"""


def until(found: Callable[[], Any], what: str) -> Any:
    """What a function gives, as soon as that is true."""
    deadline, pause = time.monotonic() + 120, threading.Event()
    while not (result := found()):
        assert time.monotonic() < deadline, f"in vain: {what}"
        pause.wait(0.1)
    return result


def writer(pipe: Path) -> int | None:
    """The pipe's end to write to; None while nobody reads."""
    try:
        return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return None


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "table"
    write_deltalake(str(path), pa.table({"id": pa.array([10, 20, 30], pa.int64())}))
    return path


@pytest.fixture
def source(tmp_path: Path, conf: dict[str, str]) -> tuple[dict[str, Any], Path]:
    """The parameter of a job for `SOURCE`, and the pipe for which it waits."""
    module = tmp_path / "rows_of_the_tests.py"
    module.write_text(SOURCE)
    conf["spark.submit.pyFiles"] = str(module)
    pipe = tmp_path / "wait"
    os.mkfifo(pipe)
    return {"function": f"{module.stem}:rows", "arguments": {"folder": str(tmp_path)}}, pipe


def left_over(yarn: YarnCluster) -> list[str]:
    """What jobs have left in HDFS."""
    return list(yarn.paths("/user/*/.sparkStaging/*"))


def test_a_checkpoint(yarn: YarnCluster, conf: dict[str, str], sales_copy: Path) -> None:
    task = CheckpointOperator(
        task_id="checkpoint",
        table_uri=str(sales_copy),
        engine="spark",
        spark_conn_id="yarn",
        spark_conf=conf,
    )
    assert task.execute(context_of("checkpoint"))["written"]
    checkpoint_only(sales_copy, 3)
    assert sorted(row["id"] for row in rows_by_peer(sales_copy)) == list(range(5, 30))
    application = yarn.applications()[-1]
    assert (application["state"], application["finalStatus"]) == ("FINISHED", "SUCCEEDED")
    assert left_over(yarn) == []


def test_a_delete_that_fails_as_in_client_mode(
    yarn: YarnCluster, conf: dict[str, str], table: Path
) -> None:
    DeltaTable(str(table)).alter.set_properties({"delta.appendOnly": "true"})
    task = DeleteOperator(
        task_id="delete",
        table_uri=str(table),
        condition="id = 10",
        spark_conn_id="yarn",
        spark_conf=conf,
    )
    with pytest.raises(
        AirflowFailException, match=r"^ConstraintViolationError: .*append-only"
    ) as caught:
        task.execute(context_of("delete"))
    application = yarn.applications()[-1]
    assert f"YARN application {application['id']}: FINISHED, FAILED" in str(caught.value)
    assert left_over(yarn) == []

    DeltaTable(str(table)).alter.set_properties({"delta.appendOnly": "false"})
    result = task.execute(context_of("delete", try_number=2))
    assert (result["version"], result["repeated"]) == (3, False)
    assert Peer(str(table)).to_pyarrow_table()["id"].sort().to_pylist() == [20, 30]


def test_a_write_from_a_function_and_where_its_secrets_are(
    yarn: YarnCluster,
    conf: dict[str, str],
    table: Path,
    tmp_path: Path,
    source: tuple[dict[str, Any], Path],
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows, pipe = source
    events = tmp_path / "events"
    events.mkdir()
    hook = SparkJobHook(
        "yarn",
        conf={
            **conf,
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": events.as_uri(),
            "spark.eventLog.compress": "false",
        },
    )
    results: list[Any] = []

    def submit() -> None:
        try:
            parameters = {"table_uri": str(table), "source": rows}
            results.append(
                hook.run("write", parameters, storage_options=SECRETS, commit_owner_url=OWNER_URL)
            )
        except AirflowException as error:
            results.append(error)

    seen: dict[str, str] = {}
    with caplog.at_level(logging.DEBUG):
        task = threading.Thread(target=submit)
        task.start()
        end = until(lambda: results or writer(pipe), "the driver asks for rows")
        assert not results, results
        (application,) = [app for app in yarn.applications() if app["state"] == "RUNNING"]
        for process in Path("/proc").glob("[0-9]*"):
            try:
                command = (process / "cmdline").read_bytes().decode(errors="replace")
                seen[f"command line {process.name}"] = command
            except OSError:
                continue
        for number in yarn.processes():
            environment = Path(f"/proc/{number}/environ").read_bytes().decode(errors="replace")
            seen[f"environment {number}"] = environment
        page = f"{yarn.page}/ws/v1/cluster/apps/{application['id']}"
        for url in (page, f"{page}/appattempts"):
            with urlopen(url, timeout=30) as answer:
                seen[url] = answer.read().decode()
        staging = yarn.paths(f"/user/*/.sparkStaging/{application['id']}")
        shipped = yarn.paths(f"/user/*/.sparkStaging/{application['id']}/*.json")
        os.close(end)
        task.join(timeout=120)
    (result,) = results
    assert not isinstance(result, Exception), result
    assert (result["version"], result["committed"]) == (1, True)
    assert Peer(str(table)).to_pyarrow_table()["id"].sort().to_pylist() == [0, 1, 2, 10, 20, 30]

    # They arrive, and only the application's user can read the directory through which they have come.
    variables = json.loads((tmp_path / "environment").read_text())
    assert SECRETS["aws_secret_access_key"] in variables["AIRFLOW_DELTA_STORAGE_OPTIONS"]
    assert variables["AIRFLOW_DELTA_COMMIT_OWNER_URL"] == OWNER_URL
    assert list(staging.values()) == ["rwx------"]
    assert len(shipped) == 2
    assert left_over(yarn) == []
    # Nobody else sees them.
    assert any("SparkSubmit" in text for text in seen.values())
    assert any("ApplicationMaster" in text for text in seen.values())
    assert any("CONTAINER_ID" in text for text in seen.values())
    # Airflow writes the logs of tasks to the output.
    output = capsys.readouterr().out
    assert f"Application report for {application['id']}" in output
    seen |= {"log": caplog.text, "output": output}
    seen["logs of containers"] = yarn.logs(application["id"])
    seen["result"] = json.dumps(result)
    seen |= {file.name: file.read_text() for file in events.rglob("*") if file.is_file()}
    # The event log has what Spark's user interface shows.
    assert any(
        "SparkListenerEnvironmentUpdate" in text and "spark.yarn.tags" in text
        for text in seen.values()
    )
    shown = [
        (where, secret)
        for where, text in seen.items()
        for secret in (*SECRETS.values(), OWNER_PASSWORD)
        if secret in text
    ]
    assert not shown


def test_a_function_whose_module_is_not_shipped(conf: dict[str, str], table: Path) -> None:
    task = WriteOperator(
        task_id="write",
        table_uri=str(table),
        source_function="only_on_the_worker:rows",
        spark_conn_id="yarn",
        spark_conf=conf,
    )
    with pytest.raises(AirflowFailException, match=r"add it to spark\.submit\.pyFiles"):
        task.execute(context_of("write"))


def test_a_driver_without_pyarrow(
    conf: dict[str, str], table: Path, yarn: YarnCluster, tmp_path: Path
) -> None:
    from tests.cluster.executor_python import executor_python

    bare = executor_python(tmp_path / "bare", ["numpy"])
    hook = SparkJobHook("yarn", conf={**conf, "spark.pyspark.python": str(bare)})
    with pytest.raises(AirflowException, match="ModuleNotFoundError: No module named 'pyarrow'"):
        hook.run("checkpoint", {"table_uri": str(table)}, storage_options={})


def test_a_killed_task_ends_the_application(
    yarn: YarnCluster, conf: dict[str, str], table: Path, source: tuple[dict[str, Any], Path]
) -> None:
    rows, pipe = source
    rows = {**rows, "function": f"{rows['function']}_of_executor"}
    hook = SparkJobHook("yarn", conf=conf)
    failures: list[BaseException] = []

    def submit() -> None:
        try:
            hook.run("write", {"table_uri": str(table), "source": rows}, storage_options={})
        except AirflowException as error:
            failures.append(error)

    task = threading.Thread(target=submit)
    task.start()
    end = until(lambda: not task.is_alive() or writer(pipe), "an executor works")
    assert task.is_alive(), failures
    (application,) = [app for app in yarn.applications() if app["state"] == "RUNNING"]
    assert any("ExecutorBackend" in text for text in yarn.processes().values())

    began = time.monotonic()
    hook.on_kill()
    assert time.monotonic() - began < 5, "the supervisor kills a task after five seconds"
    task.join(timeout=60)
    assert len(failures) == 1, "the task must not take a killed job for a successful one"

    def state() -> str:
        (found,) = [app for app in yarn.applications() if app["id"] == application["id"]]
        return str(found["state"])

    until(lambda: state() == "KILLED", "the application is killed")
    until(lambda: not yarn.processes(), "the containers end")
    until(lambda: not left_over(yarn), "the staging directory is deleted")
    os.close(end)
    assert DeltaTable(str(table)).snapshot().version == 0
    assert Peer(str(table)).to_pyarrow_table()["id"].sort().to_pylist() == [10, 20, 30]


def test_a_second_attempt_finds_the_commit_of_the_first(
    yarn: YarnCluster, conf: dict[str, str], table: Path, source: tuple[dict[str, Any], Path]
) -> None:
    rows, _ = source
    rows = {**rows, "function": f"{rows['function']}_of_first_attempt"}
    parameters = {"table_uri": str(table), "source": rows, "app_id": "task", "app_version": 1}
    hook = SparkJobHook("yarn", conf={**conf, "spark.yarn.maxAppAttempts": "2"})
    result = hook.run("write", parameters, storage_options={})
    assert (result["version"], result["repeated"]) == (1, True)
    assert DeltaTable(str(table)).snapshot().version == 1
    page = f"{yarn.page}/ws/v1/cluster/apps/{yarn.applications()[-1]['id']}/appattempts"
    with urlopen(page, timeout=30) as answer:
        assert len(json.load(answer)["appAttempts"]["appAttempt"]) == 2
    assert left_over(yarn) == []


def test_a_timeout_ends_the_application(
    yarn: YarnCluster,
    conf: dict[str, str],
    table: Path,
    source: tuple[dict[str, Any], Path],
) -> None:
    rows, pipe = source
    ends: list[int] = []

    class TimeoutOfTheTest(BaseException):
        """Airflow's timeouts are raised by a signal handler, in the middle of any statement."""

    def interrupt(number: int, frame: object) -> None:
        raise TimeoutOfTheTest

    def watch() -> None:
        ends.append(until(lambda: writer(pipe), "the driver asks for rows"))
        os.kill(os.getpid(), signal.SIGUSR1)

    previous = signal.signal(signal.SIGUSR1, interrupt)
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with pytest.raises(TimeoutOfTheTest):
            SparkJobHook("yarn", conf=conf).run(
                "write", {"table_uri": str(table), "source": rows}, storage_options={}
            )
        # Its end has been waited for.
        assert yarn.applications()[-1]["state"] == "KILLED"
        assert left_over(yarn) == []
    finally:
        watcher.join()
        signal.signal(signal.SIGUSR1, previous)
        for end in ends:
            os.close(end)
    until(lambda: not yarn.processes(), "the containers end")
    assert DeltaTable(str(table)).snapshot().version == 0
    assert spark_job._END_SECONDS < 120
