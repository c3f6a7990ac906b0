"""The profile operator: what the log tells, what Spark is given, and its DAG, run whole."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from airflow_delta.engine import DeltaTable
from airflow_delta.hooks import table_profile
from airflow_delta.operators.table_profile import TableProfileOperator
from airflow_delta.version_compat import AirflowFailException
from tests.airflow.maintenance import run_dag
from tests.airflow.managed_tables import commit, hand_over, in_log, use_owner
from tests.airflow.run_context import context_of
from tests.airflow.task_state import TaskState

REPORT = {
    "version": 3,
    "num_rows": 9,
    "counted_by": "scan",
    "num_files": 1,
    "num_partitions": None,
    "columns": {"id": {"type": "long", "nulls": 0, "min": 5}},
}


class Submissions:
    """Takes the place of Spark: keeps what is submitted, and answers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.taken: list[dict[str, Any]] = []
        self.killed = 0
        monkeypatch.setattr("airflow_delta.hooks.spark.job.SparkJobHook", lambda *_, **__: self)

    def run(self, job: str, parameters: dict[str, Any], **environment: Any) -> dict[str, Any]:
        assert job == "table_profile"
        self.taken.append(parameters)
        self.environment = environment
        self.in_log = in_log(Path(parameters["table_uri"]))
        return {"table_uri": parameters["table_uri"], **REPORT, "version": parameters["version"]}

    def on_kill(self) -> None:
        self.killed += 1


@pytest.fixture
def submissions(monkeypatch: pytest.MonkeyPatch) -> Submissions:
    return Submissions(monkeypatch)


def profile(table: Path, *, state: TaskState | None = None, **arguments: Any) -> dict[str, Any]:
    context = context_of("profile")
    if state is not None:
        context["task_state_store"] = state
    operator = TableProfileOperator(task_id="profile", table_uri=str(table), **arguments)
    return operator.execute(context)


@pytest.mark.parametrize("columns", [[], (), "[]", " [] "])
def test_rows_alone_are_told_by_the_log_without_spark(sales: Path, columns: Any) -> None:
    found = profile(sales, columns=columns, spark_conn_id="not_there")
    modified = (sales / "_delta_log" / f"{3:020}.json").stat().st_mtime_ns // 1_000_000
    snapshot = DeltaTable(str(sales)).snapshot()
    assert found == {
        "table_uri": str(sales),
        "version": 3,
        "timestamp_ms": modified,
        "num_files": snapshot.num_files,
        "size_in_bytes": snapshot.size_in_bytes,
        "num_partitions": None,
        "num_rows": 25,
        "counted_by": "statistics",
        "columns": {},
    }
    assert profile(sales, columns=columns, version="1")["num_rows"] == 20


def test_rows_of_which_the_log_does_not_tell_are_counted_by_spark(
    sales_copy: Path, submissions: Submissions
) -> None:
    for commit_file in (sales_copy / "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in commit_file.read_text().splitlines()]
        for action in actions:
            action.get("add", {}).pop("stats", None)
        commit_file.write_text("".join(json.dumps(action) + "\n" for action in actions))
    assert profile(sales_copy, columns=[])["counted_by"] == "scan"
    assert submissions.taken == [{"table_uri": str(sales_copy), "version": 3, "columns": []}]


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        ({}, {}),
        ({"columns": None, "predicate": None}, {}),
        ({"columns": ["id"]}, {"columns": ["id"]}),
        ({"columns": '["id"]'}, {"columns": ["id"]}),
        ({"columns": [], "predicate": "id > 3"}, {"columns": [], "predicate": "id > 3"}),
    ],
)
def test_figures_are_asked_of_spark(
    sales: Path, submissions: Submissions, arguments: dict[str, Any], asked: dict[str, Any]
) -> None:
    found = profile(sales, version=2, **arguments)
    assert submissions.taken == [{"table_uri": str(sales), "version": 2, **asked}]
    assert submissions.environment == {"storage_options": {}}
    assert found["version"] == 2
    assert {name: found[name] for name in ("num_rows", "counted_by", "columns")} == {
        name: REPORT[name] for name in ("num_rows", "counted_by", "columns")
    }
    assert found["size_in_bytes"] == DeltaTable(str(sales)).snapshot(2).size_in_bytes
    assert json.loads(json.dumps(found)) == found, "XCom carries JSON"


def test_a_retry_profiles_what_the_first_try_did(
    sales_copy: Path, submissions: Submissions
) -> None:
    state = TaskState()
    newest = sales_copy / "_delta_log" / f"{3:020}.json"
    hidden = newest.rename(sales_copy / "version-3")
    assert profile(sales_copy, state=state)["version"] == 2
    hidden.rename(newest)
    assert profile(sales_copy, state=state)["version"] == 2
    assert profile(sales_copy, state=TaskState())["version"] == 3


