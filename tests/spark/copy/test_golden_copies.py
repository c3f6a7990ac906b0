"""Copies of tables that Spark wrote hold the rows that Spark expects, and so do their checkpoints.

They cover the types (decimals, dates, timestamps, nested ones), partitioning with nulls and escaped
characters, logs with and without checkpoints, deletes, restores, repartitioning and evolved schemas.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.dataset as ds
import pytest

from airflow_delta.copies.request import CopyRequest
from airflow_delta.engine import DeltaTable
from airflow_delta.spark.copy.copies import copy_snapshot
from tests.airflow.maintenance import checkpoint_only, rows_by_peer
from tests.golden.expected_rows import ExpectedRows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CASES = (
    "125-iterator-bug",
    "basic-decimal-table-legacy",
    "basic-with-inserts-merge",
    "basic-with-inserts-overwrite-restore",
    "corrupted-last-checkpoint-kernel",
    "dat-all_primitive_types",
    "dat-basic_partitioned",
    "dat-nested_types",
    "dat-no_replay",
    "dat-partitioned_with_null",
    "dat-stats_as_struct",
    "dat-with_checkpoint",
    "data-reader-array-complex-objects",
    "data-reader-escaped-chars",
    "data-reader-map",
    "data-reader-nested-struct",
    "kernel-timestamp-pst",
    "snapshot-data3",
    "snapshot-repartitioned",
    "time-travel-schema-changes-b",
)


@pytest.mark.parametrize("name", CASES)
def test_the_rows_are_those_that_spark_expects(
    name: str, spark: SparkSession, golden_copy: Callable[[str], Path], tmp_path: Path
) -> None:
    table = golden_copy(name)
    expected, version = ExpectedRows(table), DeltaTable(str(table)).latest_version()
    for target_format in ("delta", "parquet"):
        target = tmp_path / target_format
        copy_snapshot(spark, CopyRequest(str(table), version, str(target), target_format))
        if target_format == "delta":
            assert expected.are(rows_by_peer(target))
        else:
            assert expected.are(ds.dataset(target).to_table().to_pylist())
    DeltaTable(str(table)).checkpoint()
    checkpoint_only(table, version)
    assert expected.are(rows_by_peer(table))
