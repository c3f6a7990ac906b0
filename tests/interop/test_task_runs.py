"""Delta Spark takes a commit that names the run of a task, and its own commits can name one too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.transaction.task_run import TASK_RUN_VARIABLE
from tests.delta_spark.peer import DeltaSpark

pytestmark = pytest.mark.deep

RUN = {"dag_id": "d", "run_id": "r 1", "task_id": "t", "map_index": None, "try_number": 1}
SETTING = "spark.databricks.delta.commitInfo.userMetadata"


def test_delta_spark_commits_after_a_commit_that_names_its_run(
    delta_spark: DeltaSpark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "table"
    name = f"delta.`{root}`"
    delta_spark.sql(f"CREATE TABLE {name} (id BIGINT) USING delta")
    monkeypatch.setenv(TASK_RUN_VARIABLE, json.dumps(RUN))
    ours = DeltaTable(root).alter.set_properties({"a": "b"})
    assert ours.version == 1
    metadata = json.dumps({"airflow": RUN})
    delta_spark.sql(f"INSERT INTO {name} VALUES (1)", settings={SETTING: metadata})
    delta_spark.sql("SELECT 1", settings={SETTING: ""})
    inserted, altered, created = DeltaTable(root).history()
    assert (inserted.task_run, inserted.user_metadata) == (RUN, metadata)
    assert (altered.task_run, altered.airflow) == (RUN, RUN)
    assert created.task_run is None
    told = delta_spark.sql(f"DESCRIBE HISTORY {name}")
    assert [row["version"] for row in told] == [2, 1, 0]
    assert told[1]["operation"] == "SET TBLPROPERTIES"
