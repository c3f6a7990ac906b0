"""The conditions that a CHECK constraint may have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_delta.engine.errors import InvalidArgumentError
from airflow_delta.engine.model.schema import (
    BOOLEAN,
    INTEGER,
    STRING,
    ArrayType,
    StructField,
    StructType,
)
from airflow_delta.spark.rules.expressions import check_condition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = StructType(
    (
        StructField("id", INTEGER, nullable=False),
        StructField("a b", STRING),
        StructField("s", StructType((StructField("x", INTEGER),))),
        StructField("l", ArrayType(INTEGER)),
    )
)


@pytest.mark.parametrize(
    "condition",
    [
        "ID > 0",
        "`a b` LIKE 'x%' OR s.x > 1",
        "exists(l, e -> e > 0)",
        "id <= year(current_date())",
        "id > 0 -- a comment",
        "CAST(NULL AS BOOLEAN)",
    ],
)
def test_conditions_over_a_row(spark: SparkSession, condition: str) -> None:
    check_condition(spark, condition, SCHEMA, table="t")


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        ("py_function(id)", r"it has the user-defined function py_function\(id\)$"),
        ("sql_function(id)", "it has the user-defined function sql_function"),
        ("exists(SELECT 1)", "it has a subquery"),
        ("id IN (SELECT 1)", "it has a subquery"),
        ("id > (SELECT 1)", "it has a subquery"),
        ("rand() > 0", r"the value of rand\(\) differs"),
        ("l[0] > uuid()", r"uuid\(\) differs"),
        ("input_file_name() > ''", "differs"),
        ("sum(id) > 0", r"it has the aggregate function sum\(id\)"),
        ("row_number() OVER (ORDER BY id) > 1", "it has the window function row_number"),
        ("explode(l) > 1", "can't resolve it: .*generator"),
        ("stack(1, true)", "it has the generator stack"),
        ("id > session_variable", "it has the session variable"),
        ("id > 0 AS z", "it has an alias"),
        ("id > 0) OR (id < 3", "can't resolve it: "),
        ("id > 0, id < 3", "can't resolve it: "),
        ("id > 0 THEN true WHEN id < 0", "can't resolve it: "),
        ("id >", "can't resolve it: "),
        ("", "can't resolve it: "),
        ("nobody > 0", "can't resolve it: .*`nobody`"),
        ("_metadata.file_path > ''", "can't resolve it: "),
        ("id > :p", "can't resolve it: "),
        ("id", "it is of the type int, and not boolean"),
        ("null", "it is of the type void, and not boolean"),
        ("*", "list of columns"),
    ],
)
def test_other_conditions_are_refused(spark: SparkSession, condition: str, reason: str) -> None:
    spark.udf.register("py_function", lambda value: value, "boolean")
    spark.sql(
        "CREATE OR REPLACE TEMPORARY FUNCTION sql_function(x INT) RETURNS BOOLEAN RETURN x > 0"
    )
    spark.sql("DECLARE OR REPLACE VARIABLE session_variable INT DEFAULT 3")
    with pytest.raises(InvalidArgumentError, match=reason) as caught:
        check_condition(spark, condition, SCHEMA, table="t")
    assert caught.value.table == "t"
    assert "\n" not in caught.value.message


def test_a_list_of_one_boolean_column_is_no_condition(spark: SparkSession) -> None:
    schema = StructType((StructField("a", BOOLEAN),))
    check_condition(spark, "a", schema, table="t")
    with pytest.raises(InvalidArgumentError, match="list of columns"):
        check_condition(spark, " * ", schema, table="t")
