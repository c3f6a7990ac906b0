"""Checkpoints as a task: which engine writes them, what is handed on, and when there is none to write."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import UnsupportedFeatureError
from airflow_delta.operators.checkpoint import CheckpointOperator
from airflow_delta.version_compat import AirflowFailException, AirflowSkipException
from tests.airflow.failures import fails_for_good
from tests.log_builder import add, metadata, write_commit

FACTS = {
    *("table_uri", "version", "kind", "path", "written", "reason", "files", "bytes", "rows"),
    *("sidecars_written", "sidecars_reused", "duration_ms", "engine"),
}

# Stands for the job: writes down what it was asked to do.
ECHO = """
import json, sys
parameters = json.load(open(sys.argv[-1]))
answer = {{"version": 3, "kind": "v2", "written": {written}, "reason": "so it is"}}
json.dump(answer, open(parameters.pop("result_path"), "w"))
json.dump(parameters, open({asked!r}, "w"))
"""
MUST_NOT_START = "raise SystemExit('must not be started')"


def checkpoint(table: Path, **arguments: Any) -> dict[str, Any]:
    operator = CheckpointOperator(task_id="checkpoint", table_uri=str(table), **arguments)
    context: Any = {
        "ti": SimpleNamespace(dag_id="lake", task_id="checkpoint", map_index=-1),
        "dag_run": SimpleNamespace(run_after=datetime(2026, 3, 1, tzinfo=timezone.utc)),
    }
    return operator.execute(context)


@pytest.fixture
def v2_table(tmp_path: Path) -> Path:
    """Two commits of a table whose checkpoints are of the V2 spec, one for every two commits."""
    features = ["v2Checkpoint"]
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7}
    lists = {"readerFeatures": features, "writerFeatures": features}
    properties = {"delta.checkpointPolicy": "v2", "delta.checkpointInterval": "2"}
    table = tmp_path / "v2"
    write_commit(
        table, 0, {"protocol": {**protocol, **lists}}, metadata(configuration=properties), add("a")
    )
    write_commit(table, 1, add("b", size=5))
    return table


def test_arguments_are_rendered() -> None:
    operator = CheckpointOperator(
        task_id="checkpoint",
        table_uri="{{ params.uri }}",
        version="{{ params.version }}",
        policy="{{ params.policy }}",
        engine="{{ params.engine }}",
        spark_conn_id="{{ params.engine }}_default",
        spark_conf={"spark.executor.memory": "{{ params.memory }}"},
    )
    params = {"uri": "s3://lake/t", "version": 4, "policy": "v2", "engine": "spark", "memory": "2g"}
    operator.render_template_fields({"params": params})  # type: ignore[arg-type]
    found = (operator.table_uri, operator.version, operator.policy, operator.engine)
    assert found == ("s3://lake/t", "4", "v2", "spark")
    assert operator.spark_conn_id == "spark_default"
    assert operator.spark_conf == {"spark.executor.memory": "2g"}


def test_a_classic_checkpoint_and_its_facts(sales_copy: Path) -> None:
    result = checkpoint(sales_copy)
    file = sales_copy / result["path"]
    assert set(result) == FACTS
    assert (result["kind"], result["version"], result["written"]) == ("classic", 3, True)
    assert result["files"] == DeltaTable(str(sales_copy)).snapshot().num_files
    assert result["bytes"] == file.stat().st_size
    assert (result["sidecars_written"], result["sidecars_reused"]) == (0, 0)
    assert result["engine"] == "local"
    assert result["duration_ms"] >= 0
    assert json.loads(json.dumps(result)) == result, "XCom carries JSON"


def test_a_second_checkpoint_of_the_v2_spec_uses_the_sidecars_of_the_first(v2_table: Path) -> None:
    first = checkpoint(v2_table)
    assert (first["kind"], first["files"]) == ("v2", 2)
    assert (first["sidecars_written"], first["sidecars_reused"]) == (1, 0)
    log = v2_table / "_delta_log"
    before = {file for file in log.rglob("*") if file.is_file()}
    write_commit(v2_table, 2, add("c"))
    second = checkpoint(v2_table)
    assert (second["files"], second["sidecars_written"], second["sidecars_reused"]) == (3, 1, 1)
    new = {file for file in log.rglob("*.checkpoint.*") if file.is_file()} - before
    assert second["bytes"] == sum(file.stat().st_size for file in new)


def test_the_policy_can_be_chosen(v2_table: Path, sales_copy: Path) -> None:
    assert checkpoint(v2_table, policy="classic")["kind"] == "classic"
    with fails_for_good(UnsupportedFeatureError, match="v2Checkpoint"):
        checkpoint(sales_copy, policy="v2")


def test_a_task_is_skipped_where_no_checkpoint_is_due(v2_table: Path) -> None:
    assert checkpoint(v2_table, if_needed=True)["written"] is True
    write_commit(v2_table, 2, add("c"))
    log = sorted((v2_table / "_delta_log").iterdir())
    with pytest.raises(AirflowSkipException, match=r"1 commits have been made .* due after 2"):
        checkpoint(v2_table, if_needed=True)
    assert sorted((v2_table / "_delta_log").iterdir()) == log
    write_commit(v2_table, 3, add("d"))
    assert checkpoint(v2_table, if_needed=True)["version"] == 3


def test_an_unknown_engine_fails_the_task_for_good(sales: Path) -> None:
    with pytest.raises(AirflowFailException, match="expected one of auto, local, spark"):
        checkpoint(sales, engine="flink")


@pytest.mark.parametrize(
    ("arguments", "submitted"),
    [
        ({"engine": "spark"}, True),
        ({"engine": "spark", "spark_conn_id": "spark_default"}, True),
        ({"spark_conn_id": "spark_default", "spark_threshold_bytes": 1}, True),
        ({"spark_conn_id": "spark_default", "spark_threshold_bytes": 10**6}, False),
        ({"spark_conn_id": "spark_default"}, False),
        ({"spark_threshold_bytes": 1}, False),
        ({"engine": "local", "spark_conn_id": "spark_default", "spark_threshold_bytes": 1}, False),
    ],
)
def test_the_engine_is_chosen_by_the_size_of_the_log(
    sales_copy: Path,
    tmp_path: Path,
    fake_spark_submit: Path,
    arguments: dict[str, Any],
    submitted: bool,
) -> None:
    asked = tmp_path / "asked.json"
    echo = ECHO.format(asked=str(asked), written=True)
    fake_spark_submit.write_text(echo if submitted else MUST_NOT_START)
    result = checkpoint(sales_copy, **arguments)
    assert result["engine"] == ("spark" if submitted else "local")
    assert (result["version"], result["written"]) == (3, True)
    assert asked.exists() == submitted


def test_the_threshold_is_of_the_last_checkpoint_and_the_commits_since(
    sales_copy: Path, fake_spark_submit: Path
) -> None:
    from airflow_delta.engine.maintenance.checkpoint.log_size import measure_log

    storage = DeltaTable(str(sales_copy)).storage
    sizes = [f.stat().st_size for f in sorted((sales_copy / "_delta_log").glob("*.json"))]
    assert measure_log(storage) == sum(sizes)
    assert measure_log(storage, version=1) == sum(sizes[:2])
    result = checkpoint(sales_copy, version=2)
    assert measure_log(storage) == result["bytes"] + sizes[3]


def test_the_job_is_asked_for_what_the_task_was_asked_for(
    sales: Path, tmp_path: Path, fake_spark_submit: Path
) -> None:
    asked = tmp_path / "asked.json"
    fake_spark_submit.write_text(ECHO.format(asked=str(asked), written=True))
    result = checkpoint(sales, engine="spark", version="3", policy="v2", if_needed=True)
    assert json.loads(asked.read_text()) == {
        "table_uri": str(sales),
        "version": 3,
        "policy": "v2",
        "if_needed": True,
    }
    assert result["table_uri"] == str(sales)
    assert (result["kind"], result["reason"]) == ("v2", "so it is")
    checkpoint(sales, engine="spark")
    assert json.loads(asked.read_text()) == {"table_uri": str(sales), "if_needed": False}


def test_a_task_is_skipped_where_the_job_finds_that_none_is_due(
    sales: Path, tmp_path: Path, fake_spark_submit: Path
) -> None:
    fake_spark_submit.write_text(ECHO.format(asked=str(tmp_path / "asked"), written=False))
    with pytest.raises(AirflowSkipException, match="so it is"):
        checkpoint(sales, engine="spark", if_needed=True)
    assert checkpoint(sales, engine="spark")["written"] is False


@pytest.mark.parametrize("threshold", ["many", 1.5, True, -1])
def test_a_threshold_is_a_number_of_bytes(threshold: Any) -> None:
    with pytest.raises(ValueError, match="spark_threshold_bytes: expected a number of bytes"):
        CheckpointOperator(task_id="c", table_uri="/t", spark_threshold_bytes=threshold)