def test_what_no_retry_can_help_fails_before_spark_starts(
    sales_copy: Path, submissions: Submissions, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(AirflowFailException, match=r"unknown columns \['nope'\]: the table has id"):
        profile(sales_copy, columns=["nope"])
    with pytest.raises(ValueError, match="columns: expected a list of names such as"):
        profile(sales_copy, columns="id")
    with pytest.raises(ValueError, match="both version=1 and timestamp=5 are given"):
        profile(sales_copy, version=1, timestamp=5)
    DeltaTable(str(sales_copy)).vacuum(retention_hours=0, enforce_retention=False)
    with pytest.raises(AirflowFailException, match="version 2 can't be read any more"):
        profile(sales_copy, version=2)
    monkeypatch.setattr(table_profile, "MOST_COLUMNS", 0)
    with pytest.raises(AirflowFailException, match="a profile of 1 columns is too large for XCom"):
        profile(sales_copy, columns=["id"])
    assert submissions.taken == []
    assert profile(sales_copy, columns=[], version=2, check_files=False)["num_rows"] == 30


def test_a_managed_version_is_backfilled_before_spark_reads_it(
    sales_copy: Path, submissions: Submissions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner_file = tmp_path / "owner.db"
    use_owner(monkeypatch, owner_file)
    newest = commit(sales_copy, hand_over(sales_copy, owner_file), 2)
    assert in_log(sales_copy) < newest
    profile(sales_copy)
    assert submissions.taken[0]["version"] == submissions.in_log == newest


def test_a_kill_ends_the_job(sales: Path, submissions: Submissions) -> None:
    operator = TableProfileOperator(task_id="profile", table_uri=str(sales))
    operator.execute(context_of("profile"))
    operator.on_kill()
    assert submissions.killed == 1


def test_arguments_are_rendered() -> None:
    operator = TableProfileOperator(
        task_id="profile",
        table_uri="{{ params.uri }}",
        columns="{{ params.columns | tojson }}",
        predicate="day = '{{ params.day }}'",
    )
    params = {"uri": "s3://lake/t", "columns": ["a b", "it's <b>"], "day": "2026-03-01"}
    operator.render_template_fields({"params": params})
    assert (operator.table_uri, operator.predicate) == ("s3://lake/t", "day = '2026-03-01'")
    assert json.loads(str(operator.columns)) == params["columns"]


def grow(table: Path, rows: dict[str, list[Any]], mode: Any = "append") -> None:
    write_deltalake(table, pa.table(rows), mode=mode)


@pytest.mark.deep
def test_the_example_dag_run_by_run(airflow_database: Path, tmp_path: Path) -> None:
    """Spark itself makes the first profile; the others are about what the check does with them."""
    table = tmp_path / "table"
    grow(table, {"id": [1, 2, 3], "name": ["a", "b", "c"]})
    state, returned = run_dag(load_dag(), table_uri=str(table), columns=["id", "name"])
    assert state == "success"
    found = returned["profile"]
    assert returned["check"] == found
    assert (found["version"], found["num_rows"], found["counted_by"]) == (0, 3, "scan")
    assert found["columns"]["name"] == {
        "type": "string",
        "nulls": 0,
        "distinct": 3,
        "min": "a",
        "max": "c",
        "min_length": 1,
        "max_length": 1,
    }
    grow(table, {"id": [4], "name": ["d"]})
    state, returned = run_dag(load_dag(), table_uri=str(table), columns=[])
    assert (state, returned["check"]["num_rows"]) == ("success", 4)
    grow(table, {"id": [5], "name": ["z"]}, mode="overwrite")
    state, returned = run_dag(load_dag(), table_uri=str(table), columns=[])
    assert (state, returned["profile"]["num_rows"], returned["check"]) == ("failed", 1, None)
    # The last good profile is still what counts.
    state, returned = run_dag(
        load_dag(), table_uri=str(table), columns=[], least_share_of_rows=0.25
    )
    assert (state, returned["check"]["version"]) == ("success", 2)


def load_dag() -> Any:
    """The DAG, anew for each run: a run in this process leaves its params behind in the object."""
    from airflow.dag_processing.dagbag import DagBag

    bag = DagBag()
    assert bag.import_errors == {}
    return bag.dags["delta_table_profile"]


def test_the_dag_of_the_guide_can_be_loaded() -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "profile-a-table.md"
    code = re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.M | re.S)[1]
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(code, str(page), "exec"), names)
    assert names["profile"].dag.task_ids == ["pin", "profile", "check"]
