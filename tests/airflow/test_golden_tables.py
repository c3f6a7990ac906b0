"""The whole maintenance DAG over tables that Spark wrote, compared with the rows Spark expects.

Each case is a run of its own, with a real submission of the PySpark job. What the job does with many more
tables is told by ``tests/spark/copy/test_golden_copies.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.airflow.maintenance import checkpoint_only, load_dag, rows_by_peer, run_dag
from tests.golden.expected_rows import ExpectedRows

CASES = (
    "dat-all_primitive_types",
    "dat-with_checkpoint",
    "time-travel-schema-changes-b",
)


@pytest.fixture
def dag(airflow_database: Path) -> Any:
    return load_dag()


@pytest.mark.deep
@pytest.mark.parametrize("name", CASES)
def test_the_rows_are_those_that_spark_expects(
    name: str,
    dag: Any,
    golden_copy: Callable[[str], Path],
    tmp_path: Path,
) -> None:
    table, target = golden_copy(name), tmp_path / "materialised"
    expected = ExpectedRows(table)
    state, returned = run_dag(dag, table_uri=str(table), target_uri=str(target))
    assert state == "success"
    version = returned["materialise"]["version"]
    assert expected.are(rows_by_peer(target))
    checkpoint_only(table, version)
    assert expected.are(rows_by_peer(table))
