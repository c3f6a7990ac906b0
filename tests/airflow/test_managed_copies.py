"""Copies of and to managed tables: what the job needs is there before it starts, or it isn't started."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.commit.sql.owner import URL_VARIABLE
from airflow_delta.engine.errors import CommitOwnerError, CommitOwnerUnavailableError
from airflow_delta.operators.checkpoint import CheckpointOperator
from airflow_delta.operators.time_travel_snapshot import TimeTravelSnapshotOperator
from tests.airflow.managed_tables import commit, hand_over, in_log, use_owner
from tests.airflow.test_operators import context, make_copy

# Stands for the job: writes down what it was given, and what it finds in the log.
NOTES = """
import json, os, sys
from pathlib import Path
parameters = json.load(open(sys.argv[-1]))
log = Path(parameters["table_uri"]) / "_delta_log"
note = {{"arguments": sys.argv, "parameters": parameters, "environment": dict(os.environ),
         "log": sorted(file.name for file in log.glob("*.json"))}}
answer = {{"version": 1, "num_rows": 1, "num_files": 1, "written": True, "reason": "",
           "committed_version": 9}}
json.dump(answer, open(parameters["result_path"], "w"))
json.dump(note, open({asked!r}, "w"))
"""
MUST_NOT_START = "raise SystemExit('must not be started')"


@pytest.fixture
def owner_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of the owner that all tasks have."""
    file = tmp_path / "owner.db"
    use_owner(monkeypatch, file)
    return file


@pytest.fixture
def note(tmp_path: Path, fake_spark_submit: Path) -> Path:
    """What the job writes down."""
    asked = tmp_path / "asked.json"
    fake_spark_submit.write_text(NOTES.format(asked=str(asked)))
    return asked


def copy(table: Path, target: Path, **arguments: Any) -> dict[str, Any]:
    operator = TimeTravelSnapshotOperator(
        task_id="copy", table_uri=str(table), target_uri=str(target), **arguments
    )
    return operator.execute(context())


def carriers(environment: dict[str, str], file: Path) -> list[str]:
    """The variables with the commit store's location; Airflow's own connection isn't the job's."""
    return [
        name
        for name, value in environment.items()
        if str(file) in value and not name.startswith("AIRFLOW_CONN_")
    ]


@pytest.mark.parametrize("target_format", ["delta", "parquet"])
def test_a_pinned_version_is_backfilled_before_it_is_copied(
    sales_copy: Path, owner_file: Path, note: Path, tmp_path: Path, target_format: str
) -> None:
    commit(sales_copy, hand_over(sales_copy, owner_file), 3)
    copy(sales_copy, tmp_path / "copy", version=6, target_format=target_format)
    asked = json.loads(note.read_text())
    assert f"{6:020}.json" in asked["log"]
    assert f"{7:020}.json" not in asked["log"], "only what the job reads"
    assert carriers(asked["environment"], owner_file) == [], "it commits to no managed table"


def test_a_backfilled_version_is_copied_without_its_owner(
    sales_copy: Path, note: Path, tmp_path: Path
) -> None:
    commit(sales_copy, hand_over(sales_copy, tmp_path / "owner.db"))
    copy(sales_copy, tmp_path / "copy", version=4)
    assert note.exists()


def test_a_job_that_commits_to_a_managed_table_is_told_of_its_owner(
    sales: Path, sales_copy: Path, owner_file: Path, note: Path
) -> None:
    make_copy(sales, sales_copy, version=2, by_task=False)
    hand_over(sales_copy, owner_file)
    copy(sales, sales_copy)
    asked = json.loads(note.read_text())
    assert asked["environment"][URL_VARIABLE] == f"sqlite:///{owner_file}"
    assert carriers(asked["environment"], owner_file) == [URL_VARIABLE]
    assert str(owner_file) not in json.dumps([asked["arguments"], asked["parameters"]])
    assert URL_VARIABLE not in os.environ, "this process's environment is untouched"


def test_the_owner_of_the_connection_comes_before_that_of_the_environment(
    sales: Path, sales_copy: Path, owner_file: Path, note: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_copy(sales, sales_copy, version=2, by_task=False)
    hand_over(sales_copy, owner_file)
    monkeypatch.setenv(URL_VARIABLE, "sqlite:////another/owner.db")
    copy(sales, sales_copy)
    environment = json.loads(note.read_text())["environment"]
    assert environment[URL_VARIABLE] == f"sqlite:///{owner_file}"


def test_an_owner_that_cannot_be_asked_fails_the_task_before_spark_starts(
    sales: Path, sales_copy: Path, tmp_path: Path, fake_spark_submit: Path
) -> None:
    fake_spark_submit.write_text(MUST_NOT_START)
    make_copy(sales, sales_copy, version=2, by_task=False)
    hand_over(sales_copy, tmp_path / "owner.db")
    with pytest.raises(CommitOwnerUnavailableError, match="doesn't know its database"):
        copy(sales, sales_copy)


def test_a_copy_of_a_managed_table_cannot_be_copied_to(
    sales: Path, sales_copy: Path, owner_file: Path, tmp_path: Path, fake_spark_submit: Path
) -> None:
    """It has the commit store of the original, whose owner refuses it."""
    fake_spark_submit.write_text(MUST_NOT_START)
    make_copy(sales, sales_copy, version=2, by_task=False)
    hand_over(sales_copy, owner_file)
    moved = sales_copy.rename(tmp_path / "elsewhere")
    with pytest.raises(CommitOwnerError, match=r"has the table with the id .* not at"):
        copy(sales, moved)


def test_a_checkpoint_by_spark_finds_what_is_backfilled_first(
    sales_copy: Path, owner_file: Path, note: Path
) -> None:
    commit(sales_copy, hand_over(sales_copy, owner_file), 2)
    table = {"task_id": "c", "table_uri": str(sales_copy), "engine": "spark"}
    CheckpointOperator(**table).execute(context())
    assert in_log(sales_copy) == 4
    CheckpointOperator(**table, version=5, backfill_first=True).execute(context())
    assert json.loads(note.read_text())["log"][-1] == f"{5:020}.json"
    CheckpointOperator(**table, backfill_first=True).execute(context())
    asked = json.loads(note.read_text())
    assert asked["log"][-1] == f"{6:020}.json"
    assert carriers(asked["environment"], owner_file) == []


def test_spark_commits_to_a_managed_table_by_its_owner(
    owner_file: Path, tmp_path: Path, sales_copy: Path
) -> None:
    """From the task to the rows, with a real submission: an un-backfilled version of one managed
    table becomes an un-backfilled version of another.
    """
    target = tmp_path / "target"
    DeltaTable.create(target, DeltaTable(sales_copy).snapshot().schema)
    make_copy(sales_copy, target, version=2, by_task=False)
    owner = hand_over(target, owner_file)
    pinned = commit(sales_copy, hand_over(sales_copy, owner_file))
    result = copy(sales_copy, target)
    assert (result["version"], result["target_version"]) == (pinned, 3)
    assert (in_log(sales_copy), in_log(target)) == (pinned, 2)
    assert copy(sales_copy, target)["target_version"] == 3, "a retry finds it"
    opened = DeltaTable(target, commit_owners={"sql": owner})
    assert opened.snapshot().num_rows == 25
    assert opened.backfill().backfilled_version == 3
