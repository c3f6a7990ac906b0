"""New rules for rows as tasks: what Spark is given, and that a retry finds the commit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_delta.engine import DeltaTable
from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.model.schema import INTEGER, StructField, StructType
from airflow_delta.operators.row_rules import AddConstraintOperator, SetNotNullOperator
from airflow_delta.results import RowRuleResult
from tests.airflow.failures import fails_for_good
from tests.airflow.run_context import context_of
from tests.airflow.test_outputs import check

SCHEMA = StructType((StructField("a-b", INTEGER),))


class Submissions:
    """Takes the place of Spark: keeps what is submitted, and makes the commit."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.taken: list[dict[str, Any]] = []
        self.killed = 0
        monkeypatch.setattr("airflow_delta.hooks.spark.job.SparkJobHook", self._made)

    def _made(self, connection: str, *, conf: Any, name: str) -> Submissions:
        self.made_with = (connection, conf, name)
        return self

    def run(self, job: str, parameters: dict[str, Any], **environment: Any) -> dict[str, Any]:
        assert job == "row_rule"
        self.taken.append(parameters)
        self.environment = environment
        table = DeltaTable(parameters["table_uri"])
        txn = parameters["app_id"], parameters["app_version"]
        if "column" in parameters:
            commit = table.alter.set_not_null(parameters["column"], txn=txn)
        else:
            commit = table.alter.add_constraint(
                parameters["name"], parameters["expression"], txn=txn
            )
        uri = parameters["table_uri"]
        return {"table_uri": uri, "version": commit.version, "repeated": commit.repeated}

    def on_kill(self) -> None:
        self.killed += 1


@pytest.fixture
def submissions(monkeypatch: pytest.MonkeyPatch) -> Submissions:
    return Submissions(monkeypatch)


@pytest.fixture
def table(tmp_path: Path) -> DeltaTable:
    return DeltaTable.create(str(tmp_path), SCHEMA)


TASKS: list[tuple[Any, dict[str, Any], dict[str, Any]]] = [
    (
        AddConstraintOperator,
        {"name": "Few", "expression": "`a-b` < 9"},
        {"name": "Few", "expression": "`a-b` < 9"},
    ),
    (SetNotNullOperator, {"column": "`a-b`"}, {"column": ["a-b"]}),
]


@pytest.mark.parametrize(("kind", "arguments", "rule"), TASKS)
def test_spark_adds_the_rule_once(
    table: DeltaTable,
    submissions: Submissions,
    kind: Any,
    arguments: dict[str, Any],
    rule: dict[str, Any],
) -> None:
    task = kind(
        task_id="rule",
        table_uri=table.uri,
        spark_conf={"spark.executor.cores": "1"},
        allowed_outside=["/other"],
        **arguments,
    )
    first = task.execute(context_of("rule"))
    assert first == {"table_uri": table.uri, "version": 1, "repeated": False}
    assert json.loads(json.dumps(first)) == first, "XCom carries JSON"
    check(first, RowRuleResult, "rule")
    (parameters,) = submissions.taken
    assert parameters.items() >= {"table_uri": table.uri, **rule}.items()
    assert parameters["app_id"] == "airflow:lake.rule"
    assert parameters["allowed_outside"] == ["/other"]
    assert submissions.made_with == (
        "spark_default",
        {"spark.executor.cores": "1"},
        "airflow:lake.rule",
    )
    # The retry, or the cleared task, finds the commit without Spark.
    again = task.execute(context_of("rule"))
    assert again == {"table_uri": table.uri, "version": 1, "repeated": True}
    assert len(submissions.taken) == 1
    task.on_kill()
    assert submissions.killed == 1


@pytest.mark.parametrize("column", ["a, b", "a-b", "", "`a"])
def test_names_of_columns(table: DeltaTable, submissions: Submissions, column: str) -> None:
    if not column:
        with pytest.raises(ValueError, match="column"):
            SetNotNullOperator(task_id="rule", table_uri=table.uri, column=column)
        return
    task = SetNotNullOperator(task_id="rule", table_uri=table.uri, column=column)
    with fails_for_good(InvalidArgumentError, match="expected the name of one column"):
        task.execute(context_of("rule"))
    assert submissions.taken == []


def test_arguments_are_rendered() -> None:
    task = AddConstraintOperator(
        task_id="rule",
        table_uri="{{ params.uri }}",
        name="{{ params.name }}",
        expression="{{ params.name }} > 0",
        spark_conn_id="{{ params.name }}",
    )
    task.render_template_fields({"params": {"uri": "s3://lake/t", "name": "n"}})  # type: ignore[arg-type]
    found = (task.table_uri, task.name, task.expression, task.spark_conn_id)
    assert found == ("s3://lake/t", "n", "n > 0", "n")
