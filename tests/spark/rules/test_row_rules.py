"""The rules of a table for its rows: each one, checked row by row, and counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import Row

from airflow_delta.engine.errors import ConstraintViolationError, InvalidTableError
from airflow_delta.engine.model.properties import TableProperties
from airflow_delta.engine.model.schema import (
    INTEGER,
    STRING,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
)
from airflow_delta.spark.reader.char_columns import CHAR_METADATA
from airflow_delta.spark.rules import row_rules as rules_of
from airflow_delta.spark.runtime.executor_errors import errors_of_executors
from tests.deep import deep_but_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMED = StructType((StructField("x", INTEGER), StructField("n m", STRING)))


def one_column(data_type: DataType, declared: Any) -> StructType:
    return StructType((StructField("a", data_type, metadata={CHAR_METADATA: declared}),))


def checked(
    spark: SparkSession,
    schema: StructType,
    ddl: str,
    *values: Any,
    properties: dict[str, str] | None = None,
    given: tuple[str, ...] = (),
) -> int:
    """The number of rows that are checked; `violation` must agree with `checked`.

    Values that break a rule are given together, because each evaluation takes a job of Spark: `violation`
    counts the rows by the expression by which `checked` fails.
    """
    rows = spark.createDataFrame(
        [value if isinstance(value, Row) else (value,) for value in values], ddl
    )
    rules = rules_of.row_rules(
        schema, TableProperties(properties or {}, "t"), table="t", generated_given=given
    )
    counted = rules_of.violation(rows, rules, table="t")
    if counted is None:
        return rules_of.checked(rows, rules, table="t").count()
    with pytest.raises(ConstraintViolationError) as caught, errors_of_executors():
        rules_of.checked(rows, rules, table="t").count()
    error = caught.value
    assert counted.message.startswith(f"{error.message}: ")
    assert (counted.columns, counted.rule) == (error.columns, error.rule)
    assert counted.table == error.table
    raise counted


def test_not_null_columns(spark: SparkSession) -> None:
    strict = StructType((StructField("x y", INTEGER, nullable=False),))
    schema, ddl = StructType((StructField("a", strict),)), "a struct<`x y`: int>"
    assert checked(spark, schema, ddl, (1,), (2,)) == 2
    with pytest.raises(
        ConstraintViolationError, match=r"a null in the column a\.x y, which"
    ) as caught:
        checked(spark, schema, ddl, (1,), (None,), (None,))
    error = caught.value
    assert (error.columns, error.table) == (("a.x y",), "t")
    assert (error.rule, error.num_rows) == ("NOT NULL a.x y", 2)
    assert json.loads(error.row) == {"a": {"x y": None}}


def test_a_null_struct_breaks_the_rules_of_its_members(spark: SparkSession) -> None:
    strict = StructType((StructField("x", INTEGER, nullable=False),))
    schema = StructType((StructField("a", StructType((StructField("b", strict),))),))
    ddl = "a struct<b: struct<x: int>>"
    assert checked(spark, schema, ddl, ((1,),)) == 1
    with pytest.raises(
        ConstraintViolationError, match=r"column a\.b\.x, which is NOT NULL"
    ) as caught:
        checked(spark, schema, ddl, ((1,),), None, (None,), ((None,),))
    assert caught.value.num_rows == 3


@pytest.mark.parametrize(
    ("data_type", "ddl", "fits", "broken", "named"),
    [
        (
            ArrayType(INTEGER, contains_null=False),
            "a array<int>",
            [None, [], [1]],
            [1, None],
            "a.element",
        ),
        (
            ArrayType(StructType((StructField("x", INTEGER, nullable=False),))),
            "a array<struct<x: int>>",
            [None, [], [(1,)]],
            [(1,), (None,)],
            "a.element.x",
        ),
        (
            MapType(STRING, INTEGER, value_contains_null=False),
            "a map<string, int>",
            [None, {}, {"k": 1}],
            {"k": 1, "l": None},
            "a.value",
        ),
        (
            MapType(StructType((StructField("x", INTEGER, nullable=False),)), INTEGER),
            "a map<struct<x: int>, int>",
            [None, {}, {(1,): None}],
            {(None,): 1},
            "a.key.x",
        ),
    ],
)
def test_nulls_in_arrays_and_maps(
    spark: SparkSession, data_type: DataType, ddl: str, fits: list[Any], broken: Any, named: str
) -> None:
    schema = StructType((StructField("a", data_type),))
    assert checked(spark, schema, ddl, *fits) == len(fits)
    with pytest.raises(ConstraintViolationError, match=f"null in the column {named}, which"):
        checked(spark, schema, ddl, *fits, broken)


POSITIVE = {"delta.constraints.positive": "X > 0"}
XY = StructType((StructField("x", INTEGER), StructField("y z", STRING)))
XY_DDL = "x int, `y z` string"


def test_check_constraints(spark: SparkSession) -> None:
    assert checked(spark, XY, XY_DDL, Row(1, "a"), Row(2, None), properties=POSITIVE) == 2
    rows = [Row(1, "a"), Row(-1, "b"), Row(None, "c"), Row(0, None)]
    with pytest.raises(
        ConstraintViolationError,
        match=r"break the constraint positive, CHECK \(X > 0\): 3 rows break this rule, for example ",
    ) as caught:
        checked(spark, XY, XY_DDL, *rows, properties=POSITIVE)
    error = caught.value
    assert (error.columns, error.rule, error.num_rows) == (("x",), "CHECK positive", 3)
    assert error.row == '{"x":-1,"y z":"b"}'


def test_all_broken_rules_are_named(spark: SparkSession) -> None:
    properties = {**POSITIVE, "delta.constraints.named": "`y z` IS NOT NULL"}
    rules = rules_of.row_rules(XY, TableProperties(properties, "t"), table="t")
    rows = spark.createDataFrame([(0, None), (-1, "b")], XY_DDL)
    error = rules_of.violation(rows, rules, table="t")
    assert error is not None
    assert "the constraint named, CHECK (`y z` IS NOT NULL): 1 row breaks" in error.message
    # The other row breaks the rule too, and is counted once, for the first rule that it breaks.
    assert error.message.endswith("; of the other rows, 1 row breaks CHECK positive")
    assert (error.rule, error.columns, error.num_rows) == ("CHECK named", ("y z",), 1)


RATIO = {"delta.constraints.a_nonzero": "x <> 0", "delta.constraints.ratio": "10 DIV x > 1"}


def test_a_rule_that_fails_for_rows_that_break_an_earlier_one(spark: SparkSession) -> None:
    with pytest.raises(ConstraintViolationError, match="constraint a_nonzero") as caught:
        checked(spark, XY, XY_DDL, Row(0, "a"), Row(1, "b"), properties=RATIO)
    assert (caught.value.rule, caught.value.num_rows) == ("CHECK a_nonzero", 1)
    with pytest.raises(ConstraintViolationError, match="constraint ratio") as caught:
        checked(spark, XY, XY_DDL, Row(1, "b"), Row(9, "c"), properties=RATIO)
    assert caught.value.row == '{"x":9,"y z":"c"}'


def test_the_example_is_of_the_rows_that_are_checked(spark: SparkSession, tmp_path: Path) -> None:
    """Spark could look for the example before it joins, where a row makes the rule fail."""
    spark.createDataFrame([(0, "a"), (9, "b")], XY_DDL).write.parquet(str(tmp_path / "x"))
    spark.createDataFrame([("b",)], "k string").write.parquet(str(tmp_path / "k"))
    left, right = (spark.read.parquet(str(tmp_path / name)) for name in "xk")
    rows = left.join(right, left["y z"] == right["k"]).select("x", "y z")
    rules = rules_of.row_rules(
        XY, TableProperties({"delta.constraints.ratio": "10 DIV x > 1"}, "t"), table="t"
    )
    error = rules_of.violation(rows, rules, table="t")
    assert error is not None
    assert (error.num_rows, error.row) == (1, '{"x":9,"y z":"b"}')


def test_invariants(spark: SparkSession) -> None:
    invariant = json.dumps({"expression": {"expression": "x > 3"}})
    schema = StructType((StructField("x", INTEGER, metadata={"delta.invariants": invariant}),))
    assert checked(spark, schema, "x int", 4, 5) == 2
    with pytest.raises(
        ConstraintViolationError, match=r"invariant of the column x, x > 3: 2 rows break"
    ) as caught:
        checked(spark, schema, "x int", 4, 3, None)
    assert (caught.value.columns, caught.value.rule) == (("x",), "invariant of x")


@pytest.mark.parametrize("text", ["x > 3", "{}", '{"expression": "x > 3"}', "[]", 7])
def test_unreadable_invariants(spark: SparkSession, text: Any) -> None:
    schema = StructType((StructField("x", INTEGER, metadata={"delta.invariants": text}),))
    with pytest.raises(InvalidTableError, match=r"the column x has delta\.invariants: .* expected"):
        checked(spark, schema, "x int", 4)


def test_generated_columns(spark: SparkSession) -> None:
    # The expression is of another type than the column, in whose type it is compared.
    generated = StructField("g", STRING, metadata={"delta.generationExpression": "x + 1"})
    schema, ddl = StructType((StructField("x", INTEGER), generated)), "x int, g string"
    fits = [Row(1, "2"), Row(None, None)]
    assert checked(spark, schema, ddl, *fits, given=("g",)) == 2
    wrong = [Row(1, "1"), Row(1, None), Row(None, "1")]
    with pytest.raises(
        ConstraintViolationError, match=r"another value in the column g than .*, x \+ 1; "
    ) as caught:
        checked(spark, schema, ddl, *fits, *wrong, given=("g",))
    assert (caught.value.columns, caught.value.num_rows) == (("g", "x"), 3)
    # What the writer has computed isn't checked.
    assert checked(spark, schema, ddl, *fits, *wrong) == 5


@pytest.mark.parametrize("condition", ["x >", "nobody > 0", "x + 1", "missing(x)"])
def test_conditions_that_spark_cannot_evaluate(spark: SparkSession, condition: str) -> None:
    properties = {**POSITIVE, "delta.constraints.odd": condition}
    with pytest.raises(InvalidTableError, match=r"rule CHECK odd: .*; drop the rule") as caught:
        checked(spark, XY, XY_DDL, Row(1, "a"), properties=properties)
    assert caught.value.rule == "CHECK odd"


@pytest.mark.parametrize("condition", ["nobody > 0", "x + 1"])
def test_checks_that_cannot_be_resolved(spark: SparkSession, condition: str) -> None:
    rows = spark.createDataFrame([(1, "a")], XY_DDL)
    properties = TableProperties({"delta.constraints.odd": condition}, "t")
    rules = rules_of.row_rules(XY, properties, table="t")
    with pytest.raises(InvalidTableError, match="rule CHECK odd: "):
        rules_of.checked(rows, rules, table="t")


def test_checks_survive_columns_that_nobody_uses(spark: SparkSession) -> None:
    rules = rules_of.row_rules(XY, TableProperties(POSITIVE, "t"), table="t")
    rows = spark.createDataFrame([(1, "a"), (0, "b")], XY_DDL)
    with (
        pytest.raises(ConstraintViolationError, match="constraint positive"),
        errors_of_executors(),
    ):
        rules_of.checked(rows, rules, table="t").select("y z").collect()


def test_tables_without_rules(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(1, "a")], XY_DDL)
    assert rules_of.checked(rows, (), table="t") is rows
    assert rules_of.violation(rows, (), table="t") is None


def test_long_rows_are_cut(spark: SparkSession) -> None:
    with pytest.raises(ConstraintViolationError) as caught:
        checked(spark, XY, XY_DDL, Row(0, "a" * 5000), properties=POSITIVE)
    assert len(caught.value.row) == 1000


@pytest.mark.parametrize(
    "declared", deep_but_for(["char(3)", "varchar(3)", "VARCHAR(3)"], "char(3)", "VARCHAR(3)")
)
def test_characters_are_code_points_and_spaces_count(spark: SparkSession, declared: str) -> None:
    schema = one_column(STRING, declared)
    fit = [None, "", "a", "äöü", "😀😀😀", "a  ", "   "]
    assert checked(spark, schema, "a string", *fit) == len(fit)
    longer = ["abcd", "😀😀😀😀", "abc ", "    "]
    with pytest.raises(
        ConstraintViolationError, match=r"column a .* its type (var)?char\(3\)"
    ) as caught:
        checked(spark, schema, "a string", *fit, *longer)
    assert (caught.value.columns, caught.value.num_rows) == (("a",), 4)


@pytest.mark.parametrize(
    ("data_type", "declared", "ddl", "fits", "longer", "named"),
    [
        (
            NAMED,
            "struct<x:int,was:varchar(2)>",
            "a struct<x: int, `n m`: string>",
            [None, (1, None), (1, "ab")],
            (1, "abc"),
            "a.n m",
        ),
        (
            ArrayType(STRING),
            "array<char(2)>",
            "a array<string>",
            [None, [], [None, "ab"]],
            [None, "ab", "abc"],
            "a.element",
        ),
        (
            MapType(STRING, STRING),
            "map<varchar(2),string>",
            "a map<string, string>",
            [None, {}, {"ab": "abcdef", "a": None}],
            {"ab": "a", "abc": None},
            "a.key",
        ),
        (
            MapType(STRING, ArrayType(NAMED)),
            "map<string,array<struct<x:int,n:char(2)>>>",
            "a map<string, array<struct<x: int, `n m`: string>>>",
            [None, {"long": None, "k": [None, (1, None), (1, "ab")]}],
            {"k": [(1, "ab"), None], "l": [(1, "abc")]},
            "a.value.element.n m",
        ),
    ],
)
def test_lengths_of_nested_texts(
    spark: SparkSession,
    data_type: DataType,
    declared: str,
    ddl: str,
    fits: list[Any],
    longer: Any,
    named: str,
) -> None:
    schema = one_column(data_type, declared)
    assert checked(spark, schema, ddl, *fits) == len(fits)
    with pytest.raises(
        ConstraintViolationError, match=f"in the column {named} with more"
    ) as caught:
        checked(spark, schema, ddl, *fits, longer)
    assert caught.value.columns == (named,)


@pytest.mark.parametrize("declared", ["varchar(", "no type", 7, "varchar(x)"])
def test_what_cannot_have_been_declared(spark: SparkSession, declared: Any) -> None:
    with pytest.raises(InvalidTableError, match=r"'a' was declared as .*: expected a type"):
        checked(spark, one_column(STRING, declared), "a string", "x")
