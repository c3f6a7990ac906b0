"""Which run of a task has made a commit."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from airflow_delta import task_runs
from airflow_delta.cli.main import main
from airflow_delta.engine import DeltaTable
from airflow_delta.engine.transaction.task_run import TASK_RUN_VARIABLE, current_task_run
from airflow_delta.operators.delete import DeleteOperator
from airflow_delta.operators.restore import RestoreOperator
from airflow_delta.task_runs import commit_user_metadata, record_task_run, task_run
from tests.airflow.dag_runs import new_dag, run_of
from tests.airflow.run_context import context_of

RUN = {
    "dag_id": "lake",
    "run_id": "manual 1",
    "task_id": "load",
    "map_index": 2,
    "try_number": 3,
}
INSTANCE = SimpleNamespace(**RUN)


def test_the_run_of_a_task_is_plain_json() -> None:
    assert task_run(INSTANCE) == RUN
    unmapped = SimpleNamespace(**{**RUN, "map_index": -1})
    assert task_run(unmapped) == {**RUN, "map_index": None}
    assert json.loads(commit_user_metadata(INSTANCE)) == {"airflow": RUN}


def test_a_commit_of_an_operator_has_its_run(
    airflow_database: Path, sales_copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with new_dag() as dag:
        RestoreOperator.partial(task_id="restore", table_uri=str(sales_copy)).expand(version=[1])
    assert run_of(dag).state == "success"
    found = DeltaTable(sales_copy).history(1)[0]
    run = found.task_run
    assert run is not None
    assert run == found.to_dict()["task_run"] == found.airflow
    assert run.pop("run_id").startswith("manual__")
    assert run == {
        "dag_id": dag.dag_id,
        "task_id": "restore",
        "map_index": 0,
        "try_number": 1,
    }
    # Nothing is left for what else the process commits.
    assert TASK_RUN_VARIABLE not in os.environ
    capsys.readouterr()
    main(["history", str(sales_copy), "--limit", "2"])
    _, newest, before = capsys.readouterr().out.splitlines()
    assert f"  by {dag.dag_id}.restore[0] in manual__" in newest
    assert newest.endswith(", try 1")
    assert "  by " not in before


def test_a_spark_job_gets_the_run_from_its_environment(
    sales_copy: Path, fake_spark_submit: Path
) -> None:
    fake_spark_submit.write_text(
        "import json, os, sys\n"
        f"sys.path.insert(0, {str(Path(task_runs.__file__).parents[1])!r})\n"
        "from airflow_delta.engine import AddFile, DeltaTable\n"
        "given = json.load(open(sys.argv[-1]))\n"
        "version = DeltaTable(given['table_uri']).alter.set_properties({'a': 'b'}).version\n"
        "answer = {'version': version, 'committed': True, 'repeated': False}\n"
        "json.dump(answer, open(given['result_path'], 'w'))\n"
    )
    operator = DeleteOperator(task_id="task", table_uri=str(sales_copy), condition="true")
    result = operator.execute(context_of())
    assert result["version"] == 4
    run = DeltaTable(sales_copy).history(1)[0].task_run
    assert run is not None
    assert (run["task_id"], run["run_id"], run["map_index"]) == ("task", "run 1", None)


def test_the_run_is_that_of_the_inner_task_and_ends_with_it() -> None:
    with record_task_run({"ti": INSTANCE}):
        assert current_task_run() == RUN
        with record_task_run({"ti": SimpleNamespace(**{**RUN, "task_id": "inner"})}):
            assert current_task_run() == {**RUN, "task_id": "inner"}
        assert current_task_run() == RUN
        with record_task_run({}):
            assert current_task_run() == RUN
    assert current_task_run() is None


@pytest.mark.parametrize(
    "text", ["", "no JSON", "[]", "{}", '{"dag_id": 1, "run_id": "r", "task_id": "t"}', "[" * 9999]
)
def test_a_variable_that_is_no_run_stops_no_commit(
    text: str, sales_copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TASK_RUN_VARIABLE, text)
    DeltaTable(sales_copy).alter.set_properties({"a": "b"})
    found = DeltaTable(sales_copy).history(1)[0]
    assert (found.version, found.task_run) == (4, None)
    assert "airflow" not in found.raw


def test_deltalake_commits_the_run_as_user_metadata_and_reads_ours(sales_copy: Path) -> None:
    from deltalake import CommitProperties, write_deltalake
    from deltalake import DeltaTable as Peer

    table = str(sales_copy)
    with record_task_run({"ti": INSTANCE}):
        DeltaTable(table).alter.set_properties({"a": "b"})
    (ours,) = Peer(table).history(1)
    assert ours["airflow"] == RUN
    rows = DeltaTable(table).snapshot().to_arrow().slice(0, 1)
    write_deltalake(
        table,
        pa.table(rows),
        mode="append",
        commit_properties=CommitProperties(
            custom_metadata={"userMetadata": commit_user_metadata(INSTANCE)}
        ),
    )
    found = DeltaTable(table).history(1)[0]
    assert (found.version, found.airflow, found.task_run) == (5, None, RUN)


@pytest.mark.parametrize(
    "text",
    ["load of 31 January", "{", "{}", '{"airflow": 1}', '{"airflow": {"dag_id": "d"}}', None],
)
def test_other_user_metadata_is_no_run(text: str | None, sales_copy: Path) -> None:
    transaction = DeltaTable(sales_copy).transaction("WRITE", user_metadata=text)
    transaction.set_transaction("app", 1)
    transaction.commit()
    found = DeltaTable(sales_copy).history(1)[0]
    assert (found.user_metadata, found.task_run) == (text, None)


def test_a_task_gets_its_own_run_and_a_template_too(airflow_database: Path) -> None:
    from airflow.sdk import task

    macros: dict[str, Any] = {"commit_user_metadata": commit_user_metadata}
    with new_dag(user_defined_macros=macros) as dag:

        @task
        def load(template: str) -> list[str]:
            return [template, commit_user_metadata()]

        load("{{ commit_user_metadata(ti) }}")
    templated, own = run_of(dag).results["load"]
    assert templated == own
    found = json.loads(own)["airflow"]
    assert (found["dag_id"], found["task_id"], found["try_number"]) == (dag.dag_id, "load", 1)
    assert sys.modules["airflow_delta.task_runs"]._VARIABLE == TASK_RUN_VARIABLE
