from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from airflow_delta.spark import read_snapshot
from tests.conftest import golden_manifest
from tests.spark.conftest import bag, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GoldenCase = Callable[[str], Path]

CASES = [case["name"] for case in golden_manifest() if case.get("expected_content") == "equal"]


@pytest.mark.parametrize("name", CASES)
def test_golden_table_has_its_expected_rows(
    spark: SparkSession, golden_case: GoldenCase, name: str
) -> None:
    table = golden_case(name)
    wanted: list[dict[str, Any]] = []
    for file in sorted((table.parent / "expected").iterdir()):
        wanted += pq.ParquetFile(file).read().to_pylist()
    got = rows_of(read_snapshot(spark, str(table)))
    if wanted:
        got = [{column: row[column] for column in wanted[0]} for row in got]
    assert bag(got) == bag(wanted)
