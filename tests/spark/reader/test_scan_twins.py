"""A scan in Arrow and a read by Spark return the same rows of random tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_delta.spark import read_snapshot
from tests.deep import deep_but_for
from tests.row_tables import random_table
from tests.spark.conftest import bag, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LAYOUTS: dict[str, dict[str, Any]] = {
    "none, partitioned": {"partition_by": ("q", "p")},
    "name, tracked": {"mode": "name", "partition_by": ("p",), "tracked": True},
    "id": {"mode": "id"},
}


@pytest.mark.parametrize("layout", deep_but_for(LAYOUTS, "name, tracked"))
@pytest.mark.parametrize("seed", deep_but_for(range(4), 0))
def test_random_tables(spark: SparkSession, tmp_path: Path, layout: str, seed: int) -> None:
    options = LAYOUTS[layout]
    made = random_table(tmp_path / "t", seed, **options)
    tracked = options.get("tracked", False)
    predicate = "n >= 0 AND p IS NOT NULL OR d < 0"
    for where in (None, predicate):
        scanned = made.table.snapshot().to_arrow(predicate=where, with_row_tracking=tracked)
        read = read_snapshot(spark, str(made.path), predicate=where, with_row_tracking=tracked)
        assert scanned.num_rows
        assert bag(scanned.to_pylist()) == bag(rows_of(read))
