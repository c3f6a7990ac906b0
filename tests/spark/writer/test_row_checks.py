"""Rows are checked one by one: NOT NULL, and the lengths of CHAR and VARCHAR."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from airflow_delta.engine.errors import ConstraintViolationError, InvalidTableError
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
from airflow_delta.spark.runtime.executor_errors import errors_of_executors
from airflow_delta.spark.writer.row_checks import with_row_checks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("interpreted")

NAMED = StructType((StructField("x", INTEGER), StructField("n m", STRING)))


def one_column(data_type: DataType, declared: Any) -> StructType:
    return StructType((StructField("a", data_type, metadata={CHAR_METADATA: declared}),))


def checked(spark: SparkSession, schema: StructType, ddl: str, *values: Any) -> int:
    rows = spark.createDataFrame([(value,) for value in values], ddl)
    with errors_of_executors():
        return with_row_checks(rows, schema, table="t").count()


def test_not_null_columns(spark: SparkSession) -> None:
    strict = StructType((StructField("x y", INTEGER, nullable=False),))
    schema, ddl = StructType((StructField("a", strict),)), "a struct<`x y`: int>"
    assert checked(spark, schema, ddl, (1,), None) == 2
    with pytest.raises(
        ConstraintViolationError, match=r"a null in the column a\.x y, which"
    ) as caught:
        checked(spark, schema, ddl, (1,), (None,))
    assert (caught.value.columns, caught.value.table) == (("a.x y",), "t")


@pytest.mark.parametrize("declared", ["char(3)", "varchar(3)", "VARCHAR(3)"])
def test_characters_are_code_points_and_spaces_count(spark: SparkSession, declared: str) -> None:
    schema = one_column(STRING, declared)
    fit = [None, "", "a", "äöü", "😀😀😀", "a  ", "   "]
    assert checked(spark, schema, "a string", *fit) == len(fit)
    for text in ("abcd", "😀😀😀😀", "abc ", "    "):
        with pytest.raises(
            ConstraintViolationError, match=r"column a .* its type (var)?char\(3\)"
        ) as caught:
            checked(spark, schema, "a string", *fit, text)
        assert caught.value.columns == ("a",)


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
