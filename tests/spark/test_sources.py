"""Sources of rows become DataFrames, and wrong ones are refused by name."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_delta.engine.errors import InvalidArgumentError, StorageError, VersionNotFoundError
from airflow_delta.row_sources.source import (
    FileSource,
    FunctionSource,
    PinnedTable,
    QuerySource,
    RowSource,
    parse_source,
    source_parameter,
)
from airflow_delta.spark import write
from airflow_delta.spark.sources import load_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MODULE = """
def pairs(spark, least):
    return spark.table("old").where(f"id >= {least}")

def text(spark):
    return "rows"

constant = 7
"""


def loaded(spark: SparkSession, source: RowSource) -> list[tuple[Any, ...]]:
    assert parse_source(source_parameter(source)) == source, "a job gets the same"
    return sorted(map(tuple, load_rows(spark, source, storage_options={}).collect()))


def test_files(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a b.csv").write_text("id;name\n1;x\n2;y\n")
    (tmp_path / "c.csv").write_text("id;name\n3;z\n")
    options = {"header": "true", "sep": ";"}
    files = FileSource(str(tmp_path), "csv", "id int, name string", options)
    assert loaded(spark, files) == [(1, "x"), (2, "y"), (3, "z")]
    one = FileSource(f"file:{tmp_path}/a*.csv", "csv", None, options)
    assert loaded(spark, one) == [("1", "x"), ("2", "y")]


def test_pinned_tables(spark: SparkSession, tmp_path: Path) -> None:
    uri = str(tmp_path / "table")
    write(spark.range(3), uri)
    write(spark.range(3, 5), uri)
    tables = {"old": PinnedTable(uri, 0), "new": PinnedTable(uri, 1)}
    query = "WITH both AS (SELECT * FROM new MINUS SELECT * FROM old) SELECT * FROM both"
    assert loaded(spark, QuerySource(query, tables)) == [(3,), (4,)]
    (tmp_path / "row_functions.py").write_text(MODULE)
    function = FunctionSource("row_functions:pairs", {"least": 2}, tables, str(tmp_path))
    assert loaded(spark, function) == [(2,)]
    assert sys.path[-1] == str(tmp_path)
    for name, message in (
        ("row_functions:text", "returned a str"),
        ("row_functions:constant", "has no function"),
        ("row_functions:missing", "has no function"),
        ("row_functions.deeper:pairs", "finds no module 'row_functions.deeper'"),
        ("nowhere:pairs", "finds no module 'nowhere'"),
    ):
        with pytest.raises(InvalidArgumentError, match=message):
            load_rows(spark, FunctionSource(name), storage_options={})
    with pytest.raises(VersionNotFoundError):
        load_rows(spark, QuerySource("SELECT 1", {"t": PinnedTable(uri, 7)}), storage_options={})


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (QuerySource("SELECT FROM WHERE"), r"the query 'SELECT FROM WHERE': \["),
        (QuerySource("SELECT * FROM nothing"), "TABLE_OR_VIEW_NOT_FOUND"),
        (QuerySource("CREATE TABLE made (id int) USING parquet"), "PARSE_SYNTAX_ERROR"),
        (QuerySource("INSERT INTO t SELECT 1"), "PARSE_SYNTAX_ERROR"),
        (FileSource("/", "no_such_format"), "the format no_such_format: .*DATA_SOURCE_NOT_FOUND"),
        (FileSource("/", "csv", "id nothing"), "UNSUPPORTED_DATATYPE"),
    ],
)
def test_what_spark_refuses_fails_for_good(
    spark: SparkSession, source: RowSource, message: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=message) as caught:
        load_rows(spark, source, storage_options={})
    assert len(str(caught.value)) < 600
    assert not spark.catalog.tableExists("made")


def test_files_that_may_come_later_are_an_error_of_the_store(spark: SparkSession) -> None:
    with pytest.raises(StorageError, match="PATH_NOT_FOUND"):
        load_rows(spark, FileSource("/data/not-yet", "json"), storage_options={})
