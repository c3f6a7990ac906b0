"""A YARN cluster for all tests of this folder, and a connection with deploy mode ``cluster``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

import tests.airflow.conftest  # noqa: F401 - an Airflow of the tests' own, before it is imported
from tests.cluster.executor_python import EXECUTOR_PACKAGES, executor_python
from tests.yarn.minicluster import YarnCluster, yarn_cluster

# Spark's jars aren't uploaded to the cluster with each job. One executor of the least memory.
_SPARK_DEFAULTS = f"""
spark.yarn.jars                   local:{Path(pyspark.__file__).parent}/jars/*
spark.driver.memory               512m
spark.driver.memoryOverhead       128m
spark.executor.memory             512m
spark.executor.memoryOverhead     128m
spark.executor.instances          1
spark.sql.shuffle.partitions      2
spark.sql.catalogImplementation   in-memory
spark.sql.codegen.wholeStage      false
spark.sql.codegen.factoryMode     NO_CODEGEN
spark.task.maxFailures            1
# The worker's own, for deploy mode client: no program of the cluster may need it.
spark.pyspark.driver.python       /of/the/worker/python
"""

DRIVER_PACKAGES = ("pandas", "python-dateutil", "pytz", "six", "tzdata")
"""What the driver needs beside the packages of executors: pandas, and what it requires."""


@pytest.fixture(scope="session")
def yarn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[YarnCluster]:
    """The cluster."""
    with yarn_cluster(tmp_path_factory.mktemp("yarn")) as running:
        yield running


@pytest.fixture(scope="session")
def python_of_containers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter that has what containers need, and nothing else."""
    packages = (*EXECUTOR_PACKAGES, *DRIVER_PACKAGES)
    return executor_python(tmp_path_factory.mktemp("containers") / "environment", packages)


@pytest.fixture
def conf(
    yarn: YarnCluster,
    python_of_containers: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> dict[str, str]:
    """The Spark properties of a task; the environment of a worker that submits jobs to the cluster."""
    directory = tmp_path / "spark-conf"
    directory.mkdir()
    (directory / "spark-defaults.conf").write_text(_SPARK_DEFAULTS)
    connection = {"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": "cluster"}}
    monkeypatch.setenv("SPARK_CONF_DIR", str(directory))
    monkeypatch.setenv("HADOOP_CONF_DIR", str(yarn.conf))
    monkeypatch.setenv("AIRFLOW_CONN_YARN", json.dumps(connection))
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "/of/the/worker/python")
    return {"spark.pyspark.python": str(python_of_containers)}
