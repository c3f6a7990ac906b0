"""Starting Spark, for real: what a job writes and logs, and what is said where it doesn't start."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.hooks.spark.job import SparkJobHook
from airflow_delta.version_compat import AirflowException
from tests.airflow.test_checkpoint_operator import FACTS, checkpoint
from tests.table_builder import state_of

SETTINGS = "spark.ui.enabled false\nspark.driver.host 127.0.0.1\nspark.driver.memory 512m\n"


@pytest.fixture
def logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What `SparkSubmitHook` hands on of the job's output, where the user has no settings for logs."""
    (tmp_path / "spark-defaults.conf").write_text(SETTINGS)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    found: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: found.append(record.getMessage())  # type: ignore[method-assign]
    submission = SparkJobHook()._submission
    logger = logging.getLogger("tests.spark_start")
    logger.setLevel("INFO")
    monkeypatch.setattr(logger, "handlers", [handler])
    monkeypatch.setattr(type(submission), "log", logger)
    return found


@pytest.mark.deep
def test_a_job_writes_its_checkpoint_and_logs_warnings_and_where_it_runs(
    sales_copy: Path, logged: list[str]
) -> None:
    expected = state_of(DeltaTable(str(sales_copy)).snapshot())
    result = checkpoint(sales_copy, engine="spark", version=3)
    assert set(result) == FACTS
    assert (result["written"], result["engine"], result["files"]) == (True, "spark", 3)
    for commit in (sales_copy / "_delta_log").glob("*.json"):
        commit.unlink()
    assert state_of(DeltaTable(str(sales_copy)).snapshot()) == expected
    assert not list((sales_copy / "_delta_log").glob("_sidecars/*"))
    assert not [line for line in logged if " INFO " in line]
    assert [line for line in logged if line.startswith("Spark 4") and "application local-" in line]


@pytest.mark.deep
def test_a_spark_that_does_not_start_is_told_by_its_cause(
    sales_copy: Path, tmp_path: Path, logged: list[str]
) -> None:
    missing = tmp_path / "no-such-directory"
    conf = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": str(missing),
        # As a user asks for more.
        "spark.log.level": "INFO",
    }
    told = r"^Spark connection 'spark_default', master local\[1\]: Spark couldn't be started: "
    with pytest.raises(
        AirflowException, match=rf"{told}java\.io\.FileNotFoundException: .*{missing}"
    ):
        SparkJobHook(conf=conf).run(
            "checkpoint", {"table_uri": str(sales_copy)}, storage_options={}
        )
    assert [line for line in logged if " INFO " in line]
