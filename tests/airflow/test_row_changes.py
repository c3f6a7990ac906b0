"""Writes, deletions, updates and merges as tasks: what Spark gets, and that a retry finds the commit."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.assets import delta_asset
from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.model.schema import INTEGER, StructField, StructType
from airflow_delta.hooks.failures import ArgumentError
from airflow_delta.operators.delete import DeleteOperator
from airflow_delta.operators.merge import MergeOperator
from airflow_delta.operators.run_identity import run_identity
from airflow_delta.operators.update import UpdateOperator
from airflow_delta.operators.write import WriteOperator
from airflow_delta.results import DeletionPlanResult, RowChangeResult, WriteTaskResult
from airflow_delta.version_compat import AirflowException
from tests.airflow.failures import fails_for_good
from tests.airflow.managed_tables import commit, hand_over, in_log, use_owner
from tests.airflow.run_context import context_of
from tests.airflow.task_state import TaskState
from tests.airflow.test_outputs import check
from tests.airflow.test_triggering_event import event, started_by

SCHEMA = StructType((StructField("id", INTEGER),))
PLAN = {
    "version": 0,
    "num_files": 1,
    "size_in_bytes": 9,
    "max_rows": None,
    "num_whole_files": 0,
    "examples": ["a.parquet"],
}


COMPACTION = {"version": 9, "num_removed_files": 50, "num_added_files": 1, "error": None}


class Submissions:
    """Takes the place of Spark: keeps what is submitted, and makes a commit."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.taken: list[dict[str, Any]] = []
        self.fails_before_commit = False
        self.fails_after_commit = False
        monkeypatch.setattr("airflow_delta.hooks.spark.job.SparkJobHook", lambda *_, **__: self)

    def run(self, job: str, parameters: dict[str, Any], **environment: Any) -> dict[str, Any]:
        self.taken.append({"job": job, **parameters})
        self.environment = environment
        uri = parameters["table_uri"]
        if self.fails_before_commit:
            raise AirflowException("no master answers")
        if parameters.get("dry_run"):
            return {"table_uri": uri, **PLAN}
        table = DeltaTable(uri)
        if not table.exists():
            DeltaTable.create(uri, SCHEMA)
        if parameters.get("mode") == "ignore":
            return {"table_uri": uri, "version": 0, "committed": False, "repeated": False}
        transaction = table.transaction("WRITE")
        transaction.set_transaction(parameters["app_id"], parameters["app_version"])
        version = transaction.commit(operation_metrics={"numOutputRows": 5}).version
        if self.fails_after_commit:
            raise AirflowException("the driver was lost")
        done = {"table_uri": uri, "version": version, "committed": True, "repeated": False}
        return {**done, "compaction": COMPACTION} if job == "write" else done


@pytest.fixture
def submissions(monkeypatch: pytest.MonkeyPatch) -> Submissions:
    return Submissions(monkeypatch)


@pytest.fixture
def table(tmp_path: Path) -> DeltaTable:
    return DeltaTable.create(str(tmp_path / "table"), SCHEMA)


MERGE: dict[str, Any] = {
    "on": "t.id = source.id",
    "clauses": [
        {"when": "matched", "then": "delete", "condition": "source.id < 9"},
        {"when": "matched", "then": "update", "values": {"id": "source.id", "note": None}},
        {"when": "not_matched", "then": "insert"},
    ],
}
FILES = {"source_uri": "/landing/*.json", "source_format": "json"}
TASKS: list[tuple[Any, dict[str, Any], dict[str, Any]]] = [
    (
        WriteOperator,
        {
            **FILES,
            "source_options": {"multiLine": True, "charset": None},
            "mode": "overwrite",
            "replace_where": "id < 9",
            "target_file_size": "1000",
        },
        {
            "job": "write",
            "source": {
                "uri": "/landing/*.json",
                "format": "json",
                "options": {"multiLine": "true"},
            },
            "mode": "overwrite",
            "replace_where": "id < 9",
            "partition_overwrite": "static",
            "merge_schema": False,
            "overwrite_schema": False,
            "target_file_size": 1000,
        },
    ),
    (
        DeleteOperator,
        {"condition": "id < 9", "user_metadata": "old"},
        {"job": "delete", "condition": "id < 9", "user_metadata": "old"},
    ),
    (
        UpdateOperator,
        {"set": {"id": "id + 1", "note": None, "price": 2.5}, "condition": "true"},
        {
            "job": "update",
            "set": {"id": "id + 1", "note": None, "price": 2.5},
            "condition": "true",
        },
    ),
    (
        MergeOperator,
        {**FILES, **MERGE, "target_alias": "t", "user_metadata": "new"},
        {
            "job": "merge",
            "source": {"uri": "/landing/*.json", "format": "json"},
            **MERGE,
            "target_alias": "t",
            "merge_schema": False,
            "user_metadata": "new",
        },
    ),
]


