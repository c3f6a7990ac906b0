"""Columns are made without PySpark's notes of where, and its setting is as before afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException, utils
from pyspark.sql import functions as F  # noqa: N812

from airflow_delta.spark.runtime.call_sites import without_call_sites

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession


@pytest.fixture(autouse=True)
def _records_call_sites(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a session that was active before the first column was made."""
    monkeypatch.setattr(utils, "_enable_debugging_cache", True)


def is_known(spark: SparkSession, column: Column) -> bool:
    """Whether the error about a column knows where it was made."""
    with pytest.raises(AnalysisException) as error:
        spark.range(1).select(column)
    return any(__file__ in context.callSite() for context in error.value.getQueryContext())


def test_columns_are_made_without_call_sites(spark: SparkSession) -> None:
    before = F.col("missing")
    with without_call_sites():
        column = F.col("missing")
        assert is_known(spark, before)
    assert not is_known(spark, column)
    assert is_known(spark, F.col("missing"))


def test_the_last_of_several_operations_at_once_ends_it(spark: SparkSession) -> None:
    first, second = without_call_sites(), without_call_sites()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not is_known(spark, F.col("missing"))
    second.__exit__(None, None, None)
    assert is_known(spark, F.col("missing"))


def test_an_error_ends_it(spark: SparkSession) -> None:
    with pytest.raises(ValueError, match="of the operation"), without_call_sites():
        raise ValueError("of the operation")
    assert is_known(spark, F.col("missing"))
