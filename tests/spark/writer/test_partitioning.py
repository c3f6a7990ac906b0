from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_delta.engine.errors import ConstraintViolationError
from airflow_delta.engine.model.schema import BINARY, DATE, STRING, StructField
from airflow_delta.spark.writer.partitioning import directory_text, partition_values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_values_come_from_the_directories_in_order() -> None:
    fields = [StructField("a=b", STRING), StructField("c", BINARY), StructField("d", DATE)]
    columns = {field.name: field for field in fields}
    directories = ["a%3Db=x%2Fy=%25", "c=00C3BF", "d=2024-01-31"]
    assert partition_values(directories, columns, table="t") == {
        "a=b": "x/y=%",
        "c": "\x00ÿ",
        "d": "2024-01-31",
    }


def test_null_and_the_string_that_looks_like_it() -> None:
    column = StructField("p", STRING)
    null = "__HIVE_DEFAULT_PARTITION__"
    for text, value in [(null, None), (f"{null}_", null), (f"{null}__", f"{null}_")]:
        assert partition_values([f"p={text}"], {"p": column}, table="t") == {"p": value}


def test_a_value_beyond_the_protocols_forms_is_refused() -> None:
    with pytest.raises(ConstraintViolationError, match=r"'d'.*10000-01-01") as caught:
        partition_values(["d=+10000-01-01"], {"d": StructField("d", DATE)}, table="t")
    assert (caught.value.columns, caught.value.table) == (("d",), "t")


def test_bytes_that_no_text_has_are_refused() -> None:
    with pytest.raises(ConstraintViolationError, match=r"'c'.*expected bytes in UTF-8") as caught:
        partition_values(["c=00FF"], {"c": StructField("c", BINARY)}, table="t")
    assert caught.value.columns == ("c",)


def test_texts_of_strings_tell_them_apart(spark: SparkSession) -> None:
    values = ["__HIVE_DEFAULT_PARTITION__", "__HIVE_DEFAULT_PARTITION___", "x", "_", None]
    rows = spark.createDataFrame([(value,) for value in values], "p string")
    texts = [row[0] for row in rows.select(directory_text(rows["p"], STRING)).collect()]
    assert len(set(texts)) == len(values)
    assert texts[-1] is None
    assert "__HIVE_DEFAULT_PARTITION__" not in texts
