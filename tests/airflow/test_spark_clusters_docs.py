"""What the page about clusters says is so."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pyspark
import pytest

from airflow_delta.hooks.spark.job import SparkJobHook
from airflow_delta.hooks.spark.master import LIMIT_SECONDS
from tests.cluster.executor_python import EXECUTOR_PACKAGES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "spark-clusters.md"
TEXT = PAGE.read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.M | re.S)


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (0, {"master": "spark://master:7077", "queue": None, "namespace": None}),
        (1, {"master": "yarn", "queue": "etl", "namespace": None}),
        (3, {"master": "yarn", "queue": "etl", "deploy_mode": "cluster"}),
        (
            2,
            {
                "master": "k8s://https://kubernetes.default.svc:443",
                "queue": None,
                "namespace": "spark",
            },
        ),
    ],
    ids=["standalone", "YARN", "YARN, deploy mode cluster", "Kubernetes"],
)
def test_a_connection(number: int, told: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.providers.apache.spark.hooks import spark_submit

    provider = "airflow.providers.cncf.kubernetes.kube_client"
    monkeypatch.setitem(sys.modules, provider, ModuleType(provider))
    monkeypatch.setattr(spark_submit, "kube_client", sys.modules[provider], raising=False)
    monkeypatch.setenv("AIRFLOW_CONN_CLUSTER", json.dumps(json.loads(blocks("json")[number])))
    connection = SparkJobHook("cluster")._submission._connection
    assert {name: connection[name] for name in told} == told


def test_every_connection_is_looked_at() -> None:
    assert len(blocks("json")) == 4


@pytest.mark.parametrize("code", blocks("python"))
def test_a_task(code: str) -> None:
    names: dict[str, Any] = {}
    exec(compile(code, str(PAGE), "exec"), names)
    (task,) = (value for value in names.values() if hasattr(value, "spark_conf"))
    assert all(type(value) is str for value in task.spark_conf.values())


def test_the_packages_are_those_that_executors_of_the_tests_have() -> None:
    commands = re.findall(r"pip install (pyarrow[^\n]*)", TEXT)
    packages = " ".join(EXECUTOR_PACKAGES)
    assert [command.removesuffix(" venv-pack") for command in commands] == [packages] * 3


def test_the_image_is_of_the_installed_spark() -> None:
    assert re.findall(r"^FROM (.*)$", TEXT, re.M) == [f"apache/spark:{pyspark.__version__}-python3"]


def test_the_page_has_the_limit_within_which_a_dead_master_is_noticed() -> None:
    assert f"| within {LIMIT_SECONDS:g} seconds, before anything is submitted." in TEXT
