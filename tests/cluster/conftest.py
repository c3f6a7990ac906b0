"""A cluster for all tests of this folder, and jobs that are submitted to it as tasks submit them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import tests.airflow.conftest  # noqa: F401 - an Airflow of the tests' own, before it is imported
from airflow_delta.hooks.spark.job import SparkJobHook
from tests.cluster.executor_python import executor_python
from tests.cluster.standalone import Cluster, standalone_cluster

# The least that drivers and executors of a few rows need. A task that fails is to fail the job.
_SPARK_DEFAULTS = """
spark.ui.enabled                  false
spark.driver.host                 127.0.0.1
spark.driver.bindAddress          127.0.0.1
spark.driver.memory               512m
spark.executor.memory             512m
spark.sql.shuffle.partitions      2
spark.sql.catalogImplementation   in-memory
spark.sql.codegen.wholeStage      false
spark.sql.codegen.factoryMode     NO_CODEGEN
spark.task.maxFailures            1
# One executor, where a test doesn't ask for both: starting them is most of the work.
spark.cores.max                   1
spark.scheduler.minRegisteredResourcesRatio 1
"""

BOTH_EXECUTORS = {"spark.cores.max": "2"}
"""Spark properties with which each of the two workers runs an executor, and work waits for both."""


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The cluster; without Java there is none, as for all tests with Spark."""
    with standalone_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="session")
def python_of_executors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter that has what executors need, and nothing else."""
    return executor_python(tmp_path_factory.mktemp("executors") / "environment")


@pytest.fixture
def submission(
    cluster: Cluster, python_of_executors: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a worker has in its environment that submits jobs to the cluster."""
    conf = tmp_path / "spark-conf"
    conf.mkdir()
    (conf / "spark-defaults.conf").write_text(_SPARK_DEFAULTS)
    connection = json.dumps({"conn_type": "spark", "host": cluster.url})
    monkeypatch.setenv("SPARK_CONF_DIR", str(conf))
    monkeypatch.setenv("AIRFLOW_CONN_CLUSTER", connection)
    monkeypatch.setenv("PYSPARK_PYTHON", str(python_of_executors))


@pytest.fixture
def run(submission: None) -> Callable[..., dict[str, Any]]:
    """Run a job on the cluster to its end."""

    def submit(
        job: str,
        *,
        storage_options: Mapping[str, str] | None = None,
        conf: Mapping[str, str] | None = None,
        **parameters: Any,
    ) -> dict[str, Any]:
        hook = SparkJobHook("cluster", conf=conf, name=f"tests:{job}")
        return hook.run(job, parameters, storage_options=storage_options or {})

    return submit
