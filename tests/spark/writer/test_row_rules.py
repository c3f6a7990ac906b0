from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_delta.engine.errors import ConstraintViolationError
from airflow_delta.engine.model.schema import (
    INTEGER,
    STRING,
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
)
from airflow_delta.spark.writer.row_rules import (
    check_rows_fit,
    new_table_schema,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def table_of(data_type: DataType) -> StructType:
    return StructType((StructField("a", data_type),))


STRICT_STRUCT = StructType((StructField("x", INTEGER, nullable=False),))


@pytest.mark.parametrize(
    ("ddl", "wanted"),
    [
        ("a int NOT NULL", INTEGER),
        ("a struct<x: int>", STRICT_STRUCT),
        ("a array<struct<x: int NOT NULL>>", ArrayType(STRICT_STRUCT)),
        ("a map<string, int>", MapType(STRING, INTEGER)),
    ],
)
def test_rows_fit_whose_nulls_are_checked_or_promised(
    spark: SparkSession, ddl: str, wanted: DataType
) -> None:
    check_rows_fit(spark.createDataFrame([], ddl), table_of(wanted), table="t")


@pytest.mark.parametrize(
    ("ddl", "wanted"),
    [
        ("a bigint", INTEGER),
        ("a struct<y: int>", STRICT_STRUCT),
        ("a array<int>", ArrayType(INTEGER, contains_null=False)),
        ("a array<struct<x: int>>", ArrayType(STRICT_STRUCT)),
        ("a map<string, int>", MapType(STRING, INTEGER, value_contains_null=False)),
        ("a map<int, int>", MapType(STRING, INTEGER)),
    ],
)
def test_rows_of_another_type_do_not_fit(spark: SparkSession, ddl: str, wanted: DataType) -> None:
    with pytest.raises(ConstraintViolationError, match="the column 'a' of the rows is"):
        check_rows_fit(spark.createDataFrame([], ddl), table_of(wanted), table="t")


def test_a_new_table_promises_nothing_about_nulls(spark: SparkSession) -> None:
    ddl = "a struct<x: array<int> NOT NULL> NOT NULL COMMENT 'why', m map<string, int>"
    rows = spark.createDataFrame([], ddl)
    inner = StructType((StructField("x", ArrayType(INTEGER)),))
    assert new_table_schema(rows) == StructType(
        (
            StructField("a", inner, metadata={"comment": "why"}),
            StructField("m", MapType(STRING, INTEGER)),
        )
    )