@pytest.mark.parametrize(("kind", "arguments", "parameters"), TASKS)
def test_spark_changes_the_rows_once(
    table: DeltaTable,
    submissions: Submissions,
    kind: Any,
    arguments: dict[str, Any],
    parameters: dict[str, Any],
) -> None:
    task = kind(task_id="change", table_uri=table.uri, **arguments)
    first = task.execute(context_of("change"))
    writes = kind is WriteOperator
    assert first == {
        "table_uri": table.uri,
        "table_id": table.snapshot().metadata.id,
        "version": 1,
        "committed": True,
        "repeated": False,
        "metrics": {"numOutputRows": 5},
        **({"compaction": COMPACTION} if writes else {}),
    }
    assert json.loads(json.dumps(first)) == first, "XCom carries JSON"
    check(first, WriteTaskResult if writes else RowChangeResult, "change")
    app_id, app_version = run_identity(context_of("change"))
    identity = {"app_id": app_id, "app_version": app_version}
    assert submissions.taken == [{"table_uri": table.uri, **parameters, **identity}]
    again = task.execute(context_of("change"))
    # What an earlier try compacted isn't known to a later one.
    assert again == {**first, "repeated": True, **({"compaction": None} if writes else {})}
    assert len(submissions.taken) == 1
    assert task.execute(context_of("change", run=2))["version"] == 2


def test_a_commit_counts_even_if_the_job_fails_after_it(
    table: DeltaTable, submissions: Submissions, caplog: pytest.LogCaptureFixture
) -> None:
    submissions.fails_after_commit = True
    task = WriteOperator(task_id="write", table_uri=table.uri, **FILES)
    assert task.execute(context_of("write"))["repeated"]
    assert "the job failed, but its rows are committed as version 1" in caplog.text
    assert "the driver was lost" in caplog.text
    # Without a commit, the failure of the job is that of the task.
    submissions.run = lambda *_, **__: exec("raise AirflowException('lost')", globals())  # type: ignore[method-assign, assignment]
    with pytest.raises(AirflowException, match="lost"):
        task.execute(context_of("write", run=2))


def test_the_first_write_creates_the_table(tmp_path: Path, submissions: Submissions) -> None:
    uri = str(tmp_path / "new")
    task = WriteOperator(task_id="write", table_uri=uri, **FILES, mode="ignore", cluster_by=["id"])
    found = task.execute(context_of("write"))
    assert found == {
        "table_uri": uri,
        "table_id": None,
        "version": 0,
        "committed": False,
        "repeated": False,
        "metrics": {},
        "compaction": None,
    }
    check(found, WriteTaskResult, "ignored")
    assert submissions.taken[0]["cluster_by"] == ["id"]


