"""Dropping a table feature as a task: in one run or two, and with Spark for the data files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import ConstraintViolationError, InvalidArgumentError
from airflow_delta.hooks.spark.job import SparkJobHook
from airflow_delta.operators.drop_feature import DropFeatureOperator
from airflow_delta.version_compat import AirflowException
from tests.airflow.expiring_tables import expire, features, write_v2_table
from tests.airflow.failures import fails_for_good
from tests.airflow.run_context import context_of
from tests.log_builder import add, metadata, remove, write_commit

VECTOR = {
    "storageType": "i",
    "pathOrInlineDv": "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
    "sizeInBytes": 44,
    "cardinality": 1,
}
COUNTED = '{"numRecords":9}'


def drop(table: Path | str, feature: str, **arguments: Any) -> dict[str, Any]:
    operator = DropFeatureOperator(
        task_id="drop", table_uri=str(table), feature=feature, **arguments
    )
    return operator.execute(context_of("drop"))


@pytest.fixture
def v2_table(tmp_path: Path) -> Path:
    """A table with a checkpoint of the V2 spec."""
    return write_v2_table(tmp_path / "v2")


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    """A table with a file that has a deletion vector."""
    names = ["deletionVectors"]
    lists = {"readerFeatures": names, "writerFeatures": names}
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, **lists}
    table = tmp_path / "vectors"
    on = metadata(configuration={"delta.enableDeletionVectors": "true"})
    write_commit(table, 0, {"protocol": protocol}, on)
    write_commit(table, 1, add("a", deletionVector=VECTOR, stats=COUNTED), add("b", stats=COUNTED))
    return table


def test_arguments_are_rendered() -> None:
    operator = DropFeatureOperator(
        task_id="drop",
        table_uri="{{ params.uri }}",
        feature="{{ params.feature }}",
        truncate_history="{{ params.truncate }}",
        dry_run="{{ params.truncate }}",
        spark_conn_id="{{ params.spark }}",
    )
    params = {"uri": "s3://lake/t", "feature": "v2Checkpoint", "truncate": True, "spark": "s"}
    operator.render_template_fields({"params": params})  # type: ignore[arg-type]
    found = (operator.table_uri, operator.feature, operator.truncate_history, operator._dry_run)
    assert found == ("s3://lake/t", "v2Checkpoint", "True", "True")
    assert operator.spark_conn_id == "s"


def test_a_feature_is_dropped_behind_protected_checkpoints(
    v2_table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dry = drop(v2_table, "v2checkpoint", dry_run="True")
    assert (dry["status"], dry["num_commits"], dry["dry_run"]) == ("planned", 0, True)
    assert "take v2Checkpoint out of the protocol" in dry["steps"]
    assert DeltaTable(v2_table).latest_version() == 1
    report = drop(v2_table, "v2checkpoint", must_drop=True)
    assert json.loads(json.dumps(report)) == report, "XCom carries JSON"
    version = DeltaTable(v2_table).latest_version()
    keys = ("table_uri", "version", "feature", "way", "status", "steps", "ready_at", "num_commits")
    assert [report[key] for key in keys] == [
        *(str(v2_table), version, "v2Checkpoint", "hidden", "dropped", [], None),
        version - 1,
    ]
    assert features(v2_table) == {"checkpointProtection"}
    assert "has dropped v2Checkpoint" in capsys.readouterr().out
    again = drop(v2_table, "v2Checkpoint", must_drop=True)
    assert (again["status"], again["version"], again["num_commits"]) == ("dropped", version, 0)


def test_to_truncate_history_takes_two_tasks(v2_table: Path) -> None:
    first = drop(v2_table, "v2Checkpoint", truncate_history=True)
    assert (first["status"], first["way"], first["num_commits"]) == ("waiting", "truncated", 1)
    assert "come back at " + first["ready_at"] in first["reason"]
    with pytest.raises(AirflowException, match="must expire first; come back at"):
        drop(v2_table, "v2Checkpoint", truncate_history="true", must_drop=True)
    assert features(v2_table) == {"v2Checkpoint"}
    expire(v2_table)
    last = drop(v2_table, "v2Checkpoint", truncate_history=True, must_drop=True)
    assert (last["status"], last["version"], features(v2_table)) == ("dropped", 3, set())
    assert last["cleanup"]["earliest_version"] == 2
    assert sorted(f.name for f in (v2_table / "_delta_log").glob("*.json")) == [
        f"{version:020}.json" for version in (2, 3)
    ]


def test_spark_is_asked_to_write_the_data_files_anew(
    vectors: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, dict[str, Any]]] = []

    def run(job: SparkJobHook, name: str, parameters: dict[str, Any], **_: Any) -> dict[str, Any]:
        asked.append((name, parameters))
        anew = {"dataChange": False}
        old, new = remove("a", deletionVector=VECTOR, **anew), add("c", stats=COUNTED, **anew)
        write_commit(vectors, DeltaTable(vectors).latest_version() + 1, old, new)
        return {"num_commits": 1}

    monkeypatch.setattr(SparkJobHook, "run", run)
    report = drop(vectors, "deletionVectors", must_drop=True)
    expected = {"table_uri": str(vectors), "feature": "deletionVectors"}
    assert asked == [("rewrite", expected)]
    assert (report["status"], features(vectors)) == ("dropped", {"checkpointProtection"})


def test_without_spark_the_task_tells_what_is_to_be_written_anew(
    vectors: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkJobHook, "run", lambda *_, **__: pytest.fail("must not be started"))
    report = drop(vectors, "deletionVectors", spark_conn_id=None)
    assert (report["status"], report["files_to_rewrite"]) == ("needs rewrite", 1)
    with pytest.raises(AirflowException, match="have Spark rewrite them"):
        drop(vectors, "deletionVectors", spark_conn_id=None, must_drop=True)


def test_a_job_that_changes_nothing_is_not_started_for_ever(
    vectors: Path, fake_spark_submit: Path
) -> None:
    fake_spark_submit.write_text(
        "import json, sys\njson.dump({}, open(json.load(open(sys.argv[-1]))['result_path'], 'w'))\n"
    )
    with fails_for_good(ConstraintViolationError, match="rewritten 3 times"):
        drop(vectors, "deletionVectors")


def test_a_job_is_ended_with_its_task(vectors: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    operator = DropFeatureOperator(
        task_id="drop", table_uri=str(vectors), feature="deletionVectors"
    )
    ended: list[SparkJobHook] = []

    def run(job: SparkJobHook, *_: Any, **__: Any) -> Any:
        operator.on_kill()
        raise AirflowException("the job was ended")

    monkeypatch.setattr(SparkJobHook, "run", run)
    monkeypatch.setattr(SparkJobHook, "on_kill", lambda job: ended.append(job))
    with pytest.raises(AirflowException, match="was ended"):
        operator.execute(context_of("drop"))
    assert len(ended) == 1


def test_what_cannot_be_dropped_fails(v2_table: Path) -> None:
    with fails_for_good(InvalidArgumentError, match="there is no table feature 'v3Checkpoint'"):
        drop(v2_table, "v3Checkpoint")
    with fails_for_good(InvalidArgumentError, match="doesn't support the feature domainMetadata"):
        drop(v2_table, "domainMetadata")
    for argument in ("truncate_history", "dry_run"):
        with pytest.raises(ValueError, match=f"{argument}: expected true or false, found 'None'"):
            drop(v2_table, "v2Checkpoint", **{argument: "None"})
    assert DeltaTable(v2_table).latest_version() == 1


def test_airflows_own_dry_run_still_works() -> None:
    DropFeatureOperator(task_id="drop", table_uri="/t", feature="f", dry_run=True).dry_run()
