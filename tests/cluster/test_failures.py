"""Jobs on a cluster that don't come to their end: what is told, and what is left."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from airflow_delta.hooks.spark.job import SparkJobHook
from airflow_delta.version_compat import AirflowException
from tests.cluster.executor_python import executor_python
from tests.cluster.standalone import Cluster

Run = Callable[..., dict[str, Any]]


def until(found: Callable[[], Any], what: str) -> Any:
    """What a function gives, as soon as that is true."""
    deadline, pause = time.monotonic() + 60, threading.Event()
    while not (result := found()):
        assert time.monotonic() < deadline, f"in vain: {what}"
        pause.wait(0.1)
    return result


@pytest.mark.deep
def test_an_executor_without_pyarrow(
    run: Run, sales_copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", str(executor_python(tmp_path / "bare", ["numpy"])))
    before = sorted((sales_copy / "_delta_log").iterdir())
    told = r"^ExecutorPythonError: the Python of an executor has no module 'pyarrow': install it"
    with pytest.raises(AirflowException, match=told):
        run("checkpoint", table_uri=str(sales_copy))
    assert sorted((sales_copy / "_delta_log").iterdir()) == before


@pytest.mark.deep
def test_a_killed_job_lets_go_of_its_executors_and_leaves_no_half_target(
    run: Run, cluster: Cluster, sales_copy: Path, tmp_path: Path
) -> None:
    # A data file that never ends: the executor that reads it tells by that that it runs.
    blocked = max(sales_copy.glob("*.parquet"), key=os.path.getmtime)
    content = blocked.read_bytes()
    blocked.unlink()
    os.mkfifo(blocked)
    target = tmp_path / "copy"
    asked = {
        "table_uri": str(sales_copy),
        "version": 3,
        "target_uri": str(target),
        "format": "parquet",
    }
    hook = SparkJobHook("cluster", name="tests:killed")
    failures: list[BaseException] = []

    def submit() -> None:
        try:
            hook.run("materialize", asked, storage_options={})
        except AirflowException as error:
            failures.append(error)

    task = threading.Thread(target=submit)
    task.start()
    try:
        writer = until(lambda: not task.is_alive() or _writer(blocked), "an executor reads")
        assert task.is_alive(), failures
        (application,) = cluster.state()["activeapps"]
        assert len(cluster.executors()) == 1
    finally:
        hook.on_kill()
        task.join(timeout=30)
    assert not task.is_alive()
    assert len(failures) == 1, "the task must not take a killed job for a successful one"
    until(lambda: not cluster.state()["activeapps"], "the application ends")
    until(lambda: not cluster.executors(), "the executors end")
    assert all(worker["coresused"] == 0 for worker in cluster.state()["workers"])
    assert cluster.applications()[-1] == application["id"]
    assert not target.exists()
    os.close(writer)

    blocked.unlink()
    blocked.write_bytes(content)
    assert run("materialize", **asked)["num_rows"] == 25
    assert sorted(pq.read_table(target)["id"].to_pylist()) == list(range(5, 30))


def _writer(pipe: Path) -> int | None:
    """The pipe's end to write to; None while nobody reads."""
    try:
        return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return None