def test_a_query_has_pinned_tables(
    table: DeltaTable, tmp_path: Path, submissions: Submissions, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_owner(monkeypatch, tmp_path / "owner.db")
    managed = str(DeltaTable.create(str(tmp_path / "managed"), SCHEMA).uri)
    commit(Path(managed), hand_over(Path(managed), tmp_path / "owner.db", backfill="10"), 2)
    assert in_log(Path(managed)) < 3
    task = WriteOperator(
        task_id="write",
        table_uri=table.uri,
        source_query="SELECT * FROM one JOIN two USING (id)",
        source_tables={
            "one": {"table_uri": table.uri, "version": "0", "num_rows": 7},
            "two": (managed, 3),
        },
        allowed_outside=["/shared"],
    )
    task.execute(context_of("write"))
    assert submissions.taken[0]["source"] == {
        "query": "SELECT * FROM one JOIN two USING (id)",
        "tables": {
            "one": {"table_uri": table.uri, "version": 0, "allowed_outside": ["/shared"]},
            "two": {"table_uri": managed, "version": 3, "allowed_outside": ["/shared"]},
        },
    }
    assert in_log(Path(managed)) == 3, "the job finds the pinned version in the log"


@pytest.mark.parametrize(
    ("kind", "arguments"), [(WriteOperator, {}), (MergeOperator, MERGE)], ids=["write", "merge"]
)
def test_a_query_reads_the_versions_of_the_events(
    table: DeltaTable, tmp_path: Path, submissions: Submissions, kind: Any, arguments: Any
) -> None:
    other = DeltaTable.create(str(tmp_path / "other"), SCHEMA)
    for number in range(3):
        other.alter.set_properties({"number": str(number)})
    new = delta_asset(str(tmp_path / "new"))
    started = started_by(event({"version": 2}, asset=delta_asset(other.uri)), event({}, asset=new))
    state = TaskState()

    def read(context: Any) -> dict[str, int]:
        task = kind(
            task_id="change",
            table_uri=table.uri,
            source_query="SELECT * FROM a",
            source_tables={
                "a": (other.uri, "triggering_event"),
                "b": {"table_uri": table.uri, "version": " triggering_event "},
                "c": (other.uri, 1),
            },
            **arguments,
        )
        submissions.fails_before_commit = True
        with pytest.raises(AirflowException, match="no master"):
            task.execute({**context, "task_state_store": state})
        tables = submissions.taken[-1]["source"]["tables"]
        return {name: found["version"] for name, found in tables.items()}

    assert read(started) == {"a": 2, "b": 0, "c": 1}
    # What the first try took for the newest version is it in the next one, too.
    table.alter.set_properties({"number": "3"})
    assert read(started) == {"a": 2, "b": 0, "c": 1}
    assert read(context_of("change")) == {"a": 3, "b": 0, "c": 1}


def test_a_function_is_found_where_the_worker_has_it(
    table: DeltaTable, tmp_path: Path, submissions: Submissions, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dags" / "lake_of_tests").mkdir(parents=True)
    (tmp_path / "dags" / "lake_of_tests" / "__init__.py").write_text("raise SystemExit")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "dags")])
    for function, path in (
        ("lake_of_tests.jobs:orders", {"python_path": str(tmp_path / "dags")}),
        ("not_here:orders", {}),
        ("json:loads", {}),
        ("sys:exit", {}),
    ):
        task = WriteOperator(
            task_id=f"write-{function[:3]}",
            table_uri=table.uri,
            source_function=function,
            source_arguments={"days": 3},
        )
        task.execute(context_of(function))
        source = submissions.taken[-1]["source"]
        assert source == {"function": function, "arguments": {"days": 3}, **path}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "no source of rows is given"),
        ({**FILES, "source_query": "SELECT 1"}, "give at most one of them"),
        (
            {"source_query": "SELECT 1", "source_format": "csv"},
            "source_format is given without source_uri",
        ),
        ({**FILES, "source_tables": {}}, "without source_query or source_function"),
        ({"source_query": "SELECT 1", "source_tables": {"t": ("/t", None)}}, "pinned version"),
        ({"source_query": "SELECT 1", "source_tables": {"t": "/t"}}, r"source_tables\['t'\]"),
        ({"source_query": "SELECT 1", "source_tables": [1]}, "expected a dictionary such as"),
        ({"source_function": "a:b", "source_arguments": {"x": {1}}}, "JSON values"),
        ({**FILES, "source_options": {"x": []}}, "a text, a number or a boolean"),
        ({**FILES, "mode": "replace"}, "mode: expected one of append, overwrite"),
        ({**FILES, "optimize_write": "yes"}, "optimize_write: expected True or False"),
    ],
)
def test_wrong_arguments_fail_when_the_dag_is_parsed(
    arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ArgumentError, match=message):
        WriteOperator(task_id="write", table_uri="/t", **arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"clauses": []}, "the merge has no clause"),
        ({"clauses": None}, "clauses: expected a list of dictionaries, found None"),
        ({"clauses": {"when": "matched", "then": "delete"}}, "clauses: expected a list"),
        (
            {"clauses": [{"when": "matched"}]},
            r"clauses\[0\]: expected a dictionary with when, then",
        ),
        (
            {"clauses": [{"when": "matched", "then": "insert"}]},
            "expected one of matched: update or",
        ),
        (
            {"clauses": [{"when": "matched", "then": "delete"}] * 2},
            "a clause for matched follows one without a condition",
        ),
        (
            {"clauses": [{"when": "matched", "then": "update", "values": {"a": []}}]},
            r"clauses\[0\]\['values'\]: expected a dictionary of columns",
        ),
        ({"on": ""}, "on: expected a text"),
        ({"merge_schema": "yes"}, "merge_schema: expected True or False"),
        ({"source_uri": None}, "no source of rows is given"),
    ],
)
def test_wrong_merges_fail_when_the_dag_is_parsed(arguments: dict[str, Any], message: str) -> None:
    given = {"source_uri": "/landing", **MERGE, **arguments}
    with pytest.raises(ArgumentError, match=message):
        MergeOperator(task_id="merge", table_uri="/t", **given)


