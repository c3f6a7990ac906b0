from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyspark.sql
import pytest

from airflow_delta.engine import CommitResult
from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.spark.alterations import row_rules
from airflow_delta.spark.jobs.row_rule import row_rule

CHECK = {"table_uri": "/t", "name": "few", "expression": "id < 9"}
NOT_NULL = {"table_uri": "/t", "column": ["s", "x"]}
TXN = {"app_id": "airflow:dag.task", "app_version": 7}


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({**CHECK, "name": 7}, "'name': expected str, found 7"),
        ({**NOT_NULL, "column": "s"}, "'column': expected list, found 's'"),
        ({**CHECK, "colour": "red"}, r"unknown \['colour'\]"),
        ({"name": "few"}, r"missing \['table_uri'\]"),
        ({"table_uri": "/t"}, r"either name and expression, or column; found \[\]"),
        ({"table_uri": "/t", "name": "few"}, r"or column; found \['name'\]"),
        ({**CHECK, **NOT_NULL}, r"found \['column', 'expression', 'name'\]"),
        ({**CHECK, "app_id": "a"}, "app_id and app_version belong together"),
    ],
)
def test_wrong_parameters_are_refused_before_spark_starts(
    parameters: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        row_rule(parameters, {})


@pytest.mark.parametrize(
    ("parameters", "function", "given"),
    [
        (CHECK, "add_constraint", {"name": "few", "expression": "id < 9", "txn": None}),
        (
            {**NOT_NULL, **TXN, "allowed_outside": ["/u"]},
            "set_not_null",
            {
                "column": ["s", "x"],
                "txn": ("airflow:dag.task", 7),
                "allowed_outside": ["/u"],
            },
        ),
    ],
)
def test_what_the_rule_is_made_from(
    monkeypatch: pytest.MonkeyPatch,
    parameters: dict[str, Any],
    function: str,
    given: dict[str, Any],
) -> None:
    taken: list[Any] = []
    stopped: list[bool] = []
    spark = SimpleNamespace(
        version="4.2",
        sparkContext=SimpleNamespace(
            getConf=lambda: None,
            _jsc=SimpleNamespace(hadoopConfiguration=lambda: None),
            uiWebUrl=None,
            applicationId="local-1",
            master="local[1]",
        ),
        stop=lambda: stopped.append(True),
    )
    builder = SimpleNamespace(getOrCreate=lambda: spark)
    monkeypatch.setattr(pyspark.sql, "SparkSession", SimpleNamespace(builder=builder))

    def _add(*arguments: Any, **named: Any) -> CommitResult:
        taken.append((arguments, named))
        return CommitResult(5, 1, repeated=True)

    monkeypatch.setattr(row_rules, function, _add)
    found = row_rule(parameters, {"region": "x"})
    assert found == {"table_uri": "/t", "version": 5, "repeated": True}
    assert taken == [((spark, "/t"), {**given, "storage_options": {"region": "x"}})]
    assert stopped == [True]
