"""The whole maintenance DAG over tables that Spark wrote, compared with the rows Spark expects.

Each case is a run of its own, with a real submission of the PySpark job. They cover the types
(decimals, dates, timestamps, nested ones), partitioning with nulls and escaped characters, logs
with and without checkpoints, deletes, restores, repartitioning and evolved schemas.
"""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.airflow.maintenance import checkpoint_only, load_dag, rows_by_peer, run_dag

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


@pytest.fixture
def dag(airflow_database: Path) -> Any:
    return load_dag()


@pytest.fixture(scope="module")
def comparable(golden_root: Path) -> Callable[[Any], str]:
    """The corpus's own rule of what makes two values the same."""
    spec = importlib.util.spec_from_file_location("check_golden", golden_root / "check_golden.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    value: Callable[[Any], str] = module.value
    return value


@pytest.mark.parametrize("name", CASES)
def test_the_rows_are_those_that_spark_expects(
    name: str,
    dag: Any,
    comparable: Callable[[Any], str],
    golden_copy: Callable[[str], Path],
    tmp_path: Path,
) -> None:
    table, target = golden_copy(name), tmp_path / "materialised"
    expected = [
        row
        for file in sorted((table.parent / "expected").glob("*.parquet"))
        for row in pq.read_table(file).to_pylist()
    ]
    assert expected, "a case without rows would prove nothing"
    columns = list(expected[0])

    def bag(rows: list[dict[str, Any]]) -> Counter[tuple[str, ...]]:
        return Counter(tuple(comparable(row[column]) for column in columns) for row in rows)

    state, returned = run_dag(dag, table_uri=str(table), target_uri=str(target))
    assert state == "success"
    version = returned["materialise"]["version"]
    assert bag(rows_by_peer(target)) == bag(expected)
    checkpoint_only(table, version)
    assert bag(rows_by_peer(table)) == bag(expected)