@pytest.mark.parametrize("given", [{}, None, ["id"], {"id": [1]}, {1: "id"}])
def test_wrong_updates_fail_when_the_dag_is_parsed(given: Any) -> None:
    with pytest.raises(ArgumentError, match="set: expected a dictionary of columns"):
        UpdateOperator(task_id="update", table_uri="/t", set=given, condition="true")


def test_clauses_and_new_values_are_rendered(table: DeltaTable, submissions: Submissions) -> None:
    context: Any = {"params": {"day": "DATE '2026-01-01'", "n": 7}}
    merge = MergeOperator(
        task_id="merge",
        table_uri=table.uri,
        **FILES,
        on="target.day = {{ params.day }} AND target.id = source.id",
        clauses=[
            {
                "when": "matched",
                "then": "update",
                "condition": "source.n > {{ params.n }}",
                "values": {"day": "{{ params.day }}", "n": 7, "note": None},
            }
        ],
    )
    update = UpdateOperator(
        task_id="update", table_uri=table.uri, set={"n": "{{ params.n }}"}, condition="n < 0"
    )
    for task in (merge, update):
        task.render_template_fields(context)
        task.execute(context_of(task.task_id))
    merged, updated = submissions.taken
    assert merged["on"] == "target.day = DATE '2026-01-01' AND target.id = source.id"
    (clause,) = merged["clauses"]
    assert clause["condition"] == "source.n > 7"
    assert clause["values"] == {"day": "DATE '2026-01-01'", "n": 7, "note": None}
    assert updated["set"] == {"n": "7"}
    empty = UpdateOperator(
        task_id="empty", table_uri="/t", set={"n": "{{ params.x }}"}, condition="true"
    )
    with pytest.raises(ArgumentError, match=r"set\['n'\]: the template .* rendered to ''"):
        empty.render_template_fields({"params": {"x": ""}})  # type: ignore[typeddict-item]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"source_query": "SELECT 1", "source_tables": {"a.b": ("{t}", 0)}}, "expected a name"),
        (
            {"source_query": "SELECT 1", "source_tables": {"a": ("{t}", 0), "A": ("{t}", 0)}},
            "SQL ignores case",
        ),
        ({"source_function": "orders"}, "expected a module and a name"),
        ({"source_uri": "/t", "source_format": "Delta"}, "isn't read by path"),
    ],
)
def test_wrong_sources_fail_before_spark_starts(
    table: DeltaTable, submissions: Submissions, arguments: dict[str, Any], message: str
) -> None:
    for name, (_, version) in (arguments.get("source_tables") or {}).items():
        arguments["source_tables"][name] = (table.uri, version)
    task = WriteOperator(task_id="write", table_uri=table.uri, **arguments)
    with fails_for_good(InvalidArgumentError, match=message):
        task.execute(context_of("write"))
    assert submissions.taken == []


def test_arguments_are_rendered(tmp_path: Path) -> None:
    (tmp_path / "orders.sql").write_text("SELECT {{ params.n }} AS id")
    from tests.airflow.dag_runs import new_dag

    with new_dag(template_searchpath=str(tmp_path)) as dag:
        task = WriteOperator(
            task_id="write",
            table_uri="/{{ params.name }}",
            source_query="orders.sql",
            source_tables={"t": ("/{{ params.name }}", "{{ params.n }}")},
            partition_by="{{ params.columns }}",
        )
    context: Any = {"params": {"name": "t", "n": 7, "columns": '["a"]'}, "dag": dag}
    task.render_template_fields(context)
    assert task.source() == {"query": "SELECT 7 AS id", "tables": {"t": ("/t", 7)}}
    assert task.argument("partition_by") == ["a"]


def test_a_dry_run_of_a_deletion_reports_files(table: DeltaTable, submissions: Submissions) -> None:
    task = DeleteOperator(task_id="d", table_uri=table.uri, condition="id > 1", dry_run="true")
    found = task.execute(context_of("d"))
    check(found, DeletionPlanResult, "plan")
    assert found == {"table_uri": table.uri, **PLAN}
    assert "app_id" not in submissions.taken[0]
