"""Without the extra ``spark``: tasks that need Spark fail when they are parsed, all others work."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG

from airflow_delta.hooks.failures import ArgumentError, TableFailure
from airflow_delta.hooks.spark.install import missing_for_spark
from airflow_delta.hooks.spark.job import SparkJobHook
from airflow_delta.operators.change_feed import ChangeFeedOperator
from airflow_delta.operators.checkpoint import CheckpointOperator
from airflow_delta.operators.drop_feature import DropFeatureOperator
from airflow_delta.operators.table_profile import TableProfileOperator
from airflow_delta.operators.time_travel_snapshot import TimeTravelSnapshotOperator
from airflow_delta.operators.vacuum import VacuumOperator
from airflow_delta.templates import optional
from tests.airflow.run_context import context_of

SALES = "/data/sales"
REMEDY = r"pip install 'airflow-delta\[spark\]'"

NEED_SPARK = {
    "feed": (ChangeFeedOperator, {"target_uri": "/data/changes"}),
    "feed to a template": (ChangeFeedOperator, {"target_uri": "{{ params.target }}"}),
    "copy": (TimeTravelSnapshotOperator, {"target_uri": "/data/copy"}),
    "checkpoint": (CheckpointOperator, {"engine": "spark"}),
    "vacuum": (VacuumOperator, {"engine": "spark"}),
    "profile": (TableProfileOperator, {}),
    "profile of a column": (TableProfileOperator, {"columns": ["id"]}),
    "count with a predicate": (TableProfileOperator, {"columns": [], "predicate": "id > 3"}),
}
MAY_DO_WITHOUT = {
    "feed without a target": (ChangeFeedOperator, {}),
    "perhaps a target": (ChangeFeedOperator, {"target_uri": optional("{{ params.target }}")}),
    "pin": (TimeTravelSnapshotOperator, {}),
    "perhaps a copy": (TimeTravelSnapshotOperator, {"target_uri": optional("{{ params.target }}")}),
    "checkpoint": (CheckpointOperator, {"spark_conn_id": "spark_default"}),
    "an engine by template": (VacuumOperator, {"engine": "{{ params.engine }}"}),
    "vacuum": (VacuumOperator, {}),
    "count": (TableProfileOperator, {"columns": []}),
    "columns by template": (TableProfileOperator, {"columns": "{{ params.columns }}"}),
    "drop feature": (DropFeatureOperator, {"feature": "deletionVectors"}),
}


@pytest.fixture(params=["pyspark", "airflow.providers.apache.spark.hooks.spark_submit"])
def without_spark(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """An environment in which one of the packages isn't installed."""
    monkeypatch.setitem(sys.modules, request.param, None)
    return {"pyspark": "pyspark"}.get(request.param, "apache-airflow-providers-apache-spark")


@pytest.mark.parametrize("make", NEED_SPARK.values(), ids=NEED_SPARK)
def test_with_the_extra_nothing_is_missing(make: tuple[Callable[..., Any], dict[str, Any]]) -> None:
    operator, arguments = make
    assert missing_for_spark() == []
    assert operator(task_id="t", table_uri=SALES, **arguments) is not None


@pytest.mark.parametrize("make", NEED_SPARK.values(), ids=NEED_SPARK)
def test_tasks_that_need_spark_fail_when_they_are_parsed(
    make: tuple[Callable[..., Any], dict[str, Any]], without_spark: str
) -> None:
    operator, arguments = make
    told = rf"Operator 't': .* needs Spark, and {without_spark} is not installed.*{REMEDY}"
    with DAG("d"), pytest.raises(ArgumentError, match=told):
        operator(task_id="t", table_uri=SALES, **arguments)


def test_mapped_tasks_as_well(without_spark: str) -> None:
    with DAG("d"):
        with pytest.raises(ArgumentError, match=f"engine='spark' needs Spark.*{REMEDY}"):
            VacuumOperator.partial(task_id="t", engine="spark")
        # Where columns are mapped, whether they need Spark shows when they are known.
        TableProfileOperator.partial(task_id="p", table_uri=SALES).expand(columns=[[], ["id"]])


@pytest.mark.parametrize("make", MAY_DO_WITHOUT.values(), ids=MAY_DO_WITHOUT)
def test_tasks_that_may_do_without_are_parsed(
    make: tuple[Callable[..., Any], dict[str, Any]], without_spark: str
) -> None:
    operator, arguments = make
    with DAG("d"):
        assert operator(task_id="t", table_uri=SALES, **arguments) is not None


def test_tasks_that_do_without_run(sales_copy: Path, without_spark: str) -> None:
    table = str(sales_copy)
    pinned = TimeTravelSnapshotOperator(task_id="pin", table_uri=table).execute(context_of("pin"))
    assert pinned["version"] == 3
    done = CheckpointOperator(task_id="c", table_uri=table, spark_conn_id="spark_default")
    assert done.execute(context_of("c"))["engine"] == "local"


def test_a_task_that_turns_out_to_need_spark_says_so(without_spark: str) -> None:
    with pytest.raises(TableFailure, match=f"this task needs Spark, and .*{REMEDY}"):
        SparkJobHook()
